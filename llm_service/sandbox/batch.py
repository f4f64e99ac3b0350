"""The rows that a program runs over together: which still run, why the others stopped, and the steps spent."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from llm_service.sandbox.values import (
    MAX_PARTS,
    Array,
    Value,
    any_lane,
    counted,
    floats,
    select,
    size_checked,
    structure,
)

FAULTS = (
    "none",
    "unassigned",  # a name that was not assigned on the row's path
    "index",  # outside the list, or not a whole number
    "division",  # by zero
    "root",  # of a negative number
    "too large",  # a number beyond LARGEST
    "empty",  # min or max of an empty list
    "unpack",  # the number of values differs from the number of names
    "type",  # a list where a number belongs, or the other way round
    "steps",  # more than MAX_STEPS
    "memory",  # one row alone needs an array of more than MAX_ELEMENTS, or nested lists have too many parts
    "no value",  # the program ended without a return
)
MAX_STEPS = 2**16  # per row: one for each element of each loop, comprehension and sum that the row enters
LARGEST = 2.0**53  # float64 represents every whole number up to here


MAX_WAITING = 256

Effect: TypeAlias = Callable[[Array], None]
Spending: TypeAlias = "tuple[tuple[Array, ...], float]"
"""Masks, and the steps of a row on all of whose lanes all the masks hold; on fewer lanes a row spent fewer."""


@dataclass(slots=True)
class Ahead:
    """The deferred work of a loop that runs all rounds at once and may exit early. Only rounds up to the exit count.

    Attributes:
        lanes: the number of lane axes inside the loop.
        left: the lanes on which a round leaves the loop; None for no lane.
        returned: the lanes on which a round ends the function; None for no lane.
        effects: what to do after the loop, and the largest set of lanes it can apply to.
        spent: the steps that all rounds together spend if the loop is not left early.
    """

    lanes: int
    left: Array | None = None
    returned: Array | None = None
    effects: list[tuple[Array, Effect]] = field(default_factory=list)
    spent: list[Spending] = field(default_factory=list)

    def leave(self, mask: Array) -> None:
        """Mark the lanes as leaving the loop in their round."""
        mask = any_lane(mask, self.lanes)
        self.left = mask if self.left is None else self.left | mask


class Batch:
    """One run of a program.

    A *mask* is bool [N] or, inside comprehensions, bool [*lanes]: the rows or lanes to compute for. Values elsewhere
    are meaningless and cause no faults.

    Attributes:
        rows: N.
        whole: the mask of the current top-level statement of the function. No other row will run again.
        names: the value of each name.
        assigned: for names assigned on only some rows or lanes, the mask of those.
        lengths: the number of elements on each lane axis, outermost first.
        ahead: the enclosing loops that run at once and may exit early, outermost first.
        result: float64 [N], the value that each row returned.
        fault_kinds: int [N], the index in `FAULTS` of each row's first fault.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.whole = self.alive = np.ones(rows, bool)
        self.names: dict[str, Value] = {}
        self.assigned: dict[str, Array] = {}
        self.lengths: list[int] = []
        self.result = np.zeros(rows)
        self.fault_kinds = np.zeros(rows, np.int8)
        self.ahead: list[Ahead] = []
        self._steps, self._most_steps = np.zeros(rows), 0.0  # steps counted per row, and an upper bound for all rows
        self._waiting: list[Spending] = []

    def fault(self, kind: str, mask: Array, where: Any = True) -> None:
        """End the rows of the mask, restricted to `where` (a bool or an array of bool)."""
        bad = mask & where
        if self.ahead:
            self.ahead[-1].effects.append((bad, lambda part: self.fault(kind, part)))
            return
        rows = any_lane(bad, 1) & self.alive
        if rows.any():
            self.fault_kinds[rows] = FAULTS.index(kind)
            self.alive = self.alive & ~rows

    def still(self, mask: Array) -> Array:
        """The rows of the mask without a fault."""
        left = mask & self.alive
        if mask.ndim == 1 and np.count_nonzero(left) == np.count_nonzero(self.whole):
            return self.whole  # the same object: `assign` recognises it and need not keep the values of other rows
        if mask is self.whole:
            self.whole = left
        return left

    def spend(self, mask: Array, length: int, present: Array | None = None) -> None:
        """Count one step per list element, and end the rows that have spent too many.

        Most rows spend little, so exact counts are computed only when a row could have exceeded the limit.
        """
        if length:
            lanes = float(math.prod(self.lengths)) * length
            self._spend([((mask,) if present is None else (mask, present), lanes)])

    def _spend(self, spent: list[Spending]) -> None:
        if self.ahead:
            self.ahead[-1].spent += spent
            return
        self._waiting += spent
        self._most_steps += sum(lanes for _, lanes in spent)
        if self._most_steps > MAX_STEPS or len(self._waiting) > MAX_WAITING:
            for masks, lanes in self._waiting:
                mask = functools.reduce(np.logical_and, masks)  # length 1 along axes where it is constant
                self._steps = self._steps + counted(mask, mask.ndim - 1) * (lanes * self.rows / mask.size)
            self._waiting, self._most_steps = [], float(self._steps.max(where=self.alive, initial=0.0))
            if self._most_steps > MAX_STEPS:
                self.fault("steps", self.whole, self._steps > MAX_STEPS)

    def give(self, mask: Array, value: Any) -> None:
        """Return the value, for at most one lane of each row."""
        if self.ahead:
            inner = self.ahead[-1]
            inner.leave(mask)
            mine = any_lane(mask, inner.lanes)
            inner.returned = mine if inner.returned is None else inner.returned | mine
            inner.effects.append((mask, lambda part: self.give(part, value)))
            return
        if isinstance(value, np.ndarray) and mask.ndim > 1:
            places = np.nonzero(mask)
            self.result[places[-1]] = np.broadcast_to(value, mask.shape)[places]
        else:
            np.copyto(self.result, value, where=any_lane(mask, 1))

    def come_back(self, length: int) -> tuple[Array | None, Array | None]:
        """End a loop that may exit early: apply the effects of its rounds, for each lane up to the round that left.

        Returns:
            bool [length, *lanes], the rounds that ran, and bool [*lanes], the lanes on which a round ended the
            function; each may be None.
        """
        loop = self.ahead.pop()
        rounds, ended = None, None
        if loop.left is not None:
            left = loop.left.reshape((1,) * (loop.lanes - loop.left.ndim) + loop.left.shape)
            left = np.broadcast_to(left, (length, *left.shape[1:]))
            rounds = np.ones(left.shape, bool)
            for i in range(1, length):
                np.greater(rounds[i - 1], left[i - 1], out=rounds[i])  # the previous round ran and did not leave
            if loop.returned is not None:
                ended = any_lane(loop.returned & rounds, loop.lanes - 1)
        for mask, effect in loop.effects:
            part = mask if rounds is None else mask & rounds
            if np.count_nonzero(part):
                effect(part)
        if loop.spent:
            self._spend(loop.spent if rounds is None else [((*masks, rounds), lanes) for masks, lanes in loop.spent])
        return rounds, ended

    def enter(self, length: int) -> None:
        """Begin a comprehension or loop over `length` elements; `lengths.pop()` ends it."""
        size_checked(*self.lengths, length, self.rows)
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
        """The number; a magnitude beyond LARGEST is a fault and becomes 0."""
        if not isinstance(number, np.ndarray):
            if abs(number) <= LARGEST:
                return number
            self.fault("too large", mask)
            return 0.0
        if number.dtype == np.float64 and np.vdot(number, number) <= LARGEST:  # faster than finding the maximum
            return number
        if number.max(initial=0.0) <= LARGEST and number.min(initial=0.0) >= -LARGEST:
            return number
        large = ~(np.abs(number) <= LARGEST)
        self.fault("too large", mask, large)
        return np.where(large, 0.0, number)

    def structured(self, mask: Array, value: Any) -> Any:
        """The list; one with too many parts is a fault and becomes the number 0."""
        if structure(value) <= MAX_PARTS:
            return value
        self.fault("memory", mask)
        return 0.0

    def number(self, mask: Array, value: Any) -> Any:
        """The value for arithmetic; a list is a fault and becomes 0."""
        if isinstance(value, np.ndarray | int | float):
            return floats(value)
        self.fault("type", mask)
        return 0.0
