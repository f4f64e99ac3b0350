"""The rows that a program runs over together: which still run, what went wrong with the others, and what they spent."""

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
    "unassigned",  # a name that the row's path has not assigned
    "index",  # outside the list, or no whole number
    "division",  # by zero
    "root",  # of a negative number
    "too large",  # a number beyond LARGEST
    "empty",  # min or max of nothing
    "unpack",  # another number of values than names
    "type",  # a list where a number belongs, or the other way round
    "steps",  # more than MAX_STEPS
    "memory",  # an array of more than MAX_ELEMENTS for the row alone, or lists in lists of too many parts
    "no value",  # the end was reached without a return
)
MAX_STEPS = 2**16  # for each row: one for each element of each loop, comprehension and sum that it enters
LARGEST = 2.0**53  # up to here float64 holds every whole number


MAX_WAITING = 256

Effect: TypeAlias = Callable[[Array], None]
Spending: TypeAlias = "tuple[tuple[Array, ...], float]"
"""Where all of these masks hold, so many steps were spent: by a row with all its lanes, so that no row spent more."""


@dataclass(slots=True)
class Ahead:
    """What the rounds of a loop do that runs at once and can be left: it counts only up to the round that leaves.

    Attributes:
        lanes: how many axes of lanes there are inside the loop.
        left: for which lanes a round leaves the loop; None for none.
        returned: for which lanes a round ends the function; None for none.
        effects: what to do afterwards, and for which lanes at most.
        spent: what the rounds spent, if there were that many.
    """

    lanes: int
    left: Array | None = None
    returned: Array | None = None
    effects: list[tuple[Array, Effect]] = field(default_factory=list)
    spent: list[Spending] = field(default_factory=list)

    def leave(self, mask: Array) -> None:
        """The lanes leave the loop in their round."""
        mask = any_lane(mask, self.lanes)
        self.left = mask if self.left is None else self.left | mask


class Batch:
    """One run.

    A *mask* is bool [N] or, inside comprehensions, bool [*lanes]: for which rows or lanes something is computed. What
    is computed elsewhere has no meaning and no faults.

    Attributes:
        rows: N.
        whole: the mask of the statement of the function's own body that runs: no other row will run again.
        names: the value of each name.
        assigned: for names that only some rows or lanes have assigned, which.
        lengths: over how many elements each axis of lanes runs, the outermost first.
        ahead: the loops around the present place that run at once and can be left, the outermost first.
        result: float64 [N], what each row returned.
        fault_kinds: int [N], the place in `FAULTS` of each row's first fault.
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
        self._steps, self._most_steps = np.zeros(rows), 0.0  # what is counted, and what no row has spent more than
        self._waiting: list[Spending] = []

    def fault(self, kind: str, mask: Array, where: Any = True) -> None:
        """End the rows of the mask, or those of them `where` says (a bool or an array of bool)."""
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
            return self.whole  # as the same object: for it a name need not keep what other rows have
        if mask is self.whole:
            self.whole = left
        return left

    def spend(self, mask: Array, length: int, present: Array | None = None) -> None:
        """Count the steps of a list's elements, and end the rows that have spent too many.

        Most rows spend little: who has spent what is reckoned only where it could be too much.
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
                mask = functools.reduce(np.logical_and, masks)  # one that is the same along an axis shows fewer lanes
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
        """End a loop that can be left: do what its rounds did, up to the one that left for each lane.

        Returns:
            bool [length, *lanes], which rounds there were, and bool [*lanes], where one ended the function; or None.
        """
        loop = self.ahead.pop()
        rounds, ended = None, None
        if loop.left is not None:
            left = loop.left.reshape((1,) * (loop.lanes - loop.left.ndim) + loop.left.shape)
            left = np.broadcast_to(left, (length, *left.shape[1:]))
            rounds = np.ones(left.shape, bool)
            for i in range(1, length):
                np.greater(rounds[i - 1], left[i - 1], out=rounds[i])  # there was one before, and it did not leave
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
        """Begin a comprehension or loop over so many elements; `lengths.pop()` ends it."""
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
        """The number, or 0 where its magnitude is beyond LARGEST, which is a fault."""
        if not isinstance(number, np.ndarray):
            if abs(number) <= LARGEST:
                return number
            self.fault("too large", mask)
            return 0.0
        if number.dtype == np.float64 and np.vdot(number, number) <= LARGEST:  # quicker than to look for the largest
            return number
        if number.max(initial=0.0) <= LARGEST and number.min(initial=0.0) >= -LARGEST:
            return number
        large = ~(np.abs(number) <= LARGEST)
        self.fault("too large", mask, large)
        return np.where(large, 0.0, number)

    def structured(self, mask: Array, value: Any) -> Any:
        """The list, or a number if it has too many parts, which is a fault."""
        if structure(value) <= MAX_PARTS:
            return value
        self.fault("memory", mask)
        return 0.0

    def number(self, mask: Array, value: Any) -> Any:
        """The value for arithmetic; a list is a fault."""
        if isinstance(value, np.ndarray | int | float):
            return floats(value)
        self.fault("type", mask)
        return 0.0
