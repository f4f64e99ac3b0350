"""The rows that a program runs over together: which still run, what went wrong with the others, and what they spent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from llm_service.sandbox.values import Array, Value, floats, select, size_checked

FAULTS = (
    "none",
    "unassigned",  # a name that the row's path has not assigned
    "index",  # outside the list, or no whole number
    "division",  # by zero
    "root",  # of a negative number
    "too large",  # a number beyond LARGEST
    "empty",  # min or max of nothing
    "unpack",  # another number of values than names
    "type",  # a list where a number belongs, or the other way round
    "steps",  # more than MAX_STEPS
    "memory",  # one array of more than MAX_ELEMENTS for one row
    "no value",  # the end was reached without a return
)
MAX_STEPS = 2**16  # for each row: one for each element of each loop, comprehension and sum that it enters
LARGEST = 2.0**53  # up to here float64 holds every whole number


class Batch:
    """One run.

    A *mask* is bool [N] or, inside comprehensions, bool [*lanes]: for which rows or lanes something is computed. What
    is computed elsewhere has no meaning and no faults.

    Attributes:
        whole: the mask of the statement of the function's own body that runs: no other row will run again.
        names: the value of each name.
        assigned: for names that only some rows or lanes have assigned, which.
        lengths: over how many elements each axis of lanes runs, the outermost first.
        result: float64 [N], what each row returned.
        fault_kinds: int [N], the place in `FAULTS` of each row's first fault.
    """

    def __init__(self, rows: int) -> None:
        self.whole = self.alive = np.ones(rows, bool)
        self.names: dict[str, Value] = {}
        self.assigned: dict[str, Array] = {}
        self.lengths: list[int] = []
        self.result = np.zeros(rows)
        self.fault_kinds = np.zeros(rows, np.int8)
        self._shared_steps, self._steps, self._most_steps = 0, np.zeros(rows), 0.0

    def fault(self, kind: str, mask: Array, where: Any = True) -> None:
        """End the rows of the mask, or those of them `where` says (a bool or an array of bool)."""
        bad = mask & where
        rows = bad.any(axis=tuple(range(bad.ndim - 1))) & self.alive
        if rows.any():
            self.fault_kinds[rows] = FAULTS.index(kind)
            self.alive = self.alive & ~rows

    def still(self, mask: Array) -> Array:
        """The rows of the mask without a fault."""
        left = mask & self.alive
        if mask.ndim == 1 and np.count_nonzero(left) == np.count_nonzero(
            self.whole
        ):  # for these a name need not keep other rows' values
            return self.whole
        if mask is self.whole:
            self.whole = left
        return left

    def spend(self, mask: Array, length: int, present: Array | None = None) -> None:
        """Count the steps of a list's elements, and end the rows that have spent too many."""
        if mask is self.whole and present is None:
            self._shared_steps += length * math.prod(self.lengths)
        else:
            here = mask if present is None else mask & present
            lanes = (
                float(math.prod(self.lengths)) * length
            )  # of which a mask that is the same along an axis shows fewer
            counts = here.sum(axis=tuple(range(here.ndim - 1))) * (lanes * len(self.alive) / here.size)
            self._steps = self._steps + counts
            self._most_steps = float(self._steps.max())
        if self._shared_steps + self._most_steps > MAX_STEPS:
            self.fault("steps", self.alive, self._shared_steps + self._steps > MAX_STEPS)

    def enter(self, length: int) -> None:
        """Begin a comprehension or loop over so many elements; `lengths.pop()` ends it."""
        size_checked(*self.lengths, length, len(self.alive))
        self.lengths.append(length)

    def assign(self, name: str, mask: Array, value: Value, lanes: int) -> None:
        """Give the name a value on the rows or lanes of the mask."""
        if mask is self.whole and lanes == 1:
            self.names[name] = value
            self.assigned.pop(name, None)
        elif name not in self.names:
            self.names[name], self.assigned[name] = value, mask
        else:
            self.names[name] = select(mask, value, self.names[name], lanes)
            if name in self.assigned:
                self.assigned[name] = self.assigned[name] | mask

    def bounded(self, mask: Array, number: Any) -> Any:
        """The number, or 0 where its magnitude is beyond LARGEST, which is a fault."""
        if not isinstance(number, np.ndarray):
            if abs(number) <= LARGEST:
                return number
            self.fault("too large", mask)
            return 0.0
        if number.max(initial=0.0) <= LARGEST and number.min(initial=0.0) >= -LARGEST:
            return number
        large = ~(np.abs(number) <= LARGEST)
        self.fault("too large", mask, large)
        return np.where(large, 0.0, number)

    def number(self, mask: Array, value: Any) -> Any:
        """The value for arithmetic; a list is a fault."""
        if isinstance(value, np.ndarray | int | float):
            return floats(value)
        self.fault("type", mask)
        return 0.0
