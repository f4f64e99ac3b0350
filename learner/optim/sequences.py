"""Supervised learning from whole sequences of different lengths: the common part of fitting sequence models.

    batch of sequences ──> pieces of about `tokens` tokens ──> losses, summed over steps ──> gradients add up

The loss is a mean over the steps of the batch, whichever rank computes them and in whatever pieces. For each sequence
and step, some numbers in [0, 1) fix the random choices. Dropout in step k is a function of (seed, k, rank).

The limit is the model's arithmetic.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.optim.device import read
from learner.optim.supervised import Supervised

VALIDATED = 512
"""Number of held-out sequences per validation, always the same ones."""

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


class SequenceSupervised(Supervised):
    """One rank. Its accuracy is the share of steps in which the model's first choice was the recorded action.

    Attributes:
        seed: of random choices and dropout. Set before the first step.
    """

    PARTS: ClassVar[Sequence[str]] = ()
    """Further sums of `losses` that a validation reports."""
    DRAWN: ClassVar[int] = 1
    """Random numbers per sequence."""
    seed: int

    @abstractmethod
    def steps_of(self, rows: Integers, uniform: Floats | None) -> Integers:
        """Number of steps learned from each of these sequences [B], int64 [B]; `uniform` as below."""

    @abstractmethod
    def losses(self, rows: Integers, uniform: Floats | None) -> Mapping[str, Tensor]:
        """Sums over all steps of these sequences [B]: `loss`, `hits`, the number of correct first choices, nan if
        nothing is chosen, and `PARTS`.

        uniform: random numbers in [0, 1), [B, DRAWN]; None in validation, which is not random.
        """

    def cost_of(self, rows: Integers, uniform: Floats | None) -> Integers:
        """Tokens that these sequences [B] take, int64 [B]."""
        return self.steps_of(rows, uniform)

    def apart(self, rows: Integers) -> list[NDArray[np.intp]]:
        """Places among these sequences [B] of those that go into pieces of their own."""
        return [np.arange(len(rows))]

    def learn(self, batch: Integers) -> tuple[Any, Any]:
        uniform = np.random.default_rng([self.seed, 1, self.step]).random((len(batch), self.DRAWN))
        # So the mean over ranks is the sum over the batch, divided by its steps.
        share = self.group.size / int(self.steps_of(batch, uniform).sum())
        drops = np.random.SeedSequence([self.seed, self.step, self.group.rank])
        torch.manual_seed(int(drops.generate_state(1)[0]))
        self.model.train()
        loss = hits = self.nothing
        own = slice(self.group.rank, None, self.group.size)
        for rows, drawn in self._pieces(batch[own], uniform[own]):
            found = self.losses(rows, drawn)
            part = found["loss"] * share
            part.backward()  # type: ignore[no-untyped-call]
            loss = loss + self.number(part)
            hits = hits + self.number(found["hits"]) * share
        return loss, hits

    def validate(self) -> dict[str, float]:
        """Means over the steps of held-out sequences; empty if there are none. Means that are nan are left out."""
        if not len(self.validation):
            return {}
        self.model.eval()
        sums: dict[str, Any] = dict.fromkeys(("loss", *self.PARTS, "hits"), self.nothing)
        with torch.no_grad():
            for rows, _ in self._pieces(self.validation[self.group.rank :: self.group.size]):
                for name, total in self.losses(rows, None).items():
                    sums[name] = sums[name] + self.number(total)
        steps = self.steps_of(self.validation, None).sum() / self.group.size
        totals = list(sums.values()) if self.adam.on_host else read(torch.stack(list(sums.values()))).tolist()
        means = [total / steps for total in self.group.mean(totals)]
        found = {name: float(mean) for name, mean in zip(sums, means, strict=True) if not np.isnan(mean)}
        return {f"fit/validation_{'accuracy' if name == 'hits' else name}": mean for name, mean in found.items()}

    def _pieces(self, rows: Integers, uniform: Floats | None = None) -> Iterator[tuple[Integers, Floats | None]]:
        """Groups of sequences that are computed together: about `tokens` tokens, at least one sequence."""
        for kind in self.apart(rows):
            cost = self.cost_of(rows[kind], None if uniform is None else uniform[kind])
            piece = np.maximum(0, np.cumsum(cost) - 1) // self.config.tokens
            for each in np.unique(piece):
                own = kind[piece == each]
                yield rows[own], None if uniform is None else uniform[own]
