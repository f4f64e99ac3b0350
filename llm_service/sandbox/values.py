"""The values that a written program computes with, for many observations at once.

A Python number is a value that all rows share; an array holds one number for each *lane*. The last lane axis is the
rows of the batch. Each comprehension adds an axis in front for its elements, so an array from outside broadcasts inside
without reshaping. An array that is constant along an axis has length 1 there, or lacks the axis.

The elements of a `List` all have the same structure and one more lane axis; a Python tuple has parts of any structure.
A program sees both as lists. So a list of lists of numbers is one array, with the innermost list first:

    observations int [N, K, W, H, C]  is  List(K, List(W, List(H, List(C, int array [C, H, W, K, N]))))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Number: TypeAlias = bool | int | float | Array
Value: TypeAlias = "Number | tuple[Any, ...] | List"

MAX_ELEMENTS = 2**20  # per array, over all rows: 8 MiB
MAX_PARTS = 1_000  # per value, see `structure`
MAX_NESTED = 12


class Split(Exception):
    """The rows of a batch cannot continue together.

    Attributes:
        kind: the fault of a row that cannot continue alone either.
        rows: bool [N], the first of two groups to run separately; None to split in half.
        elements: the elements that an array would need for these rows; 0 if size is not the reason.
    """

    def __init__(self, kind: str, rows: Array | None = None, elements: float = 0.0) -> None:
        super().__init__(kind)
        self.kind, self.rows, self.elements = kind, rows, elements


class List:
    """A list of at most `length` elements.

    Attributes:
        element: all its elements as one value; its arrays have the element axis in front of the list's lane axes.
        present: bool [length, *lanes], which elements are present on each lane; None if all are.
    """

    def __init__(self, length: int, element: Value, present: Array | None = None) -> None:
        self.length, self.element, self.present = length, element, present


class Later(List):
    """A list whose `element` is computed once, on first use."""

    def __init__(self, length: int, make: Callable[[], Value]) -> None:
        self.length, self.present, self._make = length, None, make

    @cached_property
    def element(self) -> Value:  # type: ignore[override]
        return self._make()


class Window(tuple[Any, ...]):
    """A tuple whose parts have the same structure, so it is also available as one `List`."""

    together: List

    @classmethod
    def of(cls, parts: Iterable[Any], together: List) -> Window:
        """The window with these parts."""
        window = cls(parts)
        window.together = together
        return window


def is_number(value: Value) -> bool:
    """Whether the value is a number, not a list."""
    return not isinstance(value, tuple | List)


def floats(value: Any) -> Any:
    """The number for arithmetic: arrays become float64, which is exact for whole numbers up to 2**53."""
    if isinstance(value, np.ndarray) and value.dtype != np.float64:
        return value.astype(np.float64)
    return value


def settled(array: Any) -> Number:
    """An array of size 1 as a Python number, shared by all rows; other arrays unchanged."""
    return array.item() if array.size == 1 else array  # type: ignore[no-any-return]


def any_lane(mask: Array, lanes: int) -> Array:
    """The mask reduced to `lanes` axes: whether it holds on any lane of the inner axes."""
    return np.logical_or.reduce(mask, axis=tuple(range(mask.ndim - lanes))) if mask.ndim > lanes else mask


def counted(mask: Array, axes: int) -> Array:
    """The number of lanes along the first axes where the mask holds. Starts with small integers, which are fast."""
    counts, most = mask.view(np.uint8), 1
    for _ in range(axes):
        most *= len(counts)
        counts = np.add.reduce(counts, axis=0, dtype=np.uint8 if most < 256 else np.int32)
    return counts


def size_checked(*lengths: int) -> None:
    """Raise `Split` if an array with these lengths would be too large."""
    if (elements := math.prod(lengths)) > MAX_ELEMENTS:
        raise Split("memory", elements=elements)


def structure(value: Any, depth: int = 0) -> int:
    """The number of parts in the structure of a value; more than MAX_PARTS if nested deeper than MAX_NESTED."""
    if is_number(value):
        return 1
    if depth > MAX_NESTED:
        return MAX_PARTS + 1
    if isinstance(value, Later):
        return 2
    parts = 1
    for part in value if isinstance(value, tuple) else (value.element,):
        parts += structure(part, depth + 1)
        if parts > MAX_PARTS:
            break
    return parts


def as_list(value: Any, lanes: int) -> List:
    """The list as a `List`."""
    if isinstance(value, List):
        return value
    if isinstance(value, Window):
        return value.together
    return List(len(value), _stacked(value, lanes)) if value else List(0, 0.0)


def each(change: Callable[[Array], Any], value: Any) -> Any:
    """The value with `change` applied to each of its arrays."""
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, Window):
        return Window.of([each(change, part) for part in value], each(change, value.together))
    if isinstance(value, tuple):
        return tuple([each(change, part) for part in value])
    if isinstance(value, Later):
        return Later(value.length, lambda: each(change, value.element))
    if isinstance(value, List):
        return List(value.length, each(change, value.element), None if value.present is None else change(value.present))
    return value


def by_rows(value: Any) -> Any:
    """The value with neighbouring rows contiguous in memory, which is faster."""
    return each(lambda a: a if a.shape[-1] == 1 or a.strides[-1] == a.itemsize else np.ascontiguousarray(a), value)


# ---- places ---------------------------------------------------------------------------------------------------------


def lift(value: Any, lanes: int, deeper: int) -> Any:
    """The same value for a place with more lane axes."""

    def lifted(array: Array) -> Array:
        if array.ndim <= lanes:
            return array
        return array.reshape(array.shape[:-lanes] + (1,) * (deeper - lanes) + array.shape[-lanes:])

    return value if lanes == deeper else each(lifted, value)


def pick(element: Any, i: int, lanes: int) -> Any:
    """Element i of a list, given its `element`."""
    if isinstance(element, np.ndarray):
        picked = _picked(element, i, lanes)
        return picked.item() if picked.size == 1 else picked
    if isinstance(element, tuple):
        return tuple([pick(part, i, lanes) for part in element])
    if isinstance(element, List):
        present = None if element.present is None else _picked(element.present, i, lanes)
        return List(element.length, pick(element.element, i, lanes), present)
    return element


def _picked(array: Array, i: int, lanes: int) -> Array:
    if array.ndim <= lanes:
        return array
    if array.shape[-lanes - 1] == 1:
        i = 0
    return _at(array, i, lanes)


def _at(array: Any, i: int | slice | Array, lanes: int) -> Array:
    taken: Array = array[..., i, :] if lanes == 1 else array[(..., i, *[slice(None)] * lanes)]
    return taken


def cut(element: Any, part: slice, lanes: int) -> Any:
    """The `element` of a slice of a list, given the list's `element`."""

    def picked(array: Array) -> Array:
        if array.ndim <= lanes or array.shape[-lanes - 1] == 1:
            return array
        return _at(array, part, lanes)

    return each(picked, element)


def gather(element: Any, index: Array, lanes: int) -> Any:
    """For each lane the element at `index` (int, broadcastable to the lanes, not negative, within the list)."""
    index = index.reshape((1,) * (lanes - index.ndim) + index.shape)
    varying = [axis for axis, n in enumerate(index.shape) if n > 1]

    def gathered(array: Array) -> Array:
        if array.ndim <= lanes or array.shape[-lanes - 1] == 1:
            return _picked(array, 0, lanes)
        inner, own = array.shape[: -lanes - 1], array.shape[-lanes:]
        if len(varying) == 1 and own[varying[0]] == 1:  # as in a loop over a range: only the axes change
            numbers = index.ravel().tolist()
            first, end = numbers[0], numbers[-1] + 1
            steady = numbers == list(range(first, end))
            taken = _at(array, slice(first, end) if steady else index.ravel(), lanes)
            return _picked(taken.swapaxes(-lanes - 1, -lanes + varying[0]), 0, lanes)
        size_checked(*inner, *np.broadcast_shapes(index.shape, own))
        places = [np.arange(n).reshape((n,) + (1,) * (lanes - 1 - axis)) for axis, n in enumerate(own)]
        place: Any = (*[slice(None)] * len(inner), index, *places)
        return cast(Array, array[place])

    return each(gathered, element)


# ---- structure ------------------------------------------------------------------------------------------------------


def select(chosen: Array, one: Any, other: Any, lanes: int) -> Any:
    """`one` where chosen, otherwise `other`."""
    if is_number(one) and is_number(other):
        if not is_truth(one) or not is_truth(other):
            one, other = floats(one), floats(other)
        return np.where(chosen, one, other)
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return tuple(select(chosen, a, b, lanes) for a, b in zip(one, other, strict=True))
    if is_number(one) or is_number(other):
        if chosen.all():
            return one
        if not chosen.any():
            return other
        raise Split("type", any_lane(chosen, 1))
    one, other = alike([as_list(one, lanes), as_list(other, lanes)], lanes)
    present = None
    if one.present is not None or other.present is not None:
        present = np.where(chosen, presence(one, lanes), presence(other, lanes))
    return List(one.length, select(chosen, one.element, other.element, lanes + 1), present)


def is_truth(value: Any) -> bool:
    """Whether it is a bool or an array of bool."""
    return value.dtype == np.bool_ if isinstance(value, np.ndarray) else isinstance(value, bool)


def _stacked(values: Sequence[Any], lanes: int) -> Any:
    """The `element` of a list with these values."""
    if all(map(is_number, values)):
        kinds = {value.dtype if isinstance(value, np.ndarray) else np.dtype(type(value)) for value in values}
        dtype = kinds.pop() if len(kinds) == 1 else np.float64
        return _stacked_arrays([np.asarray(value, dtype) for value in values], lanes)
    if any(map(is_number, values)):
        raise Split("type")
    if all(isinstance(value, tuple) for value in values) and len({len(value) for value in values}) == 1:
        return tuple(_stacked(parts, lanes) for parts in zip(*values, strict=True))
    lists = alike([as_list(value, lanes) for value in values], lanes)
    present = None
    if any(part.present is not None for part in lists):
        present = _stacked_arrays([presence(part, lanes) for part in lists], lanes)
    return List(lists[0].length, _stacked([part.element for part in lists], lanes), present)


def _stacked_arrays(arrays: list[Array], lanes: int) -> Array:
    deep = [lift(a.reshape((1,) * (lanes - a.ndim) + a.shape), lanes, lanes + 1) for a in arrays]
    deep = [a.reshape((1,) * (lanes + 1 - a.ndim) + a.shape) for a in deep]
    size_checked(len(deep), *np.broadcast_shapes(*(a.shape for a in deep)))
    return np.concatenate(np.broadcast_arrays(*deep), axis=-lanes - 1)


def presence(value: List, lanes: int) -> Array:
    return np.ones((value.length,) + (1,) * lanes, bool) if value.present is None else value.present


def alike(lists: list[List], lanes: int) -> list[List]:
    """The lists padded at the end to the same length, with elements marked as not present."""
    longest = max(lists, key=lambda part: part.length)

    def widened(part: List) -> List:
        missing = longest.length - part.length
        if not missing:
            return part
        present = np.pad(presence(part, lanes), ((0, missing), *[(0, 0)] * lanes))
        if not part.length:
            return List(longest.length, longest.element, present)
        return List(longest.length, each(padded, part.element), present)

    def padded(array: Array) -> Array:
        if array.ndim <= lanes or array.shape[-lanes - 1] == 1:
            return array
        missing = longest.length - array.shape[-lanes - 1]
        widths = [(0, 0)] * (array.ndim - lanes - 1) + [(0, missing)] + [(0, 0)] * lanes
        return np.pad(array, widths)

    return [widened(part) for part in lists]


def packed(value: List, lanes: int) -> List:
    """The list with its present elements moved to the front."""
    if value.present is None:
        return value
    order = np.argsort(~value.present, axis=0, kind="stable")
    element = gather(lift(value.element, lanes, lanes + 1), order, lanes + 1)
    return List(value.length, element, np.take_along_axis(value.present, order, axis=0))


def flattened(outer: List, lanes: int) -> List:
    """A `List` of `List`s flattened by one level, in order."""
    inner = outer.element
    if not isinstance(inner, List) or not outer.length * inner.length:
        return List(0, 0.0)

    def flat(array: Array) -> Array:
        if array.ndim <= lanes:
            return array
        array = array.reshape((1,) * (lanes + 2 - array.ndim) + array.shape)
        first, own = array.shape[: -lanes - 2], array.shape[-lanes:]
        size_checked(*first, inner.length, outer.length, *own)
        array = np.broadcast_to(array, (*first, inner.length, outer.length, *own)).swapaxes(-lanes - 2, -lanes - 1)
        return array.reshape(*first, -1, *own)

    present = None
    if outer.present is not None or inner.present is not None:
        present = flat(presence(inner, lanes + 1) & presence(outer, lanes))
    return List(outer.length * inner.length, each(flat, inner.element), present)
