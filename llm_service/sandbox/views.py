"""Observations as the lists that written programs read, each created on demand.

Rows share observations: consecutive windows have most of their views in common. Each observation is transposed once, so
that the same entry of all observations is contiguous; rows copy their views from there.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from llm_service.sandbox.values import Array, Later, List, Window

_BLOCK = 256
"""Observations transposed at once: they fit into the CPU cache, which halves the time."""


class Views:
    """Observations int [R, ...], each a number, a list or a nested list."""

    def __init__(self, observations: Array) -> None:
        self.observations = observations

    @cached_property
    def _columns(self) -> Array:
        """The observations [..., R] with all axes reversed."""
        array = self.observations
        numbers = array.reshape(len(array), math.prod(array.shape[1:]))
        columns = np.empty(numbers.shape[::-1], array.dtype)
        for first in range(0, len(array), _BLOCK):
            columns[:, first : first + _BLOCK] = numbers[first : first + _BLOCK].T
        axes = range(array.ndim - 2, -1, -1)
        return columns.reshape(*array.shape[1:], len(array)).transpose(*axes, array.ndim - 1)

    def window(self, index: Array) -> Window | tuple[()]:
        """The value of `observations` for rows that use the observations `index` [N, K]."""
        length = index.shape[1]
        if not length:
            return ()
        shape = self.observations.shape[1:]
        if not shape:  # numbers
            numbers = self.observations[np.ascontiguousarray(index.T)]
            return Window.of(numbers, Later(length, lambda: numbers))
        parts = [self._later(index[:, k : k + 1]) for k in range(length)]
        return Window.of(parts, Later(length, lambda: self._lists(self._taken(index), 0)))

    def _later(self, index: Array) -> Later:
        shape = self.observations.shape[1:]

        def element() -> Any:
            return self._lists(self._taken(index)[..., 0, :], 1) if shape[0] else 0.0

        return Later(shape[0], element)

    def _lists(self, array: Array, given: int) -> Any:
        """The nested lists of a view, without the `given` outermost levels."""
        value: Any = array
        for length in reversed(self.observations.shape[1 + given :]):
            value = List(length, value if length else 0.0)
        return value

    def _taken(self, index: Array) -> Array:
        """The columns [..., K, N] that an index [N, K] selects.

        Neighbouring rows mostly use neighbouring observations, so these are copied as blocks.
        """
        columns, n = self._columns, len(index)
        found = np.empty((*columns.shape[:-1], *index.shape[::-1]), columns.dtype)
        shift = index - np.arange(n)[:, None]
        some = np.sort(shift[:: n // 8 + 1], axis=0)
        for k, usual in enumerate(some[len(some) // 2].tolist()):
            first = min(max(usual, 0), columns.shape[-1] - n)
            others = np.flatnonzero(shift[:, k] != first)
            if first < 0 or len(others) > n // 2:
                found[..., k, :] = columns[..., index[:, k]]
                continue
            found[..., k, :] = columns[..., first : first + n]
            if len(others):
                found[..., k, others] = columns[..., index[others, k]]
        return found
