"""fit: training a decoder on windows of equal length, batched, against attention window by window.

A batch is 128 windows of 50 places in a room with 100 cells, with the action at each place. The decoder has three
layers of width 128 and four heads. A training step is forward, backward and `AdamW(fused=True)`, in float32 on two
threads, in wall time. Both sides begin with the same weights and take the same batches.

    windows    tokens a second

In each round the losses of both sides are compared, step by step: they must be equal to a relative 1e-5.

Limit: the decoder's matrix products, which are the same on both sides. One call for each window costs more than its
arithmetic.
"""

from __future__ import annotations

import copy
import dataclasses
import time

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.measure import Case, DifferentOutputs, Options, Report, compare
from benchmarks.peers.per_sequence import PerSequenceDecoder
from learner.models.sequence.decoder import Decoder

CASES = ("windows",)
WINDOWS, LENGTH = 128, 50
WIDTH, LAYERS, HEADS = 128, 3, 4
CELLS, ACTIONS = 100, 5
STEPS = 4
"""Training steps of a round."""
THREADS = 2
APART = 1e-5
"""Relative tolerance of a step's losses."""


class Learner:
    """A decoder with the embedding and head that make it a policy, and its optimiser."""

    def __init__(self, embedding: nn.Embedding, decoder: nn.Module, head: nn.Linear) -> None:
        self.embedding, self.decoder, self.head = embedding, decoder, head
        parameters = [p for part in (embedding, decoder, head) for p in part.parameters()]
        self.optimiser = torch.optim.AdamW(parameters, lr=3e-4, fused=True)

    def learn(self, places: Tensor, actions: Tensor) -> float:
        """One training step on windows int64 [B, L]. Returns the loss."""
        self.optimiser.zero_grad(set_to_none=True)
        features = self.decoder(self.embedding(places.flatten()), [places.shape[1]] * len(places))
        loss = cross_entropy(self.head(features), actions.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return float(loss.detach())


class Match:
    """Both sides on the same batches: ours takes the next steps, then the peer repeats them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        parts = nn.Embedding(CELLS, WIDTH), Decoder(WIDTH, LAYERS, HEADS), nn.Linear(WIDTH, ACTIONS)
        embedding, decoder, head = copy.deepcopy(parts)
        self.ours, self.peer = Learner(*parts), Learner(embedding, PerSequenceDecoder(decoder), head)
        self.random = torch.Generator().manual_seed(1)
        self.batches: list[tuple[Tensor, Tensor]] = []
        self.losses: list[float] = []

    def play_ours(self) -> float:
        """Tokens a second."""
        shape = WINDOWS, LENGTH
        places = [torch.randint(CELLS, shape, generator=self.random) for _ in range(STEPS)]
        self.batches = [(each, each.cumsum(1) % ACTIONS) for each in places]  # actions depend on the past
        self.losses, speed = self._play(self.ours)
        return speed

    def play_peer(self) -> float:
        """Tokens a second of the peer.

        Raises:
            DifferentOutputs: its losses differ from ours.
        """
        losses, speed = self._play(self.peer)
        for step, (own, theirs) in enumerate(zip(self.losses, losses, strict=True)):
            if not abs(own - theirs) <= APART * abs(theirs):
                raise DifferentOutputs(f"loss of step {step}: ours is {own}, the peer's {theirs}")
        return speed

    def _play(self, learner: Learner) -> tuple[list[float], float]:
        begun = time.perf_counter()
        losses = [learner.learn(*batch) for batch in self.batches]
        return losses, sum(places.numel() for places, _ in self.batches) / (time.perf_counter() - begun)


def run(options: Options) -> Report:
    if not options.wants("windows"):
        return Report()
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        match = Match()
        match.play_ours(), match.play_peer()  # in the first call, libraries set up lasting state
        about = Case("fit", "windows", "tokens", frozenset({"per_sequence"}))
        found = compare(about, match.play_ours, {"per_sequence": match.play_peer}, options)
    finally:
        torch.set_num_threads(before)
    return Report([dataclasses.replace(row, threads=THREADS) for row in found.rows], found.skips)
