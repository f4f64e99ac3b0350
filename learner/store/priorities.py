"""Sums of priorities as a binary tree: sample a row in proportion to its priority, or change one, in log2(rows) steps.

    nodes[1] is the total; nodes[i] = nodes[2i] + nodes[2i + 1]; the leaves are the priorities themselves

An inner node is always recomputed as the sum of its two children, never corrected by differences. So no error
accumulates, and a tree rebuilt from its leaves is equal to the last bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled

Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]


class SumTree:
    """Priorities float64 [rows], initially 0. Rows with priority 0 are never sampled."""

    def __init__(self, rows: int) -> None:
        self._first = 1 << max(1, (rows - 1).bit_length())  # the node of leaf 0
        self._nodes = np.zeros(2 * self._first)
        self.leaves = self._nodes[self._first : self._first + rows]
        """A view; change it by `set` and `replace` only."""

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self._nodes[1])

    def set(self, row: Rows, priority: Numbers) -> None:
        """Set priorities [K], none negative, of rows [K]; for a repeated row, the last value counts."""
        _set(self._nodes, row + self._first, priority)

    def replace(self, priority: Numbers) -> None:
        """Replace all priorities [rows]."""
        self.leaves[:] = priority
        _sum(self._nodes)

    def find(self, mass: Numbers) -> Rows:
        """The rows [B] at which the running sum of priorities first exceeds `mass` [B], each in [0, total)."""
        rows = np.empty(len(mass), np.int64)
        _find(self._nodes, mass, rows)
        return rows - self._first


@compiled
def _set(nodes: Numbers, leaf: Rows, priority: Numbers) -> None:
    for k in range(len(leaf)):
        node = leaf[k]
        nodes[node] = priority[k]
        node //= 2
        while node > 0:
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1]
            node //= 2


@compiled
def _sum(nodes: Numbers) -> None:
    for node in range(len(nodes) // 2 - 1, 0, -1):
        nodes[node] = nodes[2 * node] + nodes[2 * node + 1]


@compiled
def _find(nodes: Numbers, mass: Numbers, rows: Rows) -> None:
    half = len(nodes) // 2
    for b in range(len(mass)):
        left_over, node = mass[b], np.int64(1)
        while node < half:
            node *= 2
            # Rounding may push a mass past the last priority; it must not select a row with priority 0.
            if left_over >= nodes[node] and nodes[node + 1] > 0:
                left_over -= nodes[node]
                node += 1
        rows[b] = node
