"""The rows that a program runs over together: which still run, how the others failed, and how many steps each spent."""

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
    "index",  # outside the list, or not a whole number
    "division",  # by zero
    "root",  # of a negative number
    "too large",  # a number beyond LARGEST
    "empty",  # min or max of nothing
    "unpack",  # another number of values than names
    "type",  # a list where a number belongs, or the other way round
    "steps",  # more than MAX_STEPS
    "memory",  # an array above MAX_ELEMENTS for one row, or nested lists with too many parts
    "no value",  # the end was reached without a return
)
MAX_STEPS = 2**16  # per row: one step per element of each loop, comprehension and sum that it enters
LARGEST = 2.0**53  # float64 represents every whole number up to this one


MAX_WAITING = 256

Effect: TypeAlias = Callable[[Array], None]
Spending: TypeAlias = "tuple[tuple[Array, ...], float]"
"""A number of steps that a row spends in each lane where all of these masks hold. With all lanes it is the row's upper
bound."""


@dataclass(slots=True)
class Ahead:
    """The effects of a loop that runs all rounds at once and can be left early: only those up to the leaving round
    count.

    Attributes:
        lanes: number of lane axes inside the loop.
        left: lanes in which a round leaves the loop; None if there are none.
        returned: lanes in which a round ends the function; None if there are none.
        effects: actions to run afterwards, and the lanes that they may affect.
        spent: steps that the rounds spent, if all of them ran.
    """

    lanes: int
    left: Array | None = None
    returned: Array | None = None
    effects: list[tuple[Array, Effect]] = field(default_factory=list)
    spent: list[Spending] = field(default_factory=list)

    def leave(self, mask: Array) -> None:
        """Record that these lanes leave the loop in their round."""
        mask = any_lane(mask, self.lanes)
        self.left = mask if self.left is None else self.left | mask


class Batch:
    """One run.

    A *mask*, bool [N] or bool [*lanes] inside comprehensions, selects the rows or lanes for which a value is computed.
    Elsewhere, values have no meaning and cause no faults.

    Attributes:
        rows: N.
        whole: the mask of the current statement of the function's own body: no other row will run again.
        names: value of each name.
        assigned: for each name that only some rows or lanes have assigned: which ones.
        lengths: length of each lane axis, outermost first.
        ahead: the enclosing loops that run all rounds at once and can be left early, outermost first.
        result: float64 [N], what each row returned.
        fault_kinds: int [N], index in `FAULTS` of each row's first fault.
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
        self._steps, self._most_steps = np.zeros(rows), 0.0  # exact counts, and an upper bound for every row
        self._waiting: list[Spending] = []

    def fault(self, kind: str, mask: Array, where: Any = True) -> None:
        """End the rows of the mask, or only those selected by `where` (a bool or an array of bool)."""
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
            return self.whole  # the same object: names then need not keep other rows' values
        if mask is self.whole:
            self.whole = left
        return left

    def spend(self, mask: Array, length: int, present: Array | None = None) -> None:
        """Count the steps of a list's elements, and end the rows that have spent too many.

        Most rows spend few steps, so exact counts are computed only when the upper bound exceeds the limit.
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
                mask = functools.reduce(np.logical_and, masks)  # a mask that is constant along an axis has fewer lanes
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
        """End a loop that can be left early: apply the effects of its rounds, in each lane up to the leaving round.

        Returns:
            bool [length, *lanes], the rounds that took place, and bool [*lanes], the lanes in which one ended the
            function; or None.
        """
        loop = self.ahead.pop()
        rounds, ended = None, None
        if loop.left is not None:
            left = loop.left.reshape((1,) * (loop.lanes - loop.left.ndim) + loop.left.shape)
            left = np.broadcast_to(left, (length, *left.shape[1:]))
            rounds = np.ones(left.shape, bool)
            for i in range(1, length):
                np.greater(rounds[i - 1], left[i - 1], out=rounds[i])  # the previous round ran, and did not leave
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
        """Begin a comprehension or loop over this many elements; `lengths.pop()` ends it."""
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
        """The number; 0 and a fault where its magnitude exceeds LARGEST."""
        if not isinstance(number, np.ndarray):
            if abs(number) <= LARGEST:
                return number
            self.fault("too large", mask)
            return 0.0
        if number.dtype == np.float64 and np.vdot(number, number) <= LARGEST:  # faster than finding the largest
            return number
        if number.max(initial=0.0) <= LARGEST and number.min(initial=0.0) >= -LARGEST:
            return number
        large = ~(np.abs(number) <= LARGEST)
        self.fault("too large", mask, large)
        return np.where(large, 0.0, number)

    def structured(self, mask: Array, value: Any) -> Any:
        """The list; a number and a fault if it has too many parts."""
        if structure(value) <= MAX_PARTS:
            return value
        self.fault("memory", mask)
        return 0.0

    def number(self, mask: Array, value: Any) -> Any:
        """The value as a number; a list is a fault."""
        if isinstance(value, np.ndarray | int | float):
            return floats(value)
        self.fault("type", mask)
        return 0.0
