"""sequence: training a transformer on episodes of different lengths, packed, against everything padded.

The model of a text, a target and a robot's history in its published shape: two blocks of width 360, four heads, three
tokens a step. Sequences are on average half as long as the longest of their batch. One thread, CPU time; only real
tokens count. Both sides begin with the same weights and take the same batches in the same order; ours reads them from a
store of episodes, the peers have them in memory. Peers are nanoGPT's loop: pad, fused attention, `AdamW(fused=True)`.

    half_filled    ours in bfloat16, against the peer in bfloat16 and in float32, and in bfloat16 with buckets: a batch
                   sorted by length, in parts of about equally many tokens, each padded to its own longest
    filled         all sequences equally long: the gain without any padding to save

In each round the losses of both sides are compared, step by step.

Limit: the decoder's matrix products; see `learner/models/sequence/decoder.py`. Where nothing is padded, ours gains from
attention in bfloat16, and from skipping half a block for tokens at which nothing is predicted.
"""

from __future__ import annotations

import copy
import dataclasses
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.measure import Case, DifferentOutputs, Options, Report, Skip, compare
from benchmarks.peers.padded_transformer import padded
from envs.api import Episodes, Field
from learner.behaviours.imitation import SequenceConfig, SequenceFitter, SequenceSetup
from learner.config import LearnerConfig
from learner.models.sequence.behaviour_config import BehaviourConfig
from learner.models.sequence.behaviour_transformer import Demonstrations
from learner.optim.precision import has_bfloat16
from learner.store.episodes import EpisodeStore, EpisodeWriter, Layout, Steps

CASES = ("half_filled", "filled")
QUICK_ROUNDS, QUICK_SECONDS = 1, 47.0
SEQUENCES, BATCH = 96, 32
LONGEST_TEXT, LONGEST_EPISODE = 48, 120
VOCABULARY = 1500
STEPS = 1
"""Gradient steps of a round."""
ROWS = 8
"""Sequences that the peers compute at once: the fastest here of 4, 8 and 16."""
APART = {"float32": 1e-3, "bfloat16": 2e-2}
"""Relative tolerance of a step's losses."""
MODEL = BehaviourConfig(width=360, layers=2, heads=4, layout="separate", dropout=0.0, device="cpu")
CONFIG = SequenceConfig(stride=1, batch=BATCH, warmup=0, learning_rate=1e-3, steps=10_000, model=MODEL)

BUCKET = 1632
"""Tokens of a part of the bucketed peer's batches, padding included, at most: the fastest of 408, 816, 1,632, 3,264 and
8,000."""

Precision = Literal["float32", "bfloat16"]
Peer = Literal["float32", "bfloat16", "bucketed"]


def record(
    folder: Path,
    case: str,
    config: SequenceConfig = CONFIG,
    sequences: int = SEQUENCES,
    longest: tuple[int, int] = (LONGEST_TEXT, LONGEST_EPISODE),
) -> SequenceSetup:
    """Random episodes. Real tokens fill about half of a padded batch, or all of it in the case `filled`.

    longest: tokens of the longest text, steps of the longest episode.
    """
    random = np.random.default_rng(0)

    def drawn(longest: int) -> list[int]:
        if case == "filled":
            return [longest] * sequences
        spread = np.linspace(0, 1, sequences) ** 1.15 * (longest - 1) + 1
        return [int(n) for n in random.permutation(spread.round())]

    steps, texts = drawn(longest[1]), drawn(longest[0])
    layout = Layout({"observation": Field("vector", (5,))}, (), (2,))
    episodes = Episodes(**{n: np.zeros(sequences, column.dtype) for n, column in vars(Episodes.empty()).items()})
    episodes.length[:] = steps
    total = sum(steps)
    obs = random.random((total, 5)).astype(np.float32) * np.array([100, 100, 100, 1, 1], np.float32)
    action = random.normal(1, 2, (total, 2)).clip(-4, 4).astype(np.float32)
    rows = Steps({"observation": obs}, action, np.zeros(total, np.float32))
    EpisodeWriter(folder, layout, {}).write("0", episodes, rows, {})
    return SequenceSetup(
        config=config,
        learner=LearnerConfig(),
        seed=0,
        store=folder,
        episodes=np.arange(sequences),
        texts=[[random.integers(0, VOCABULARY, n)] for n in texts],
        target=random.random((sequences, 2)).astype(np.float32) * 600,
        held_out=np.zeros(sequences, bool),
        vocabulary=VOCABULARY,
        centres=tuple(np.array([-2.5, -0.5, 1.5, 3.5], np.float32) for _ in range(2)),
    )


def lengths(batch: list[Demonstrations], each: int) -> list[int]:
    """Tokens of each sequence, with `each` tokens a step."""
    return [text + each * steps for part in batch for text, steps in zip(part.texts, part.steps, strict=True)]


def buckets(rows: NDArray[np.int64], lengths: list[int], most: int) -> list[NDArray[np.int64]]:
    """A batch sorted by length, the shortest first, in parts that have at most `most` tokens once each is padded to
    its own longest; a part has at least one sequence."""
    parts: list[list[int]] = []
    for k in np.argsort(lengths, kind="stable").tolist():
        if not parts or (len(parts[-1]) + 1) * lengths[k] > most:
            parts.append([])
        parts[-1].append(k)
    return [rows[part] for part in parts]


class Padded:
    """nanoGPT's loop, with its own copy of the model.

    by_part: each part of a batch is padded to its own longest sequence instead of the batch's.
    """

    def __init__(self, fitter: SequenceFitter, precision: Precision, by_part: bool = False) -> None:
        self.by_part = by_part
        config = fitter.config
        self.model = copy.deepcopy(fitter.model)
        self.model.in_half = precision == "bfloat16"
        self.decoder = padded(self.model)
        parameters = [nn.Parameter(p.detach().clone()) for p in self.model.parameters()]
        for (name, _), parameter in zip(list(self.model.named_parameters()), parameters, strict=True):
            owner, _, last = name.rpartition(".")
            setattr(self.model.get_submodule(owner), last, parameter)
        decayed = [[p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim == 1]]
        groups: list[dict[str, Any]] = [
            {"params": decayed[0], "weight_decay": config.weight_decay},
            {"params": decayed[1]},
        ]
        betas = (config.betas[0], config.betas[1])
        self.optimiser = torch.optim.AdamW(groups, lr=config.learning_rate, betas=betas, weight_decay=0.0, fused=True)
        self.clip, self.config = config.gradient_clip, config
        self.step = 0

    def learn(self, batch: list[Demonstrations]) -> Tensor:
        """One gradient step on a batch, in parts. Returns its loss, which a GPU is not waited for."""
        steps = sum(sum(part.steps) for part in batch)
        self.decoder.block = 0 if self.by_part else max(lengths(batch, self.model.tokens_per_step))
        self.optimiser.zero_grad(set_to_none=True)
        loss = torch.zeros((), device=self.model.device)
        for part in batch:
            own = self.model.loss(part)["loss"] / steps
            own.backward()  # type: ignore[no-untyped-call]
            loss += own.detach()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.step_size(self.step)
        self.optimiser.step()
        self.step += 1
        return loss


class Match:
    """Both sides on the same batches: ours takes the next steps, then a peer repeats them."""

    def __init__(self, case: str, precision: Precision, folder: Path) -> None:
        setup = record(folder / "store", case)
        update = {"model": MODEL.model_copy(update={"precision": precision})}
        self.ours = SequenceFitter(SequenceSetup(**{**vars(setup), "config": setup.config.model_copy(update=update)}))
        self.peers: dict[Peer, Padded] = {
            "bfloat16": Padded(self.ours, "bfloat16"),
            "float32": Padded(self.ours, "float32"),
            "bucketed": Padded(self.ours, "bfloat16", by_part=True),
        }
        self.data = EpisodeStore(setup.store)
        self.batches: list[list[Demonstrations]] = []
        self.bucketed: list[list[Demonstrations]] = []
        self.losses: list[float] = []
        self.fills: list[float] = []
        self.tokens = 0

    def fill(self) -> float:
        """Real tokens of the last batches, as a share of all tokens with padding."""
        own = [lengths(batch, self.ours.model.tokens_per_step) for batch in self.batches]
        return sum(map(sum, own)) / sum(max(each) * len(each) for each in own)

    def warm_up(self) -> None:
        """Some sequences forward and backward on each side: in the first call, libraries set up lasting state."""
        part = self.ours.data.read(self.ours.batch(self.ours.step)[:ROWS])
        for model in (self.ours.model, *(peer.model for peer in self.peers.values())):
            model.loss(part)["loss"].backward()  # type: ignore[no-untyped-call]

    def play_ours(self, steps: int = STEPS) -> float:
        """Tokens a second."""
        step, fitter = self.ours.step, self.ours
        self.batches, self.bucketed, self.tokens = [], [], 0
        for fitter.step in range(step, step + steps):
            rows = fitter.batch(fitter.step)
            parts = [fitter.data.read(rows[begin : begin + ROWS]) for begin in range(0, len(rows), ROWS)]
            self.batches.append(parts)
            own = lengths(parts, fitter.model.tokens_per_step)
            self.bucketed.append([fitter.data.read(part) for part in buckets(rows, own, BUCKET)])
            self.tokens += sum(own)
        fitter.step = step
        self.fills.append(self.fill())
        begun = time.process_time()
        found = fitter.fit(steps)
        seconds = time.process_time() - begun
        self.losses = [loss for loss, _, _ in found]
        return self.tokens / seconds

    def play(self, peer: Peer) -> float:
        """Tokens a second of the peer.

        Raises:
            DifferentOutputs: its losses differ from ours.
        """
        begun = time.process_time()
        batches = self.bucketed if peer == "bucketed" else self.batches
        losses = [float(self.peers[peer].learn(batch)) for batch in batches]
        seconds = time.process_time() - begun
        apart = APART["float32" if peer == self.ours.config.model.precision == "float32" else "bfloat16"]
        for step, (own, theirs) in enumerate(zip(self.losses, losses, strict=True)):
            if not abs(own - theirs) <= apart * abs(theirs):
                raise DifferentOutputs(f"loss of step {step}: ours is {own}, the peer's in {peer} {theirs}")
        return self.tokens / seconds


def run(options: Options) -> Report:
    report = Report()
    for case in CASES:
        if not options.wants(case):
            continue
        names: dict[str, Peer] = {"padded_bf16": "bfloat16", "padded_fp32": "float32"}
        if case == "half_filled":  # equal lengths have nothing to sort
            names["bucketed_bf16"] = "bucketed"
        peers = tuple(names)
        if not has_bfloat16() or (options.quick and case == "filled"):
            reason = "left out of --quick" if has_bfloat16() else "this processor does not multiply bfloat16 numbers"
            report.skips += [Skip("sequence", case, "tokens", peer, reason) for peer in peers]
            continue
        with tempfile.TemporaryDirectory() as folder:
            match = Match(case, "bfloat16", Path(folder))
            about = Case("sequence", case, "tokens", frozenset(peers if case == "half_filled" else ()))
            match.warm_up()
            turns = {name: partial(match.play, peer) for name, peer in names.items()}
            found = compare(about, match.play_ours, turns, options)
            note = f"{np.mean(match.fills):.2f} of the padded tokens are real"
            report.add(Report([dataclasses.replace(row, note=note) for row in found.rows], found.skips))
    return report
