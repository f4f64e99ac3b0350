"""Coverage, QD score and best quality: what a collection of behaviours is worth, in the field's own numbers.

The descriptor space is cut into equal cells; each cell counts its best behaviour alone.

    coverage       filled cells / cells that a behaviour could reach (`Descriptor.reachable`), 0 to 1
    QD score       sum over filled cells of (best quality there - the lowest quality that there can be), at least 0
    best quality   the highest quality of all

Pugh, Soros and Stanley 2016 ("Quality Diversity: A New Frontier for Evolutionary Computation", Frontiers in Robotics
and AI 3:40). Cells are those of the descriptor, not of `method.search.cells`: so novelty archives and grids of any
resolution are measured alike. Scores of other descriptors or qualities are not comparable.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learner.search.elites import cell_of


class Scores(NamedTuple):
    """Of a collection of behaviours."""

    coverage: float
    qd_score: float
    best_quality: float | None  # None without behaviours


class Tally:
    """The best quality in each cell, of all behaviours that were added.

    Args:
        cells: along each of the D axes.
        bounds: [D, 2], of the descriptor.
        reachable: bool [cells ** D], at least one. Other cells do not count: nothing true lies there.
        lowest: quality from which QD scores count.

    Attributes:
        best: float64 [cells ** D]; -inf in empty cells.
        count: int64 [cells ** D], behaviours.
    """

    def __init__(self, cells: int, bounds: NDArray[np.float64], reachable: NDArray[np.bool_], lowest: float) -> None:
        self.cells, self.bounds, self.reachable, self.lowest = cells, bounds, reachable, lowest
        self.best = np.full(len(reachable), -np.inf)
        self.count = np.zeros(len(reachable), np.int64)

    def add(self, descriptors: NDArray[np.float64], quality: NDArray[Any]) -> None:
        """Add behaviours: [n, D] and [n]."""
        cell = cell_of(descriptors, self.cells, self.bounds[:, 1], self.bounds[:, 0])
        np.maximum.at(self.best, cell, quality)
        np.add.at(self.count, cell, 1)

    def scores(self) -> Scores:
        """Of what was added so far."""
        filled = np.isfinite(self.best) & self.reachable
        best = self.best[filled]
        return Scores(
            coverage=float(filled.sum() / self.reachable.sum()),
            qd_score=float((best - self.lowest).sum()),
            best_quality=float(best.max()) + 0.0 if len(best) else None,  # not -0
        )
