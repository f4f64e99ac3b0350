"""Keys by a transformer that was fitted to the histories: the mean of its hidden states over the last steps.

    whole episodes  ──one pass──> hidden states ──Pooled.of──> vectors
    while acting    ──a step, with a ring of the last ones──> hidden states ──Pooled──> vectors

The embedding model of Schmied et al. 2024, arXiv 2410.07071, section 3: a decision transformer that was fitted before.
The limit is its arithmetic for every step, including steps without a key or query.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from learner.context.keys import Pooled
from learner.models.sequence.history_steps import StepInputs
from learner.models.sequence.history_transformer import HistoryTransformer


class Fitted:
    """An `Encoder`.

    Args:
        model: whose hidden states are pooled.
        pool: steps of a mean, if there are as many.
    """

    def __init__(self, model: HistoryTransformer, pool: int) -> None:
        self._model, self._pool = model.eval(), pool
        self.width = model.config.width

    @torch.no_grad()
    def of(self, steps: StepInputs, lengths: Sequence[int], at: Tensor) -> Tensor:
        """Vectors [K, width] of steps `at` of whole episodes."""
        return Pooled.of(self._model(steps, lengths), lengths, self._pool, at)

    def stream(self, rows: int) -> FittedStream:
        """A stream of rows that have not begun."""
        return FittedStream(self._model, rows, self._pool)


class FittedStream:
    """A `Stream`."""

    def __init__(self, model: HistoryTransformer, rows: int, pool: int) -> None:
        self._model, self._ring = model, model.decoder.ring(rows)
        self._pooled = Pooled(rows, model.config.width, pool, model.device)

    def restart(self, rows: Tensor) -> None:
        """Rows begin a new episode."""
        self._ring.restart(rows)
        self._pooled.restart(rows)

    @torch.no_grad()
    def add(self, steps: StepInputs) -> None:
        """The next step of each row."""
        self._pooled.add(self._model.step(steps, self._ring))

    def vectors(self, rows: Tensor) -> Tensor:
        """Vectors of the last steps of some rows, [R, width]."""
        return self._pooled.mean()[rows]
