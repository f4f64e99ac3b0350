"""The best behaviour in each cell (MAP-Elites, Mouret and Clune 2015, arXiv 1504.04909).

    behaviours ── descriptor, where they are halfway ──> a cell each ──> the one of the highest quality stays

With cells for the route as well as for the descriptor, several routes to one place are kept.

Limit: all elites are copied when a cell is filled for the first time: 20 MB for 16,000 policies, 5 ms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learner.checkpoint import Arrays

MOST = 10**7
"""Largest number of cells."""


class Elites:
    """The elites, one row each, in the order in which their cells were filled.

    Args:
        cells: along each axis of the descriptor.
        halfway: along each side of the world, for the position halfway; 1 does not distinguish routes.
        bounds: [D, 2], the lowest and the highest value of each number of a descriptor.
        size: side of the world in world units.
        parameters: of a policy.

    Values beyond bounds or world belong to the outermost cells.

    Attributes:
        cell: int64 [E], of each.
        id: int64 [E].
        descriptor: float64 [E, D].
        quality: float32 [E].
        effort: float32 [E].
        weights: float32 [E, P].
    """

    def __init__(self, cells: int, halfway: int, bounds: NDArray[np.float64], size: float, parameters: int) -> None:
        self.cells, self.halfway, self.bounds, self.size = cells, halfway, bounds, size
        self._row = np.full(cells ** len(bounds) * halfway**2, -1, np.int32)  # of each cell
        self.cell, self.id = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.descriptor = np.zeros((0, len(bounds)))
        self.quality, self.effort = np.zeros(0, np.float32), np.zeros(0, np.float32)
        self.weights = np.zeros((0, parameters), np.float32)

    def __len__(self) -> int:
        return len(self.cell)

    def add(
        self, ids: NDArray[np.int64], weights: NDArray[np.float32], descriptor: NDArray[np.float64],
        halfway: NDArray[np.float64], quality: NDArray[np.float32], effort: NDArray[np.float32],
    ) -> None:  # fmt: skip
        """Let behaviours compete for their cells. Among equals, the one already there stays, then the smallest id.

        ids: [n]; weights: [n, P]; descriptor: [n, D]; halfway: [n, 2], world units; quality and effort: [n].
        """
        given: Arrays = {"id": ids, "descriptor": descriptor, "quality": quality, "effort": effort, "weights": weights}
        cell = self._cell(descriptor, halfway)
        order = np.lexsort((ids, -quality, cell))
        best = order[np.unique(cell[order], return_index=True)[1]]
        row = self._row[cell[best]]
        new = best[row < 0]
        rivals, row = best[row >= 0], row[row >= 0]
        better = quality[rivals] > self.quality[row]
        rivals, row = rivals[better], row[better]
        for name, values in given.items():
            getattr(self, name)[row] = values[rivals]
        if len(new):
            self._row[cell[new]] = len(self) + np.arange(len(new))
            self.cell = np.append(self.cell, cell[new])
            for name, values in given.items():
                setattr(self, name, np.concatenate([getattr(self, name), values[new]]))

    def gains(
        self, descriptor: NDArray[np.float64], halfway: NDArray[np.float64], quality: NDArray[np.float32]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """What each of n behaviours would gain if it came alone, as pyribs tells emitters: status int32 [n], 2 in an
        empty cell, 1 better than the elite there, otherwise 0; and value float64 [n], the quality in an empty cell,
        otherwise its difference to the elite's."""
        row = self._row[self._cell(descriptor, halfway)]
        empty = row < 0
        value = quality.astype(np.float64)
        value[~empty] -= self.quality[row[~empty]]
        status: NDArray[np.int32] = np.where(empty, 2, value > 0).astype(np.int32)
        return status, value

    def _cell(self, descriptor: NDArray[np.float64], halfway: NDArray[np.float64]) -> NDArray[np.int64]:
        own = cell_of(descriptor, self.cells, self.bounds[:, 1], self.bounds[:, 0])
        number: NDArray[np.int64] = cell_of(halfway, self.halfway, self.size) * self.cells ** len(self.bounds) + own
        return number

    def arrays(self) -> Arrays:
        """All elites, as arrays."""
        return {name: getattr(self, name).copy() for name in _SAVED}

    def restore(self, arrays: Arrays) -> None:
        """Restore the result of `arrays`."""
        for name in _SAVED:
            setattr(self, name, arrays[name].copy())
        self._row[:] = -1
        self._row[self.cell] = np.arange(len(self))


_SAVED = ("cell", "id", "descriptor", "quality", "effort", "weights")


def cell_of(
    values: NDArray[np.float64],
    cells: int,
    high: float | NDArray[np.float64],
    low: float | NDArray[np.float64] = 0.0,
) -> NDArray[np.int64]:
    """The number of the cell in which each of [n, D] lies, where every axis from `low` to `high` has `cells` cells. The
    first axis counts fastest: in a square house, cells are numbered row by row."""
    at = ((values - low) * (cells / (high - low))).astype(np.int64).clip(0, cells - 1)
    number: NDArray[np.int64] = at @ cells ** np.arange(values.shape[1])
    return number
