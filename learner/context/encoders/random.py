"""Keys without any model: a random projection of the last steps, and its mean.

    steps ──merged──> x [S, size] ──P──> [S, width] ──Pooled──> vectors

Random directions preserve cosines, as nearly as the width allows (Johnson and Lindenstrauss 1984). So two keys are
similar if the same was seen and done equally often, in whatever order: a control for encoders that know more.

The limit is the product, size * width operations per step.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from learner.context.config import RetrieveConfig, SequenceConfig
from learner.context.encoders.merged import Merged, projection
from learner.context.keys import Pooled
from learner.models.sequence.history_steps import HistoryShape, StepInputs


class Random:
    """An `Encoder` of the width of the transformer.

    Args:
        shape: the fields of a step, and whether it includes the return to go.
        sequence: width, and bins of the return to go.
        retrieve: `pool`, and the seed of the projection.
        largest: return to go.
    """

    def __init__(self, shape: HistoryShape, sequence: SequenceConfig, retrieve: RetrieveConfig, largest: float) -> None:
        self._merged, self._pool = Merged(shape, sequence.bins, largest, sequence.reward_scale), retrieve.pool
        self._projection = projection(self._merged.size, sequence.width, retrieve.projection).T.double()
        self.width = sequence.width

    def of(self, steps: StepInputs, lengths: Sequence[int], at: Tensor) -> Tensor:
        """Vectors [K, width] of steps `at` of whole episodes."""
        return Pooled.of(self.states(steps), lengths, self._pool, at)

    def stream(self, rows: int) -> RandomStream:
        """A stream of rows that have not begun."""
        return RandomStream(self, rows, self._pool)

    def states(self, steps: StepInputs) -> Tensor:
        """The vectors to pool, [S, width]; each is independent of the batch: summed in float64, then rounded."""
        return (self._merged(steps).double() @ self._projection).float()


class RandomStream:
    """A `Stream`."""

    def __init__(self, encoder: Random, rows: int, pool: int) -> None:
        self._encoder, self._pooled = encoder, Pooled(rows, encoder.width, pool)

    def restart(self, rows: Tensor) -> None:
        """Rows begin a new episode."""
        self._pooled.restart(rows)

    def add(self, steps: StepInputs) -> None:
        """The next step of each row."""
        self._pooled.add(self._encoder.states(steps))

    def vectors(self, rows: Tensor) -> Tensor:
        """Vectors of the last steps of some rows, [R, width]."""
        return self._pooled.mean()[rows]
