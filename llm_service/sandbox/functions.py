"""The operators and functions of written programs, as Python defines them, for all rows of a mask at once.

Each takes the batch, the mask and how many axes of lanes there are at its place. Where Python would raise an error, the
row has a fault and the result is any number.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from llm_service.sandbox.batch import MAX_STEPS, Batch
from llm_service.sandbox.values import (
    Array,
    List,
    Value,
    as_list,
    contains,
    cut,
    equal,
    floats,
    gather,
    is_number,
    lift,
    packed,
    pick,
    select,
    settled,
    size_checked,
    truth,
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
_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


# ---- operators ------------------------------------------------------------------------------------------------------


def arithmetic(kind: type[ast.operator]) -> Callable[[Batch, Array, Any, Any], Any]:
    """The operator of two values; ** is `power`."""
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
    """The base to one of `grammar.EXPONENTS`, by products, which are the same for arrays and for Python's numbers."""
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


def compare(batch: Batch, mask: Array, kind: type[ast.cmpop], a: Any, b: Any, lanes: int) -> Any:
    """The comparison: a bool, or an array of bool."""
    if kind in _ORDERS:
        if is_number(a) and is_number(b):
            return _ORDERS[kind](a, b)
        batch.fault("type", mask)
        return False
    if kind is ast.Eq:
        return equal(a, b, lanes)
    if kind is ast.NotEq:
        return opposite(equal(a, b, lanes))
    found: Any = False
    if is_number(b):
        batch.fault("type", mask)
    else:
        batch.spend(mask, *extent(b))
        found = contains(b, a, lanes)
    return found if kind is ast.In else opposite(found)


def opposite(test: Any) -> Any:
    """Python's `not` of a bool or an array of bool."""
    return ~test if isinstance(test, np.ndarray) else not test


# ---- places in lists ------------------------------------------------------------------------------------------------


def item(batch: Batch, mask: Array, value: Any, i: Any, lanes: int) -> Any:
    """value[i]."""
    if is_number(value) or not is_number(i):
        batch.fault("type", mask)
        return 0.0
    if not isinstance(i, np.ndarray) and (isinstance(value, tuple) or value.present is None):
        length = len(value) if isinstance(value, tuple) else value.length
        if i != int(i) or not -length <= i < length:
            batch.fault("index", mask)
            return 0.0
        i = int(i)
        return value[i] if isinstance(value, tuple) else pick(value.element, i % length, lanes)
    ragged = packed(as_list(value, lanes), lanes)
    if not ragged.length:
        batch.fault("index", mask)
        return 0.0
    length = size(ragged)
    i = np.asarray(floats(i), float)
    bad = (i != np.floor(i)) | (i < -length) | (i >= length)
    if bad.any():
        batch.fault("index", mask, bad)
        i = np.where(bad, 0.0, i)
    return gather(ragged.element, np.where(i < 0, i + length, i).astype(np.intp), lanes)


def part(batch: Batch, mask: Array, value: Any, bounds: tuple[Any, Any, Any], lanes: int) -> Any:
    """value[start:stop:step], with None for what is left out."""
    if is_number(value) or not all(bound is None or is_number(bound) for bound in bounds):
        batch.fault("type", mask)
        return 0.0
    if not any(isinstance(bound, np.ndarray) for bound in bounds):
        if any(bound is not None and bound != int(bound) for bound in bounds) or bounds[2] == 0:
            batch.fault("index", mask)
            return 0.0
        places = slice(*(None if bound is None else int(bound) for bound in bounds))
        if isinstance(value, tuple):
            return value[places]
        if value.present is None:
            return List(len(range(value.length)[places]), cut(value.element, places, lanes))
    ragged = packed(as_list(value, lanes), lanes)
    if not ragged.length:
        return ragged
    n = np.asarray(size(ragged), float)
    start, stop, step = bounds
    step = np.asarray(1.0 if step is None else floats(step), float)
    numbers = [np.asarray(floats(bound), float) for bound in (start, stop, step) if bound is not None]
    bad = np.logical_or.reduce(np.broadcast_arrays(step == 0, *(x != np.floor(x) for x in numbers)))
    if bad.any():
        batch.fault("index", mask, bad)
        step = np.where(step == 0, 1.0, step)
    low, high = np.where(step > 0, 0, -1), np.where(step > 0, n, n - 1)

    def clipped(bound: Any, default: Array) -> Array:
        bound = default if bound is None else np.asarray(floats(bound), float)
        wrapped = bound if bound is default else np.where(bound < 0, bound + n, bound)
        return np.clip(wrapped, low, high)

    first = clipped(start, np.where(step > 0, low, high))
    last = clipped(stop, np.where(step > 0, high, low))
    count = np.maximum(np.ceil((last - first) / step), 0.0)
    ranged = _ranged(first, step, count, ragged.length, lanes)
    index = np.clip(np.asarray(ranged.element), 0, ragged.length - 1).astype(np.intp)
    return List(ragged.length, gather(lift(ragged.element, lanes, lanes + 1), index, lanes + 1), ranged.present)


def size(value: Any) -> Any:
    """len(value): an int, or an array of float64."""
    if isinstance(value, tuple):
        return len(value)
    return value.length if value.present is None else settled(value.present.sum(axis=0, dtype=np.float64))


def extent(value: Any) -> tuple[int, Array | None]:
    """The most elements of a list, and which are present; None if all."""
    return (len(value), None) if isinstance(value, tuple) else (value.length, value.present)


def unpacked(batch: Batch, mask: Array, value: Any, count: int, lanes: int) -> tuple[Any, ...] | None:
    """The elements of a list of so many, for as many names; None if no row has so many."""
    if is_number(value):
        batch.fault("type", mask)
        return None
    wrong = np.asarray(size(value) != count)
    if wrong.any():
        batch.fault("unpack", mask, wrong)
    if extent(value)[0] < count or (wrong.all() and wrong.size == 1):
        return None
    if isinstance(value, tuple):
        return value
    value = packed(value, lanes)
    return tuple(pick(value.element, i, lanes) for i in range(count))


# ---- loops ----------------------------------------------------------------------------------------------


def elements(batch: Batch, mask: Array, value: Any) -> tuple[Any, int, Array | None]:
    """A list to run over, how many elements it has at most, and which are present; counts them as steps."""
    before = batch.alive
    if is_number(value):
        batch.fault("type", mask)
        value = ()
    batch.spend(mask, *extent(value))
    if batch.alive is not before and not np.count_nonzero(mask & batch.alive):
        value = ()  # nobody is left to run over it
    return value, *extent(value)


def gathered(mask: Array, kind: str, value: Any, shape: tuple[int, ...], own: int) -> Any:
    """The sum ("add"), "min" or "max" of the value over the lanes of the mask, but for the last `own` axes."""
    axes = tuple(range(len(shape) - own))
    if kind == "add":
        if _is_whole(value):
            return np.broadcast_to(mask, shape).sum(axis=axes, dtype=np.int32) * float(value)
        sums = np.broadcast_to(np.where(mask, value, 0.0), shape)
        for _ in axes:
            sums = _summed(sums)
        return sums
    worst = np.inf if kind == "min" else -np.inf
    found = np.where(mask, floats(value), worst)
    better = np.minimum if kind == "min" else np.maximum
    return better.reduce(found, axis=tuple(range(found.ndim - own))) if found.ndim > own else found


def _summed(array: Array) -> Array:
    """The sum over the first axis, in order, so that it does not depend on how many rows there are."""
    if array.shape[-1] == 1:
        return np.cumsum(array, axis=0)[-1]  # type: ignore[no-any-return]
    return np.add.reduce(np.ascontiguousarray(array), axis=0)  # type: ignore[no-any-return]


def _is_whole(value: Any) -> bool:
    return not isinstance(value, np.ndarray) and value == int(value)


def together(batch: Batch, mask: Array, kind: str, one: Any, other: Any) -> Any:
    """Their sum ("add"), "min" or "max"."""
    if kind == "add":
        return batch.bounded(mask, one + other)
    return np.minimum(one, other) if kind == "min" else np.maximum(one, other)


def last(value: Any, assigned: Array, length: int, lanes: int) -> tuple[Array, Any]:
    """Where any of `length` rounds has assigned, and what the last of them did."""
    if assigned.ndim <= lanes:
        return assigned, pick(value, length - 1, lanes)
    assigned = np.broadcast_to(assigned, (length, *assigned.shape[1:]))
    place = length - 1 - np.argmax(assigned[::-1], axis=0)
    return assigned.any(axis=0), gather(value, place, lanes)


def numbers_range(batch: Batch, mask: Array, bounds: list[Any], lanes: int) -> Value:
    """range(stop), range(start, stop) or range(start, stop, step)."""
    bounds = [batch.number(mask, bound) for bound in bounds]
    start, stop, step = [0, bounds[0], 1] if len(bounds) == 1 else [*bounds, 1][:3]
    parts = [np.asarray(x, float) for x in (start, stop, step)]
    bad = np.logical_or.reduce(np.broadcast_arrays(parts[2] == 0, *(x != np.floor(x) for x in parts)))
    if bad.any():
        batch.fault("index", mask, bad)
        parts = [np.where(bad, default, x) for x, default in zip(parts, (0.0, 0.0, 1.0), strict=True)]
    count = np.maximum(np.ceil((parts[1] - parts[0]) / parts[2]), 0.0)
    long = count > MAX_STEPS
    if long.any():
        batch.fault("steps", mask, long)
        count = np.where(long, 0.0, count)
    if count.size > 1:
        count = np.where(mask, count, 0.0)  # what other rows would run over must not matter
    return _ranged(parts[0], parts[2], count, int(count.max()), lanes)


def _ranged(start: Array, step: Array, count: Array, longest: int, lanes: int) -> List:
    """For each lane the numbers from start by step."""
    if not longest:
        return List(0, 0.0)
    size_checked(longest, *np.broadcast_shapes(start.shape, step.shape, count.shape))
    places = np.arange(longest, dtype=float).reshape((longest,) + (1,) * lanes)
    present = None if count.size == 1 and count.max() == longest else places < count
    return List(longest, start + step * places, present)


def enumerated(batch: Batch, mask: Array, value: Any, start: Any, lanes: int) -> Value:
    """enumerate(value, start)."""
    if is_number(value):
        batch.fault("type", mask)
        return ()
    start = batch.number(mask, start)
    if isinstance(value, tuple):
        return tuple((start + i, element) for i, element in enumerate(value))
    value = packed(value, lanes)
    places = np.arange(value.length, dtype=float).reshape((value.length,) + (1,) * lanes)
    return List(value.length, (start + places, value.element), value.present)


def zipped(batch: Batch, mask: Array, values: list[Any], lanes: int) -> Value:
    """zip(*values)."""
    if any(map(is_number, values)):
        batch.fault("type", mask)
        return ()
    if all(isinstance(value, tuple) for value in values):
        return batch.structured(mask, tuple(zip(*values, strict=False)))
    lists = [packed(as_list(value, lanes), lanes) for value in values]
    length = min(value.length for value in lists)
    presences = [value.present[:length] for value in lists if value.present is not None]
    present = np.logical_and.reduce(np.broadcast_arrays(*presences)) if presences else None
    element = tuple(cut(value.element, slice(length), lanes) for value in lists)
    return batch.structured(mask, List(length, element, present))


# ---- functions of numbers and of lists ------------------------------------------------------------------------------


def absolute(batch: Batch, mask: Array, value: Any) -> Any:
    """abs(value)."""
    return abs(batch.number(mask, value))


def number(batch: Batch, mask: Array, value: Any) -> Any:
    """float(value)."""
    value = batch.number(mask, value)
    return value if isinstance(value, np.ndarray) else float(value)


def whole(batch: Batch, mask: Array, value: Any) -> Any:
    """int(value), towards zero."""
    value = batch.number(mask, value)
    return np.trunc(value) if isinstance(value, np.ndarray) else int(value)


def rounded(batch: Batch, mask: Array, value: Any, digits: Any = 0) -> Any:
    """round(value, digits), halves to the even digit; exactly Python's, which looks at all digits of a number."""
    value, digits = batch.number(mask, value), batch.number(mask, digits)
    if isinstance(digits, np.ndarray):
        batch.fault("type", mask, digits != digits.flat[0])
        digits = digits.flat[0]
    places = int(max(-30, min(30, digits)))  # beyond, float64 has no digits
    if places != digits and abs(digits) <= 30:
        batch.fault("type", mask)
    if not isinstance(value, np.ndarray):
        return round(value, places)
    if not places:
        return np.rint(value)
    return np.array([round(x, places) for x in value.ravel().tolist()]).reshape(value.shape)


def _column(batch: Batch, mask: Array, value: Any, lanes: int) -> tuple[Array, Array | None]:
    """The elements float64 or bool [length, *lanes] of a list of numbers, and which are present."""
    if is_number(value):
        batch.fault("type", mask)
        return np.zeros((0,) + (1,) * lanes), None
    batch.spend(mask, *extent(value))
    value = as_list(value, lanes)
    element = value.element
    if not is_number(element):
        batch.fault("type", mask)  # also where a list of lists is empty, which has no sum worth having
        element = 0.0
    array = np.asarray(element)
    array = array.reshape((1,) * (lanes + 1 - array.ndim) + array.shape)
    size_checked(value.length, *array.shape[1:])
    return np.broadcast_to(array, (value.length, *array.shape[1:])), value.present


def total(batch: Batch, mask: Array, value: Any, start: Any, lanes: int) -> Any:
    """sum(value, start), added in order, so that it does not depend on how many rows there are."""
    start = batch.number(mask, start)
    column, present = _column(batch, mask, value, lanes)
    if not len(column):
        return start
    column = floats(column) if present is None else np.where(present, floats(column), 0.0)
    return batch.bounded(mask, start + settled(_summed(column)))


def any_of(batch: Batch, mask: Array, value: Any, lanes: int) -> Any:
    """any(value) of numbers."""
    column, present = _column(batch, mask, value, lanes)
    tests = truth(column)
    return settled((tests if present is None else tests & present).any(axis=0))


def all_of(batch: Batch, mask: Array, value: Any, lanes: int) -> Any:
    """all(value) of numbers."""
    column, present = _column(batch, mask, value, lanes)
    tests = truth(column)
    return settled((tests if present is None else tests | ~present).all(axis=0))


def extreme(batch: Batch, mask: Array, values: list[Any], default: Any, largest: bool, lanes: int) -> Any:
    """min or max of several numbers, or of a list of numbers with a default (None if there is none)."""
    better = np.maximum if largest else np.minimum
    if len(values) > 1:
        numbers = [batch.number(mask, value) for value in values]
        best = (max if largest else min)([x for x in numbers if not isinstance(x, np.ndarray)], default=None)
        for x in numbers:
            if isinstance(x, np.ndarray):
                best = x if best is None else better(best, x)
        return best
    column, present = _column(batch, mask, values[0], lanes)
    worst = -np.inf if largest else np.inf
    column = floats(column) if present is None else np.where(present, floats(column), worst)
    best = better.reduce(column, axis=0, initial=worst)
    empty = np.isinf(best)
    if not empty.any():
        return settled(best)
    if default is None:
        batch.fault("empty", mask, empty)
    return select(empty, 0.0 if default is None else batch.number(mask, default), np.where(empty, 0.0, best), lanes)


def length(batch: Batch, mask: Array, value: Any) -> Any:
    """len(value)."""
    if is_number(value):
        batch.fault("type", mask)
        return 0
    return size(value)


Function = Callable[[Batch, Array, list[Any], list[Any], int], Any]
FUNCTIONS: dict[str, Function] = {  # by their arguments, those by name, and lanes
    "abs": lambda batch, mask, given, named, lanes: absolute(batch, mask, *given),
    "all": lambda batch, mask, given, named, lanes: all_of(batch, mask, *given, lanes),
    "any": lambda batch, mask, given, named, lanes: any_of(batch, mask, *given, lanes),
    "enumerate": lambda batch, mask, given, named, lanes: enumerated(batch, mask, *[*given, *named, 0][:2], lanes),
    "float": lambda batch, mask, given, named, lanes: number(batch, mask, *given),
    "int": lambda batch, mask, given, named, lanes: whole(batch, mask, *given),
    "len": lambda batch, mask, given, named, lanes: length(batch, mask, *given),
    "max": lambda batch, mask, given, named, lanes: extreme(batch, mask, given, [*named, None][0], True, lanes),
    "min": lambda batch, mask, given, named, lanes: extreme(batch, mask, given, [*named, None][0], False, lanes),
    "range": lambda batch, mask, given, named, lanes: numbers_range(batch, mask, given, lanes),
    "round": lambda batch, mask, given, named, lanes: rounded(batch, mask, *given),
    "sum": lambda batch, mask, given, named, lanes: total(batch, mask, *[*given, *named, 0][:2], lanes),
    "zip": lambda batch, mask, given, named, lanes: zipped(batch, mask, given, lanes),
}
