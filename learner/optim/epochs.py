"""What each step of supervised learning learns from: a function of the step alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Epochs:
    """Rows in an order of their own each epoch, cut into batches of about a size, each row once an epoch.

    Args:
        rows: numbers of what is learned from, [N], at least one.
        batch: rows of a batch; as many batches as come nearest to it share the rows evenly.
        seed: of the orders; the epoch is added to it.
    """

    def __init__(self, rows: NDArray[np.int64], batch: int, seed: Sequence[int]) -> None:
        self._rows, self._seed = rows, [*seed]
        self._parts = max(1, round(len(rows) / batch))
        self._epoch, self._order = -1, rows

    def batch(self, step: int) -> NDArray[np.int64]:
        """The rows of step 0, 1, ..."""
        epoch, part = divmod(step, self._parts)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, np.random.default_rng([*self._seed, epoch]).permutation(self._rows)
        n = len(self._rows)
        return self._order[part * n // self._parts : (part + 1) * n // self._parts]
