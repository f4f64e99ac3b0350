"""gpu: learning and acting on a GPU, as a share of the chip's peak, and against the usual loops.

Without a GPU every row says so. Nothing here starts Ray or needs a model from the network: weights are random, of
published shapes, and training data is random. One process, wall time; both sides wait for the GPU to finish.

    sequence        training the transformer of texts, targets and histories: width 1,024, 12 blocks (151 M weights),
                    128 episodes of 1 to 768 steps a gradient step, store and optimiser included; four steps in a row,
                    as in a run, where the host prepares a step while the GPU computes the one before
    llm_update      a minibatch of PPO on flan-t5-large's shape (783 M parameters): 256 prompts of 100 to 300 tokens,
                    six actions; forward, backward, clipping and Adam; float32 weights, bfloat16 arithmetic
    .../checkpointing   the same with activations kept only at the borders between blocks for the backward pass
    llm_acting      log-probabilities of the six actions, and the state for the value, for 1,024 such prompts
    weights         3.1 GB of float32 weights of that model to another process on the GPU, against a safetensors file in
                    memory (`file`)
    ppo, dqn/minibatch_N    gradient steps of a FiLM network (140 k weights) on BabyAI's view, against one thread of the
                    processor, to show where the GPU is worth it

`length_sorted` is a plain PyTorch or Hugging Face loop at its best: sorted by length, padded only within each batch,
the batch size that is fastest here, bfloat16, fused attention, fused AdamW. Losses or scores of both sides are compared
in each round. `matmul` multiplies square matrices one after the other: the rate that this chip reaches when it does
nothing else.

`mfu` is model FLOP utilisation by `learner/models/flops.py`: operations that the model needs, divided by the chip's
peak. They are 6 for each matrix weight and token that passes it, plus attention. Only real tokens count, neither
padding nor recomputation. For a prompt, the encoder counts for its tokens and the decoder for the inner nodes of the
tree of actions. The peer gets the same number, though it computes more.

After the rounds, our side does its work once more under PyTorch's profiler, and the row's note says where the time
went: matrix products, attention, copies and so on, how long the GPU did nothing, and what the host waited for.
"""

from __future__ import annotations

import dataclasses
import gc
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_rows.breakdown import breakdown
from benchmarks.gpu_rows.chip import Chip, Size
from benchmarks.gpu_rows.language import Acting, Update
from benchmarks.gpu_rows.sequences import Sequences
from benchmarks.gpu_rows.small import Small
from benchmarks.gpu_rows.weights import Weights
from benchmarks.measure import Case, Options, Report, Run, Skip, compare

METRICS = {
    "sequence": "mfu",
    "llm_update": "mfu",
    "llm_update/checkpointing": "mfu",
    "llm_acting": "states",
    "weights": "seconds",
    **{f"{name}/minibatch_{n}": "updates" for name in ("ppo", "dqn") for n in (64, 256, 1024, 4096)},
}
CASES = tuple(METRICS)
PEER = {"mfu": "length_sorted", "states": "length_sorted", "seconds": "file", "updates": "cpu"}
HEADLINES = frozenset({"length_sorted", "file"})
QUICK_SECONDS = 240.0


def measure(case: str, chip: Chip, size: Size, options: Options) -> Report:
    """One case on any device."""
    about = Case(
        "gpu", case, METRICS[case], HEADLINES if "checkpointing" not in case else frozenset(), case == "weights"
    )
    with tempfile.TemporaryDirectory() as folder:
        match: Any
        if case == "sequence":
            match = Sequences(chip, size, Path(folder))
        elif case == "llm_acting":
            match = Acting(chip, size)
        elif case == "weights":
            match = Weights(chip, size)
        elif about.metric == "mfu":
            match = Update(chip, size, case.endswith("checkpointing"))
        else:
            name, _, minibatch = case.partition("/minibatch_")
            match = Small(chip, name, int(minibatch))
        peers: dict[str, Run] = {PEER[about.metric]: match.play_peer}
        if about.metric == "mfu":
            peers["matmul"] = chip.matmul
        try:
            found = compare(about, match.play_ours, peers, options)
            note = f"{chip.name}: {match.note}"
            if chip.device.type == "cuda" and case != "weights" and options.seconds_left > 0:
                note += f"; {breakdown(chip.device, match.work())}"
        finally:
            if isinstance(match, Weights):
                match.close()
    return Report([dataclasses.replace(row, note=note) for row in found.rows], found.skips)


def run(options: Options) -> Report:
    report, chip = Report(), None
    for case in filter(options.wants, CASES):
        if not torch.cuda.is_available():
            report.skips.append(Skip("gpu", case, METRICS[case], PEER[METRICS[case]], "not run: no GPU"))
            continue
        chip = chip or Chip(torch.device("cuda"), Size().square)
        report.add(measure(case, chip, Size(), options))
        gc.collect()  # the next case measures free memory
        torch.cuda.empty_cache()
    return report
