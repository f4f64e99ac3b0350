"""Exact nearest neighbours among a growing set of points, without ever rebuilding the whole index.

    insert(points [M, D])         each goes down to its leaf; a full leaf is split at the median
    mean_distance(queries, k)     down to the query's leaf, then up again wherever something nearer may be
    nearest(queries, k)           the same, with the points' numbers

A k-d tree (Friedman, Bentley and Finkel 1977) with its points in leaves of up to `LEAF`, split along their widest side.
The distance to a box is updated from that of its parent box (Arya and Mount 1993). Points that arrive in order, for
example from left to right, would degrade the tree to a list. So a branch that is more than twice as deep as its number
of points requires is rebuilt with its points shuffled (Galperin and Rivest 1993, for search trees). Copies of one point
beyond k change no answer and are removed, so any full leaf can be split.

The tree depends only on the points and their order, not on batches. It is not saved: insert the points again.

Limit: with 2 dimensions and k=15 a query reads about three leaves of 30 points each. It takes 0.9 us at 1e5 points:
half for reading, half for keeping the 15 smallest of 90 numbers, without branches. At 1e6, waiting for memory takes as
long again. With more dimensions more leaves are near: 3 us with 4, 11 with 6, 180 with 12.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learner.store.kd_tree import (
    Floats,
    Integers,
    insert,
    means_of_roots,
    overgrown,
    sapling,
    search,
    uproot,
    with_room,
)

LEAF = 48  # points; the fastest of 24, 32, 40, 48 and 64 with 2 dimensions
MOST = 10_000
_NO_NUMBERS = np.empty((0, 0), np.int64)


class Neighbours:
    """Points in D dimensions, and their nearest neighbours.

    Args:
        dimensions: D, at least 1.
        k: largest number of neighbours that queries will need, at most `MOST`.

    Raises:
        ValueError: an argument is too small, or k is too large.
    """

    def __init__(self, dimensions: int, k: int = 15) -> None:
        if dimensions < 1 or not 1 <= k <= MOST:
            raise ValueError(f"neighbours need a dimension and k of 1 to {MOST:,}, not {dimensions} dimensions, k={k}")
        self.dimensions, self.k = dimensions, k
        self._count = 0
        self._tree = sapling(dimensions, leaf=max(LEAF, 2 * k), room=64)

    def __len__(self) -> int:
        return self._count

    def insert(self, points: NDArray[Any]) -> None:
        """Add M finite points [M, D]; they get the next M numbers.

        Raises:
            ValueError: the points have another shape, or are not finite.
        """
        points = self._checked(points)
        numbers = np.arange(self._count, self._count + len(points))
        self._count += len(points)
        self._plant(points, numbers)

    def nearest(self, queries: NDArray[Any], k: int) -> tuple[Floats, Integers]:
        """Distances float64 [Q, k] to the k nearest points of each query [Q, D], ascending, and their numbers [Q, k].

        Ties are broken arbitrarily, but always in the same way. Missing neighbours: inf, and -1.

        Raises:
            ValueError: the queries have another shape or are not finite, or k is not in 1..self.k.
        """
        squares, numbers = self._blank(queries := self._checked(queries), k)
        search(self._tree, queries, squares, numbers)
        return np.sqrt(squares[:, 1:]), numbers[:, 1:]

    def mean_distance(
        self, queries: NDArray[Any], k: int, others: NDArray[Any] | None = None, without_self: bool = False
    ) -> Floats:
        """Mean Euclidean distance, float64 [Q], of each query [Q, D] to the k nearest of all points and `others`.

        others: [P, D], additional points for this call only, such as a population.
        without_self: each query is itself one of the points or others. Then it is the nearest of the k and is left out
            of the mean, which is over k - 1 (Salehi and Doncieux 2023, whose 15 are 14).
        With fewer than k points, the mean is over these; without any, it is inf.

        Raises:
            ValueError: queries or others have another shape or are not finite, or k is not in 1..self.k.
        """
        squares, _ = self._blank(queries := self._checked(queries), k)
        count = len(self)
        search(self._tree, queries, squares, _NO_NUMBERS)
        if others is not None:
            crowd = Neighbours(self.dimensions, self.k)
            crowd.insert(others)
            count += len(crowd)
            search(crowd._tree, queries, squares, _NO_NUMBERS)
        means = np.full(len(queries), np.inf)
        if (k := min(k, count)) > without_self:
            means_of_roots(squares, 1 + without_self, 1 + k, means)
        return means

    def _checked(self, points: NDArray[Any]) -> Floats:
        points = np.ascontiguousarray(points, np.float64)
        if points.ndim != 2 or points.shape[1] != self.dimensions:
            raise ValueError(f"points of shape {points.shape} are not [number, {self.dimensions}]")
        if not np.isfinite(points).all():
            row = int(np.flatnonzero(~np.isfinite(points).all(1))[0])
            raise ValueError(f"point {row} of {len(points)} is {points[row].tolist()}: it must be finite")
        return points

    def _blank(self, queries: Floats, k: int) -> tuple[Floats, Integers]:
        """Initial squared distances and numbers [Q, 1 + k]. Column 0 is smaller than any distance."""
        if not 1 <= k <= self.k:
            raise ValueError(f"k is {k}: these neighbours were made for 1 to {self.k}")
        squares, numbers = np.full((len(queries), 1 + k), np.inf), np.full((len(queries), 1 + k), -1)
        squares[:, 0] = -1.0
        return squares, numbers

    def _plant(self, points: Floats, numbers: Integers, root: int = 0, depth: int = 0, limited: bool = True) -> None:
        """Insert points below the node `root` at this depth."""
        done = 0
        while done < len(points):
            done, deep = insert(self._tree, root, depth, limited, self.k, points, numbers, done)
            if deep:
                self._replant(points[done - 1])
            elif done < len(points):
                self._tree = with_room(self._tree, 2 * len(self._tree.spare))

    def _replant(self, point: Floats) -> None:
        """Rebuild, in random order, the smallest branch around a point that is too deep for its number of points."""
        node, depth, count = overgrown(self._tree, point)
        points, numbers = np.empty((count, self.dimensions)), np.empty(count, np.int64)
        uproot(self._tree, node, points, numbers)
        order = np.random.default_rng(count).permutation(count)
        self._plant(points[order], numbers[order], node, depth, limited=False)
