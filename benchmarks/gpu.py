"""gpu: what learns and acts on a GPU, as a share of what the chip could do, and against the usual loops.

Without a GPU every row says so. Nothing here starts Ray or needs a model from the network: weights are random, of
published shapes, and what is learned from is drawn. One process, wall time, the GPU waited for on both sides.

    sequence        training the transformer of texts, targets and histories: width 1,024, 12 blocks (151 M weights),
                    128 episodes of 1 to 768 steps a gradient step, store and optimiser included
    llm_update      a minibatch of PPO on flan-t5-large's shape (783 M parameters): 256 prompts of 100 to 300 tokens,
                    six actions; forward, backward, clipping and Adam; float32 weights, bfloat16 arithmetic
    .../checkpointing   the same, keeping only the borders between blocks for the backward pass
    llm_acting      log-probabilities of the six actions, and the state of the value, for 1,024 such prompts

`length_sorted` is a plain PyTorch or Hugging Face loop at its best: sorted by length, padded inside each batch only,
the batch size that is fastest here, bfloat16, fused attention, fused AdamW. Losses or scores of both sides are compared in
each round. `matmul` is one product of two square matrices after the other: what this chip reaches where nothing else is
to be done.

`mfu` is model FLOP utilisation by `learner/models/flops.py`: operations that the model needs, by the chip's peak. They
are 6 for each weight of a matrix and token that passes it, and attention. Tokens are real ones: padding counts for
nothing, nor does what is computed again. Of a prompt count the encoder for its tokens and the decoder for the inner
nodes of the tree of actions; the peer gets the same number, though it computes more.
"""

from __future__ import annotations

import copy
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.measure import Case, DifferentOutputs, Options, PeerFailed, Report, Skip, compare
from benchmarks.peers import large_t5
from benchmarks.peers.large_t5 import Shape
from benchmarks.scoring import check
from benchmarks.sequence import Padded, Precision, lengths, record
from learner.algorithms.ppo.losses import Loss, Steps
from learner.behaviours.imitation import SequenceConfig, SequenceFitter, SequenceSetup
from learner.models import flops
from learner.models.sequence.behaviour_transformer import BehaviourConfig
from learner.optim.adam import Adam, descend, side_by_side
from learner.optim.collective import Group
from learner.optim.precision import arithmetic
from llm_service.scoring.scorer import Question, Scorer
from llm_service.scoring.trie import grow

METRICS = {"sequence": "mfu", "llm_update": "mfu", "llm_update/checkpointing": "mfu", "llm_acting": "states"}
CASES = tuple(METRICS)
QUICK_SECONDS = 240.0
APART = 3e-2
"""How far losses and scores may be apart, as a share: both sides compute in bfloat16, each in its own order."""
GRADIENT = 0.1
"""How far the gradients of all weights may be apart, as a share of their norm."""


SEQUENCE = BehaviourConfig(width=1024, layers=12, heads=16, dropout=0.0, precision="bfloat16")
LARGE = Shape()


@dataclasses.dataclass(frozen=True)
class Size:
    """How much is computed. The default is for a GPU; tests have a smaller one."""

    sequence: BehaviourConfig = SEQUENCE
    episodes: int = 384
    batch: int = 128
    longest: tuple[int, int] = (48, 768)
    tokens: int = 65_536
    model: Shape = LARGE
    learned: int = 256
    acted: int = 1024
    square: int = 8192
    batches: tuple[int, ...] = (8192, 16_384, 32_768)


def seconds(device: torch.device, work: Callable[[], object]) -> float:
    """Wall time of some work, the GPU's share of it included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun


class Chip:
    """A device, the most that it could do, and what products of matrices reach there."""

    def __init__(self, device: torch.device, square: int) -> None:
        self.device = device
        self.name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        self.square = torch.randn(square, square, device=device, dtype=torch.bfloat16)
        self._product()
        self.peak = flops.peak(self.name) or self.reached()

    def _product(self, times: int = 10) -> None:
        for _ in range(times):
            self.square @ self.square

    def reached(self, times: int = 10) -> float:
        """Operations a second of square products."""
        return times * 2 * len(self.square) ** 3 / seconds(self.device, lambda: self._product(times))

    def matmul(self) -> float:
        """The same as a share of the peak."""
        return self.reached() / self.peak

    def memory(self) -> str:
        """What was the most since it was asked last."""
        if self.device.type != "cuda":
            return "memory not measured"
        most = torch.cuda.max_memory_allocated(self.device) / 2**30
        torch.cuda.reset_peak_memory_stats(self.device)
        return f"{most:.1f} GiB"


def fastest(sizes: Iterable[int], took: Callable[[int], float]) -> int:
    """The size that takes least time after a first try. One for which memory is short does not count.

    Raises:
        PeerFailed: memory is short for all of them.
    """
    found: dict[int, float] = {}
    for size in sizes:
        try:
            took(size)
            found[size] = took(size)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
    if not found:
        raise PeerFailed("memory is short for every batch size")
    return min(found, key=lambda size: found[size])


# ---- the sequence model ----------------------------------------------------------------------------------------------


class Sequences:
    """Both sides on the same batches: ours takes the next step, the peer the same after it."""

    def __init__(self, chip: Chip, size: Size, folder: Path) -> None:
        model = size.sequence.model_copy(update={"device": chip.device.type})
        given = {"stride": 1, "batch": size.batch, "tokens": size.tokens, "warmup": 0, "steps": 10_000, "model": model}
        setup: SequenceSetup = record(
            folder, "half_filled", SequenceConfig(**given, learning_rate=1e-4), size.episodes, size.longest
        )
        self.chip, self.ours = chip, SequenceFitter(setup)
        precision: Precision = "bfloat16" if self.ours.model.in_half else "float32"
        self.peer, trial = (Padded(self.ours, precision, by_part=True) for _ in range(2))
        self.rows = np.zeros(0, np.int64)
        self.tokens, self.operations, self.loss, self.together, self.note = 0, 0, 0.0, 0, ""
        self.play_ours()  # what is done once is not timed
        self.together = fastest([8, 16, 32, 64], lambda n: seconds(chip.device, lambda: self._peer(n, trial)))
        self.play_peer()

    def play_ours(self) -> float:
        """The share of the peak."""
        rows = self.ours.batch(self.ours.step)
        data = self.ours.data
        self.rows = rows[np.argsort(data.steps[rows])]
        own = lengths([data.read(rows)])
        blocks = self.ours.model.decoder.blocks
        width, seen = self.ours.model.config.width, ((n, (n + 1) // 2) for n in own)
        self.tokens = sum(own)
        once = 2 * self.tokens * flops.weights(*blocks) + flops.attention(seen, len(blocks), width)
        self.operations = 3 * once
        found: list[list[float]] = []
        took = seconds(self.chip.device, lambda: found.extend(self.ours.fit(1)))
        self.loss = found[0][0]
        share = self.operations / took / self.chip.peak
        self.note = (
            f"{self.tokens / took:,.0f} tokens a second, {self.chip.memory()}; the peer takes {self.together} at once"
        )
        return share

    def play_peer(self) -> float:
        """
        Raises:
            DifferentOutputs: it learned otherwise.
        """
        losses: list[float] = []
        took = seconds(self.chip.device, lambda: losses.append(self._peer(self.together, self.peer)))
        if not abs(self.loss - losses[0]) <= APART * abs(losses[0]):
            raise DifferentOutputs(f"loss of a step: ours is {self.loss}, the peer's {losses[0]}")
        return self.operations / took / self.chip.peak

    def _peer(self, together: int, peer: Padded) -> float:
        parts = [self.rows[begin : begin + together] for begin in range(0, len(self.rows), together)]
        return peer.learn([self.ours.data.read(part) for part in parts])


# ---- the language model ----------------------------------------------------------------------------------------------


def operations(model: Any, questions: Sequence[Question]) -> int:
    """Operations forward: of the encoder for the tokens of prompts, of decoder and head for the nodes of actions."""
    told = [len(prompt) for prompt, _ in questions]
    nodes = [len(grow(found).tokens) for _, found in questions]
    encoder, decoder, width = (
        model.encoder.block,
        model.decoder.block,
        model.encoder.block[0].layer[0].SelfAttention.inner_dim,
    )
    products = 2 * sum(told) * flops.weights(encoder) + 2 * sum(nodes) * flops.weights(decoder, model.lm_head)
    seen = flops.attention(((n, n) for n in told), len(encoder), width)
    return (
        products + seen + flops.attention(((n, m + n) for m, n in zip(told, nodes, strict=True)), len(decoder), width)
    )


def experience(n: int, seed: int) -> Steps:
    """What PPO's loss needs to know of n steps, drawn."""
    random = np.random.default_rng(seed)
    target, advantage, value = (random.normal(0, scale, n).astype(np.float32) for scale in (1.0, 1.0, 0.1))
    log_prob = np.full(n, -np.log(len(large_t5.ACTIONS)), np.float32)
    return Steps(random.integers(0, len(large_t5.ACTIONS), n), log_prob, advantage, np.ones_like(target), value, target)


def backward(logits: torch.Tensor, value: torch.Tensor, steps: Steps, share: float) -> np.ndarray[Any, Any]:
    """Backward from PPO's closed-form loss of some steps, times their share of a minibatch. Returns its terms."""
    loss = Loss(clip=0.2, value_clip=0.2, value_coefficient=0.5, entropy_coefficient=0.01)
    said = [each.detach().float().cpu().numpy() for each in (logits, value)]
    d_logits, d_value, report = loss.gradient(said[0], said[1], steps)
    slopes = [
        torch.from_numpy(each * share).to(o.device, o.dtype) for each, o in ((d_logits, logits), (d_value, value))
    ]
    torch.autograd.backward([logits, value], slopes)
    return report[:3] * share


class Update:
    """A gradient step of PPO on one minibatch: both sides have weights of their own, which begin as equals."""

    def __init__(self, chip: Chip, size: Size, checkpointing: bool) -> None:
        self.chip, self.size = chip, size
        device, model = chip.device, large_t5.build(size.model, chip.device)
        head = nn.Sequential(nn.Linear(size.model.width, 128), nn.Tanh(), nn.Linear(128, 1)).to(device)
        self.peer, self.peer_head = copy.deepcopy(model).to(torch.bfloat16), copy.deepcopy(head)
        theirs = [*self.peer.parameters(), *self.peer_head.parameters()]
        self.optimiser = torch.optim.AdamW(theirs, lr=1e-7, weight_decay=0.0, fused=True)
        self.model, self.head = model, head
        if checkpointing:
            model.activation_checkpointing_enable()
            model.train()
        self.scorer = Scorer(model)
        flat, self.gradient = side_by_side([*model.parameters(), *head.parameters()])
        self.adam = Adam(flat)
        self.round, self.note, self.terms, self.tokens = 0, "", np.zeros(3), 0
        self._draw()
        chip.memory()
        self._ours()
        own = [p.grad.detach().bfloat16() for p in (*model.parameters(), *head.parameters())]
        self.together = fastest(size.batches, lambda tokens: seconds(device, lambda: self._peer(tokens)))
        self._compare(own, [p.grad for p in theirs])

    def _compare(self, ours: Sequence[Any], theirs: Sequence[Any]) -> None:
        pairs = list(zip(ours, theirs, strict=True))
        apart = sum(float((a.float() - b.float()).square().sum()) for a, b in pairs)
        length = sum(float(b.float().square().sum()) for _, b in pairs)
        self.apart = float(np.sqrt(apart / length))
        if not self.apart <= GRADIENT:
            raise DifferentOutputs(f"the gradient: ours is {self.apart:.1%} of its norm from the peer's")

    def _draw(self) -> None:
        self.round += 1
        self.questions = large_t5.draw(self.size.learned, self.size.model.vocabulary, self.round)
        self.steps = experience(self.size.learned, self.round)

    def _ours(self) -> None:
        self.gradient.zero_()
        self.terms = np.zeros(3)
        batches = self.scorer.micro_batches(self.questions)
        while True:
            with arithmetic(True, self.chip.device.type):
                batch = next(batches, None)
            if batch is None:
                break
            rows, found = batch
            values = self.head(found.states.float()).squeeze(-1)
            some, share = self.steps.at(np.array(rows)), len(rows) / len(self.questions)
            self.terms += backward(torch.stack(found.scores), values, some, share)
        self.norm = descend(self.adam, [self.gradient], Group(), 0.5, 1e-7)[0]

    def _peer(self, tokens: int) -> np.ndarray[Any, Any]:
        self.optimiser.zero_grad(set_to_none=True)
        terms = np.zeros(3)
        for rows in large_t5.batches(self.questions, tokens):
            scores, states = large_t5.answer(self.peer, [self.questions[i] for i in rows])
            values = self.peer_head(states.float()).squeeze(-1)
            terms += backward(scores, values, self.steps.at(np.array(rows)), len(rows) / len(self.questions))
        self.optimiser.step()
        return terms

    def play_ours(self) -> float:
        self._draw()
        needed, told = 3 * operations(self.model, self.questions), sum(len(prompt) for prompt, _ in self.questions)
        took = seconds(self.chip.device, self._ours)
        self.note = (
            f"{told / took:,.0f} prompt tokens a second, {self.chip.memory()} with the peer's weights; gradients "
        )
        self.note += f"{self.apart:.1%} apart; the peer takes {self.together:,} tokens at once"
        self.needed = needed
        return needed / took / self.chip.peak

    def play_peer(self) -> float:
        found: list[Any] = []
        took = seconds(self.chip.device, lambda: found.append(self._peer(self.together)))
        check(self.terms, found[0], APART)
        return self.needed / took / self.chip.peak


class Acting:
    """Scores of the actions: ours with the learner's float32 weights, the peer with bfloat16 ones."""

    def __init__(self, chip: Chip, size: Size) -> None:
        self.chip, self.size, self.round, self.note = chip, size, 0, ""
        self.model = large_t5.build(size.model, chip.device)
        self.peer = copy.deepcopy(self.model).to(torch.bfloat16)
        self.scorer = Scorer(self.model, remember=0)
        self.play_ours()
        self.together = fastest(size.batches, lambda tokens: seconds(chip.device, lambda: self._peer(tokens)))

    @torch.no_grad()
    def play_ours(self) -> float:
        """States a second."""
        self.round += 1
        self.questions = large_t5.draw(self.size.acted, self.size.model.vocabulary, self.round)
        found: list[Any] = []

        def act() -> None:
            with arithmetic(True, self.chip.device.type):
                found.append(torch.stack(self.scorer.score_tokens(self.questions).scores).cpu())

        took = seconds(self.chip.device, act)
        self.scores = found[0].double().numpy()
        share = operations(self.model, self.questions) / took / self.chip.peak
        self.note = f"{share:.1%} of the peak, {self.chip.memory()}"
        return len(self.questions) / took

    @torch.no_grad()
    def _peer(self, tokens: int) -> Any:
        scores = torch.zeros(len(self.questions), len(large_t5.ACTIONS))
        for rows in large_t5.batches(self.questions, tokens):
            scores[rows] = large_t5.answer(self.peer, [self.questions[i] for i in rows])[0].cpu()
        return scores

    def play_peer(self) -> float:
        found: list[Any] = []
        took = seconds(self.chip.device, lambda: found.append(self._peer(self.together)))
        check(self.scores, found[0].double().numpy(), APART)
        return len(self.questions) / took


# ---- the cases -------------------------------------------------------------------------------------------------------


def measure(case: str, chip: Chip, size: Size, options: Options) -> Report:
    """One case on a device, whichever it is."""
    about = Case("gpu", case, METRICS[case], frozenset({"length_sorted"} if "checkpointing" not in case else ()))
    with tempfile.TemporaryDirectory() as folder:
        match: Any
        if case == "sequence":
            match = Sequences(chip, size, Path(folder))
        elif case == "llm_acting":
            match = Acting(chip, size)
        else:
            match = Update(chip, size, case.endswith("checkpointing"))
        peers = {"length_sorted": match.play_peer}
        if about.metric == "mfu":
            peers["matmul"] = chip.matmul
        found = compare(about, match.play_ours, peers, options)
    note = f"{chip.name}: {match.note}"
    return Report([dataclasses.replace(row, note=note) for row in found.rows], found.skips)


def run(options: Options) -> Report:
    report, chip = Report(), None
    for case in filter(options.wants, CASES):
        if not torch.cuda.is_available():
            report.skips.append(Skip("gpu", case, METRICS[case], "length_sorted", "not run: no GPU"))
            continue
        chip = chip or Chip(torch.device("cuda"), Size().square)
        report.add(measure(case, chip, Size(), options))
        torch.cuda.empty_cache()
    return report
