"""The operators and functions of written programs, as Python defines them, for all rows of a mask at once.

Each takes the batch, the mask and, where needed, the number of lane axes at its place. Where Python would raise an
error, the row gets a fault and the result is arbitrary.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from llm_service.sandbox import lists
from llm_service.sandbox.batch import Batch
from llm_service.sandbox.comparisons import truth
from llm_service.sandbox.values import (
    Array,
    List,
    as_list,
    counted,
    floats,
    is_number,
    select,
    settled,
    size_checked,
)

_EXACT: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_DIVISIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


# ---- operators ------------------------------------------------------------------------------------------------------


def arithmetic(kind: type[ast.operator]) -> Callable[[Batch, Array, Any, Any], Any]:
    """The function for a binary operator; for **, see `power`."""
    if kind in _EXACT:
        exact = _EXACT[kind]
        return lambda batch, mask, a, b: batch.bounded(mask, exact(batch.number(mask, a), batch.number(mask, b)))
    return lambda batch, mask, a, b: _divided(batch, mask, _DIVISIONS[kind], a, b)


def _divided(batch: Batch, mask: Array, division: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    a, b = batch.number(mask, a), batch.number(mask, b)
    if isinstance(b, np.ndarray):
        zero = b == 0
        if np.count_nonzero(zero):
            batch.fault("division", mask, zero)
            b = np.where(zero, 1.0, b)
    elif b == 0:
        batch.fault("division", mask)
        return 0.0
    return batch.bounded(mask, division(a, b))


def power(batch: Batch, mask: Array, base: Any, exponent: float) -> Any:
    """The base raised to one of `grammar.EXPONENTS`, by products, so arrays and Python numbers give the same result."""
    base = batch.number(mask, base)
    if exponent == 0.5:
        negative = np.less(base, 0)
        if negative.any():
            batch.fault("root", mask, negative)
        return settled(np.sqrt(np.where(negative, 0.0, base)))
    result: Any = 1
    for _ in range(int(exponent)):
        result = batch.bounded(mask, result * base)
    return result


# ---- functions of numbers and of lists ------------------------------------------------------------------------------


def absolute(batch: Batch, mask: Array, value: Any) -> Any:
    """abs(value)."""
    return abs(batch.number(mask, value))


def number(batch: Batch, mask: Array, value: Any) -> Any:
    """float(value)."""
    value = batch.number(mask, value)
    return value if isinstance(value, np.ndarray) else float(value)


def whole(batch: Batch, mask: Array, value: Any) -> Any:
    """int(value), rounding towards zero."""
    value = batch.number(mask, value)
    return np.trunc(value) if isinstance(value, np.ndarray) else int(value)


def rounded(batch: Batch, mask: Array, value: Any, digits: Any = 0) -> Any:
    """round(value, digits), halves to even; exactly Python's result, which depends on all digits of a number."""
    value, digits = batch.number(mask, value), batch.number(mask, digits)
    broken = digits != np.trunc(digits)
    if np.any(broken):
        batch.fault("type", mask, broken)
    places = np.clip(np.trunc(digits), -30, 30)  # beyond these, rounding has no effect
    if not isinstance(value, np.ndarray) and not isinstance(digits, np.ndarray):
        return batch.bounded(mask, round(value, int(places)))
    if not isinstance(digits, np.ndarray) and digits == 0:
        return np.rint(value)
    values, places = np.broadcast_arrays(value, places)
    each = [round(float(x), int(n)) for x, n in zip(values.flat, places.flat, strict=True)]
    return batch.bounded(mask, np.array(each).reshape(values.shape))


def _column(batch: Batch, mask: Array, value: Any, lanes: int) -> tuple[Array, Array | None]:
    """The elements of a list of numbers, float64 or bool [length, *lanes], and the mask of those present."""
    if is_number(value):
        batch.fault("type", mask)
        return np.zeros((0,) + (1,) * lanes), None
    batch.spend(mask, *lists.extent(value))
    value = as_list(value, lanes)
    element = value.element
    if not is_number(element):
        batch.fault("type", mask)  # also for an empty list of lists, whose sum is useless
        element = 0.0
    array = np.asarray(element)
    array = array.reshape((1,) * (lanes + 1 - array.ndim) + array.shape)
    size_checked(value.length, *array.shape[1:])
    return np.broadcast_to(array, (value.length, *array.shape[1:])), value.present


def total(batch: Batch, mask: Array, value: Any, start: Any, lanes: int) -> Any:
    """sum(value, start), added in order, so that the result does not depend on the number of rows."""
    start = batch.number(mask, start)
    element: Any = value.element if isinstance(value, List) and value.present is not None else None
    if isinstance(element, int | float) and _is_whole(element):
        batch.spend(mask, *lists.extent(value))
        return batch.bounded(mask, start + settled(counted(value.present, 1) * float(element)))
    column, present = _column(batch, mask, value, lanes)
    if not len(column):
        return start
    column = floats(column) if present is None else np.where(present, floats(column), 0.0)
    return batch.bounded(mask, start + settled(_summed(column)))


def any_of(batch: Batch, mask: Array, value: Any, lanes: int) -> Any:
    """any(value) for a list of numbers."""
    column, present = _column(batch, mask, value, lanes)
    tests = truth(column)
    return settled((tests if present is None else tests & present).any(axis=0))


def all_of(batch: Batch, mask: Array, value: Any, lanes: int) -> Any:
    """all(value) for a list of numbers."""
    column, present = _column(batch, mask, value, lanes)
    tests = truth(column)
    return settled((tests if present is None else tests | ~present).all(axis=0))


def extreme(batch: Batch, mask: Array, values: list[Any], default: Any, largest: bool, lanes: int) -> Any:
    """min or max of several numbers, or of a list of numbers with a default (None for no default)."""
    better = np.maximum if largest else np.minimum
    if len(values) > 1:
        numbers = [batch.number(mask, value) for value in values]
        best = (max if largest else min)([x for x in numbers if not isinstance(x, np.ndarray)], default=None)
        for x in numbers:
            if isinstance(x, np.ndarray):
                best = x if best is None else better(best, x)
        return best
    column, present = _column(batch, mask, values[0], lanes)
    if present is None or not len(column):
        best = better.reduce(floats(column), axis=0, initial=-np.inf if largest else np.inf)
    else:
        best = _best(present, column, largest, lanes)
    empty = np.isinf(best)
    if not empty.any():
        return settled(best)
    if default is None:
        batch.fault("empty", mask, empty)
    return select(empty, 0.0 if default is None else batch.number(mask, default), np.where(empty, 0.0, best), lanes)


def gathered(mask: Array, kind: str, value: Any, shape: tuple[int, ...], own: int) -> Any:
    """The sum ("add"), "min" or "max" of the value over the lanes of the mask; keeps the last `own` axes."""
    axes = tuple(range(len(shape) - own))
    if kind == "add":
        if _is_whole(value):
            return counted(np.broadcast_to(mask, shape), len(axes)) * float(value)
        sums = np.broadcast_to(np.where(mask, value, 0.0), shape)
        for _ in axes:
            sums = _summed(sums)
        return sums
    return _best(mask, value, kind == "max", own)


def _best(mask: Array, value: Any, largest: bool, own: int) -> Any:
    """The largest or smallest value over the lanes of the mask, infinite for none; keeps the last `own` axes."""
    worst = -np.inf if largest else np.inf
    few = isinstance(value, np.ndarray) and value.shape[-1] == 1 < mask.shape[-1] and value.size < 256
    if few:  # the same for all rows: compare ranks, small integers, which is fast
        found, ranks = np.unique(value if largest else -value, return_inverse=True)
        table = np.append(worst, found if largest else -found)
        value = (ranks + 1).astype(np.uint8).reshape(value.shape) * mask
        better: Any = np.maximum
    else:
        value = np.where(mask, floats(value), worst)
        better = np.maximum if largest else np.minimum
    if value.ndim > own:
        value = better.reduce(value, axis=tuple(range(value.ndim - own)))
    return table[value] if few else value


def _summed(array: Array) -> Array:
    """The sum over the first axis, in order, so that the result does not depend on the number of rows."""
    if array.shape[-1] == 1:
        return np.cumsum(array, axis=0)[-1]  # type: ignore[no-any-return]
    return np.add.reduce(np.ascontiguousarray(array), axis=0)  # type: ignore[no-any-return]


def _is_whole(value: Any) -> bool:
    return not isinstance(value, np.ndarray) and value == int(value)


def together(batch: Batch, mask: Array, kind: str, one: Any, other: Any) -> Any:
    """The sum ("add"), "min" or "max" of two values."""
    if kind == "add":
        return batch.bounded(mask, one + other)
    return np.minimum(one, other) if kind == "min" else np.maximum(one, other)


def length(batch: Batch, mask: Array, value: Any) -> Any:
    """len(value)."""
    if is_number(value):
        batch.fault("type", mask)
        return 0
    return lists.size(value)


def _start(given: list[Any], named: list[Any]) -> Any:
    return [*given[1:], *named, 0][0]


Function: TypeAlias = Callable[[Batch, Array, list[Any], list[Any], int], Any]
"""Takes the batch, the mask, the positional arguments, the keyword arguments and the number of lane axes."""

FUNCTIONS: dict[str, Function] = {
    "abs": lambda batch, mask, given, named, lanes: absolute(batch, mask, *given),
    "all": lambda batch, mask, given, named, lanes: all_of(batch, mask, given[0], lanes),
    "any": lambda batch, mask, given, named, lanes: any_of(batch, mask, given[0], lanes),
    "enumerate": lambda batch, mask, given, named, lanes: lists.enumerated(
        batch, mask, given[0], _start(given, named), lanes
    ),
    "float": lambda batch, mask, given, named, lanes: number(batch, mask, *given),
    "int": lambda batch, mask, given, named, lanes: whole(batch, mask, *given),
    "len": lambda batch, mask, given, named, lanes: length(batch, mask, *given),
    "max": lambda batch, mask, given, named, lanes: extreme(batch, mask, given, [*named, None][0], True, lanes),
    "min": lambda batch, mask, given, named, lanes: extreme(batch, mask, given, [*named, None][0], False, lanes),
    "range": lambda batch, mask, given, named, lanes: lists.numbers_range(batch, mask, given, lanes),
    "round": lambda batch, mask, given, named, lanes: rounded(batch, mask, *given),
    "sum": lambda batch, mask, given, named, lanes: total(batch, mask, given[0], _start(given, named), lanes),
    "zip": lambda batch, mask, given, named, lanes: lists.zipped(batch, mask, given, lanes),
}
