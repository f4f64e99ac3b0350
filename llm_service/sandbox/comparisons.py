"""Truth and comparisons of numbers and lists, as Python defines them: one bool for all rows, or an array of bool.

Tuples, lists and ranges are one type here: they are equal if their elements are equal.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from llm_service.sandbox import lists
from llm_service.sandbox.batch import Batch
from llm_service.sandbox.values import Array, List, alike, as_list, is_number, lift, packed, presence, settled

_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def compare(batch: Batch, mask: Array, kind: type[ast.cmpop], a: Any, b: Any, lanes: int) -> Any:
    """The comparison; ordering lists is a fault."""
    if kind in _ORDERS:
        if is_number(a) and is_number(b):
            return _ORDERS[kind](a, b)
        batch.fault("type", mask)
        return False
    if kind in (ast.Eq, ast.NotEq):
        if not is_number(a) and not is_number(b):
            batch.spend(mask, _volume(a) + _volume(b))
        same = equal(a, b, lanes)
        return same if kind is ast.Eq else opposite(same)
    found: Any = False
    if is_number(b):
        batch.fault("type", mask)
    else:
        batch.spend(mask, *lists.extent(b))
        batch.spend(mask, 0 if is_number(a) else _volume(b))
        found = contains(b, a, lanes)
    return found if kind is ast.In else opposite(found)


def _volume(value: Any) -> int:
    """The number of numbers in a value; a list whose length varies by row counts as one."""
    if isinstance(value, tuple):
        return sum(map(_volume, value))
    if isinstance(value, List) and value.present is None:
        return value.length * _volume(value.element)
    return 1


def opposite(test: Any) -> Any:
    """Python's `not` of a bool or an array of bool."""
    return ~test if isinstance(test, np.ndarray) else not test


def truth(value: Any) -> Any:
    """The value's truth, as in Python."""
    if isinstance(value, np.ndarray):
        return value if value.dtype == np.bool_ else value != 0
    if isinstance(value, List):
        return value.length > 0 if value.present is None else settled(value.present.any(axis=0))
    return bool(value)


def equal(one: Any, other: Any, lanes: int) -> Any:
    """Whether two values are equal, as numbers or as lists."""
    if is_number(one) and is_number(other):
        return one == other
    if is_number(one) or is_number(other):
        return False
    one, other = packed(as_list(one, lanes), lanes), packed(as_list(other, lanes), lanes)
    ragged = one.present is not None or other.present is not None
    if one.length != other.length and not ragged:
        return False
    one, other = alike([one, other], lanes)
    same = np.asarray(equal(one.element, other.element, lanes + 1))
    if ragged:
        here, there = presence(one, lanes), presence(other, lanes)
        same = np.where(here & there, same, here == there)
    return settled(same.all(axis=0)) if same.ndim > lanes else settled(same)


def _row_of_numbers(values: tuple[Any, ...]) -> int | None:
    """The first number if the values are consecutive small integers; otherwise None."""
    first = values[0] if values else None
    if type(first) is not int or not 0 <= first <= first + len(values) < 256:
        return None
    return first if all(type(value) is int and value == first + i for i, value in enumerate(values)) else None


def contains(container: Any, item: Any, lanes: int) -> Any:
    """Whether the list has an element equal to the item."""
    if isinstance(container, tuple):
        first = _row_of_numbers(container)
        if first is not None and isinstance(item, np.ndarray) and item.dtype.kind == "u":
            return item - item.dtype.type(first) < len(container)  # smaller numbers wrap around to large ones
        found: Any = False
        for part in container:
            found = found | equal(item, part, lanes)
        return found
    if not container.length:
        return False
    same = np.asarray(equal(lift(item, lanes, lanes + 1), container.element, lanes + 1))
    if container.present is not None:
        same = same & container.present
    return settled(same.any(axis=0)) if same.ndim > lanes else settled(same)
