"""The nearest of many points, of which more come all the time: exact, and never built anew as a whole.

    insert(points [M, D])         each goes down to its leaf; a leaf that is full becomes two, at the median
    mean_distance(queries, k)     down to the query's leaf, then up again wherever something nearer may be
    nearest(queries, k)           the same, and which points they are

A k-d tree (Friedman, Bentley and Finkel 1977) with its points in leaves of up to `LEAF`, split along their widest side.
The distance to a box comes from that to the box before it (Arya and Mount 1993). Points that arrive in order, from left
to right say, would make it a list: a branch that is more than twice as deep as what it holds needs is planted anew with
its points shuffled (Galperin and Rivest 1993, for search trees). More copies of one point than anybody can ask for
change no answer, so that they are forgotten: any leaf that is full can be split.

The tree follows from the points and their order, however they were batched. It is not saved: insert them again.

Limit: with 2 dimensions and k=15 a query reads some three leaves of 30 points each. Of its 0.9 us at 1e5 points half is
that, half keeping the 15 smallest of 90 numbers, which is done without a branch for each; at 1e6 waiting for memory is
as much again. More dimensions mean more leaves that are near: 3 us with 4, 11 with 6, 180 with 12.
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

LEAF = 48  # points; of 24, 32, 40, 48 and 64 the fastest with 2 dimensions
MOST = 10_000
_NO_NUMBERS = np.empty((0, 0), np.int64)


class Neighbours:
    """Points in D dimensions, and which are near.

    Args:
        dimensions: D, at least 1.
        k: the most neighbours that will be asked for, at most `MOST`.

    Raises:
        ValueError: one of them is too small, or k too large.
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
        """Add M points [M, D], finite, with the next M numbers.

        Raises:
            ValueError: they have another shape, or are not finite.
        """
        points = self._checked(points)
        numbers = np.arange(self._count, self._count + len(points))
        self._count += len(points)
        self._plant(points, numbers)

    def nearest(self, queries: NDArray[Any], k: int) -> tuple[Floats, Integers]:
        """Distances float64 [Q, k] to the k nearest points of each query [Q, D], ascending, and their numbers [Q, k].

        Of points equally far any, but always the same. Where there are fewer than k: inf, and -1.

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

        others: [P, D], points for this once: a population, say.
        without_self: each query is one of the points or others itself. It is the nearest of the k, and left out of the
            mean, which is then over k - 1 (Salehi and Doncieux 2023, whose 15 are 14).
        Where there are fewer than k points, of these; where there are none, inf: nothing is near.

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
        """Squared distances and numbers [Q, 1 + k] before anything is found. Column 0 is nearer than anything."""
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
        """Plant the smallest branch around a point that is too deep for what it holds once more, in random order."""
        node, depth, count = overgrown(self._tree, point)
        points, numbers = np.empty((count, self.dimensions)), np.empty(count, np.int64)
        uproot(self._tree, node, points, numbers)
        order = np.random.default_rng(count).permutation(count)
        self._plant(points[order], numbers[order], node, depth, limited=False)
