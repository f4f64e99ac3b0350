"""MAP-Elites (Mouret and Clune 2015, arXiv 1504.04909): the best behaviour of each cell of a grid over descriptors.

    add(ids, descriptors, quality)  ──> the elites among them
    coverage, curve                     how much of the grid is filled, and when

A grid holds ids only. It is not saved: the behaviours that were elites once are kept in an `Archive`, in the order in
which they came, and adding them again gives the same grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOBODY = -1


class Grid:
    """Cells of equal size between bounds.

    Args:
        low, high: [D] bounds of the descriptor. What lies outside belongs to the nearest cell, and is counted.
        cells: [D], how many there are along each dimension.

    Attributes:
        elite: int64 [prod(cells)], the id of each cell's elite or NOBODY; cells in C order.
        quality: float64 [prod(cells)], of the elites; -inf where there is none.
        outside: how many descriptors lay outside.
        curve: (behaviours added so far, cells filled) after each `add`.

    Raises:
        ValueError: bounds and cells are not of one length, or are empty.
    """

    def __init__(self, low: Sequence[float], high: Sequence[float], cells: Sequence[int]) -> None:
        self.low, self.high = np.array(low, np.float64), np.array(high, np.float64)
        self.cells = np.array(cells, np.int64)
        if not (self.low.shape == self.high.shape == self.cells.shape == (len(cells),)):
            raise ValueError(f"a grid needs as many bounds as cells: {len(low)}, {len(high)} and {len(cells)} differ")
        if not len(cells) or not (self.high > self.low).all() or not (self.cells >= 1).all():
            raise ValueError(f"a grid from {low} to {high} with {cells} cells is empty: a bound must exceed the other")
        self.elite = np.full(int(self.cells.prod()), NOBODY)
        self.quality = np.full(len(self.elite), -np.inf)
        self.outside = self.added = 0
        self.curve: list[tuple[int, int]] = []

    @property
    def filled(self) -> int:
        """Cells that have an elite."""
        return int((self.elite != NOBODY).sum())

    @property
    def coverage(self) -> float:
        """Their share of all."""
        return self.filled / len(self.elite)

    def cell(self, descriptors: NDArray[Any]) -> NDArray[np.int64]:
        """The cell of each descriptor [M, D], int64 [M]. The upper bound belongs to the last one."""
        place = np.floor((np.asarray(descriptors, np.float64) - self.low) / (self.high - self.low) * self.cells)
        stride = np.append(np.cumprod(self.cells[:0:-1])[::-1], 1)
        cell: NDArray[np.int64] = np.clip(place, 0, self.cells - 1).astype(np.int64) @ stride
        return cell

    def add(
        self, ids: NDArray[np.int64], descriptors: NDArray[Any], quality: NDArray[Any] | None = None
    ) -> NDArray[np.bool_]:
        """Add M behaviours, one after the other. Returns which of them are elites now [M].

        ids: [M], none negative.
        descriptors: [M, D], finite.
        quality: [M], more is better, finite; without it all are equal. An elite gives way to a better one only.

        Raises:
            ValueError: a descriptor or a quality is not finite.
        """
        descriptors = np.asarray(descriptors, np.float64).reshape(len(ids), len(self.cells))
        worth = np.zeros(len(ids)) if quality is None else np.asarray(quality, np.float64)
        if not (np.isfinite(descriptors).all() and np.isfinite(worth).all()):
            raise ValueError("a descriptor or a quality is not finite: leave out behaviours that have none")
        cell = self.cell(descriptors)
        order = np.lexsort((np.arange(len(ids)), -worth, cell))  # in each cell the best, the earliest of equals, first
        _, first = np.unique(cell[order], return_index=True)
        best = order[first]
        best = best[worth[best] > self.quality[cell[best]]]
        self.elite[cell[best]], self.quality[cell[best]] = ids[best], worth[best]
        self.outside += int(((descriptors < self.low) | (descriptors > self.high)).any(1).sum())
        self.added += len(ids)
        self.curve.append((self.added, self.filled))
        became = np.zeros(len(ids), np.bool_)
        became[best] = True
        return became
