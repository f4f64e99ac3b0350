"""Indexing, slicing and iterating over lists, for all rows of a mask at once.

Most functions take the batch, the mask and the number of lane axes at their place. Where Python would raise an error,
the row gets a fault and the result has no meaning.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from llm_service.sandbox.batch import MAX_STEPS, Batch
from llm_service.sandbox.values import (
    Array,
    Later,
    List,
    Window,
    any_lane,
    as_list,
    cut,
    floats,
    gather,
    is_number,
    lift,
    packed,
    pick,
    settled,
    size_checked,
)

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
    whole = isinstance(i, np.ndarray) and i.dtype.kind in "iu"
    if whole and isinstance(length, int) and np.minimum.reduce(i, None) >= 0 and np.maximum.reduce(i, None) < length:
        return gather(ragged.element, i.astype(np.intp), lanes)
    i = np.asarray(floats(i), float)
    bad = (i != np.floor(i)) | (i < -length) | (i >= length)
    if bad.any():
        batch.fault("index", mask, bad)
        i = np.where(bad, 0.0, i)
    return gather(ragged.element, np.where(i < 0, i + length, i).astype(np.intp), lanes)


def part(batch: Batch, mask: Array, value: Any, bounds: tuple[Any, Any, Any], lanes: int) -> Any:
    """value[start:stop:step]; None for an omitted bound."""
    if is_number(value) or not all(bound is None or is_number(bound) for bound in bounds):
        batch.fault("type", mask)
        return 0.0
    if not any(isinstance(bound, np.ndarray) for bound in bounds):
        if any(bound is not None and bound != int(bound) for bound in bounds) or bounds[2] == 0:
            batch.fault("index", mask)
            return 0.0
        places = slice(*(None if bound is None else int(bound) for bound in bounds))
        if isinstance(value, Window):
            parts = value[places]
            return Window.of(parts, Later(len(parts), lambda: cut(value.together.element, places, lanes)))
        if isinstance(value, tuple):
            return value[places]
        if value.present is None:
            return List(len(range(value.length)[places]), cut(value.element, places, lanes))
    ragged = packed(as_list(value, lanes), lanes)
    n = np.asarray(size(ragged), float)
    start, stop, step = bounds
    step = np.asarray(1.0 if step is None else floats(step), float)
    numbers = [np.asarray(floats(bound), float) for bound in (start, stop, step) if bound is not None]
    bad = np.logical_or.reduce(np.broadcast_arrays(step == 0, *(x != np.floor(x) for x in numbers)))
    if bad.any():
        batch.fault("index", mask, bad)
        step = np.where(step == 0, 1.0, step)
    if not ragged.length:
        return ragged
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
    """The maximum length of a list, and the mask of present elements; None if all are."""
    return (len(value), None) if isinstance(value, tuple) else (value.length, value.present)


def unpacked(batch: Batch, mask: Array, value: Any, count: int, lanes: int) -> tuple[Any, ...] | None:
    """The elements of a list of length `count`, one per name; None if no row has a list of that length."""
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
    """A list to iterate over, its maximum length, and which elements are present; counts them as steps."""
    before = batch.alive
    if is_number(value):
        batch.fault("type", mask)
        value = ()
    batch.spend(mask, *extent(value))
    if batch.alive is not before and not np.count_nonzero(mask & batch.alive):
        value = ()  # no row is left to iterate over it
    return value, *extent(value)


def last(value: Any, assigned: Array, length: int, lanes: int) -> tuple[Array, Any]:
    """The mask where any of `length` rounds assigned, and the value that the last of these assigned."""
    if assigned.ndim <= lanes:
        return assigned, pick(value, length - 1, lanes)
    assigned = np.broadcast_to(assigned, (length, *assigned.shape[1:]))
    place = length - 1 - np.argmax(assigned[::-1], axis=0)
    return any_lane(assigned, lanes), gather(value, place, lanes)


def numbers_range(batch: Batch, mask: Array, bounds: list[Any], lanes: int) -> Any:
    """range(stop), range(start, stop) or range(start, stop, step)."""
    bounds = [batch.number(mask, bound) for bound in bounds]
    start, stop, step = [0, bounds[0], 1] if len(bounds) == 1 else [*bounds, 1][:3]
    if type(start) is type(stop) is type(step) is int and step and len(range(start, stop, step)) <= MAX_STEPS:
        return _numbers(start, stop, step, lanes)
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
        count = np.where(mask, count, 0.0)  # the ranges of other rows must not matter
    return _ranged(parts[0], parts[2], count, int(count.max()), lanes)


@functools.lru_cache(1024)
def _numbers(start: int, stop: int, step: int, lanes: int) -> List:
    numbers = np.arange(start, stop, step)
    numbers.flags.writeable = False
    return List(len(numbers), numbers.reshape((-1,) + (1,) * lanes)) if len(numbers) else List(0, 0.0)


def _ranged(start: Array, step: Array, count: Array, longest: int, lanes: int) -> List:
    """For each lane, `count` numbers from `start` in steps of `step`."""
    if not longest:
        return List(0, 0.0)
    size_checked(longest, *np.broadcast_shapes(start.shape, step.shape, count.shape))
    places = np.arange(longest, dtype=float).reshape((longest,) + (1,) * lanes)
    present = None if count.size == 1 and count.max() == longest else places < count
    return List(longest, start + step * places, present)


def enumerated(batch: Batch, mask: Array, value: Any, start: Any, lanes: int) -> Any:
    """enumerate(value, start)."""
    if is_number(value):
        batch.fault("type", mask)
        return ()
    start = batch.number(mask, start)
    places = np.arange(extent(value)[0]).reshape((-1,) + (1,) * lanes)
    if isinstance(value, tuple):
        parts = tuple((start + i, element) for i, element in enumerate(value))
        if not isinstance(value, Window):
            return parts
        return Window.of(parts, Later(len(parts), lambda: (start + places, value.together.element)))
    value = packed(value, lanes)
    return List(value.length, (start + places, value.element), value.present)


def zipped(batch: Batch, mask: Array, values: list[Any], lanes: int) -> Any:
    """zip(*values)."""
    if any(map(is_number, values)):
        batch.fault("type", mask)
        return ()
    if all(isinstance(value, tuple) for value in values):
        parts = batch.structured(mask, tuple(zip(*values, strict=False)))
        if not parts or not any(isinstance(value, Window) for value in values):
            return parts
        short = slice(len(parts))
        together = Later(
            len(parts), lambda: tuple([cut(as_list(value, lanes).element, short, lanes) for value in values])
        )
        return Window.of(parts, together)
    lists = [packed(as_list(value, lanes), lanes) for value in values]
    length = min(value.length for value in lists)
    presences = [value.present[:length] for value in lists if value.present is not None]
    present = np.logical_and.reduce(np.broadcast_arrays(*presences)) if presences else None
    element = tuple(cut(value.element, slice(length), lanes) for value in lists)
    return batch.structured(mask, List(length, element, present))
