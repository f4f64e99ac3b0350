"""The kind of a value: what is known of it at compile time, which determines its size in bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

from llm_service.sandbox.batch import LARGEST

SMALL, LARGE = 1 << 32, int(LARGEST)
"""The limit below which sums and products of integers need no check, and the limit of all integers."""

MAX_PARTS = 400  # of a value, well below the interpreter's limit
MAX_DEPTH = 8


class NotCompiled(Exception):
    """The interpreter must run the program, or these rows; the message says why."""


class TooLarge(NotCompiled):
    """Lists could become too long. Shorter ranges may avoid it."""


@dataclass(frozen=True)
class NumberKind:
    """A number.

    Attributes:
        limit: the maximum magnitude of an integer (SMALL or LARGE); None for a float64.
    """

    limit: int | None


@dataclass(frozen=True)
class ViewKind:
    """A list inside the input arrays.

    Attributes:
        dtype: dtype of its numbers, such as "<i8".
        inner: the shape of each element.
        most: maximum number of elements.
        indirect: it is a list of indices of observations.
        exact: its numbers are contiguous, and it has exactly `most` elements.
    """

    dtype: str
    inner: tuple[int, ...]
    most: int
    indirect: bool = False
    exact: bool = False

    @property
    def element_bytes(self) -> int:
        return int(self.dtype[2:]) * math.prod(self.inner)


@dataclass(frozen=True)
class RangeKind:
    """Equally spaced integers."""

    most: int


@dataclass(frozen=True)
class TupleKind:
    """A list with a fixed number of parts, each with its own kind."""

    parts: tuple[Kind, ...]

    @property
    def most(self) -> int:
        return len(self.parts)


@dataclass(frozen=True)
class ArrayKind:
    """A list stored in memory as its length, then its elements. `element` is None if it is always empty."""

    element: Kind | None
    most: int


def view_of(dtype: str, shape: tuple[int, ...]) -> ViewKind:
    """The kind of a whole view."""
    return ViewKind(dtype, shape[1:], shape[0], exact=True)


EvenKind: TypeAlias = ViewKind | RangeKind | ArrayKind
"""Kinds of lists whose elements all have the same kind."""
ListKind: TypeAlias = EvenKind | TupleKind
Kind: TypeAlias = NumberKind | ListKind


def size(kind: Kind) -> int:
    """Size of a value in memory, in bytes."""
    match kind:
        case NumberKind():
            return 8
        case ViewKind() | RangeKind():
            return 24
        case TupleKind(parts):
            return sum(map(size, parts))
        case ArrayKind(element, most):
            return 8 + (most * size(element) if element is not None else 0)


def volume(kind: Kind) -> int:
    """The maximum number of numbers in a value."""
    match kind:
        case NumberKind():
            return 1
        case ViewKind(_, inner, most):
            return most * math.prod(inner)
        case RangeKind(most):
            return most
        case TupleKind(parts):
            return sum(map(volume, parts))
        case ArrayKind(element, most):
            return most * volume(element) if element is not None else 0


def checked(kind: Kind, depth: int = 0) -> int:
    """The number of parts in a value's structure.

    Raises:
        NotCompiled: more than MAX_PARTS, or nested deeper than MAX_DEPTH: the interpreter has limits near that.
    """
    parts = 1
    match kind:
        case TupleKind(inner):
            parts += sum(checked(part, depth + 1) for part in inner)
        case ArrayKind(element, _) if element is not None:
            parts += checked(element, depth + 1)
        case ViewKind(_, shape, most, indirect):
            parts += len(shape) + 2 * most * indirect
    if parts > MAX_PARTS or depth > MAX_DEPTH:
        raise NotCompiled("a value has too many parts")
    return parts


def join(one: Kind, other: Kind) -> Kind:
    """The kind of a value that may have either kind.

    Raises:
        NotCompiled: one is a number, the other a list.
    """
    if one == other:
        return one
    if isinstance(one, NumberKind) and isinstance(other, NumberKind):
        known = None not in (one.limit, other.limit)
        return NumberKind(LARGE if known else None)
    if isinstance(one, NumberKind) or isinstance(other, NumberKind):
        raise NotCompiled("a name or a list holds numbers as well as lists")
    most = max(one.most, other.most)
    if isinstance(one, ViewKind) and isinstance(other, ViewKind):
        found = replace(one, most=most, exact=False)
        if found == replace(other, most=most, exact=False):
            return found
    if isinstance(one, RangeKind) and isinstance(other, RangeKind):
        return RangeKind(most)
    if isinstance(one, TupleKind) and isinstance(other, TupleKind) and one.most == other.most:
        return TupleKind(tuple(map(join, one.parts, other.parts)))
    element, another = element_of(one), element_of(other)
    if element is None or another is None:
        return ArrayKind(element or another, most)
    return ArrayKind(join(element, another), most)


def element_of(kind: ListKind) -> Kind | None:
    """The kind of a list's elements; None if it is always empty."""
    match kind:
        case ViewKind(dtype, inner):
            return view_of(dtype, inner) if inner else NumberKind(SMALL)
        case RangeKind():
            return NumberKind(SMALL)
        case ArrayKind(element):
            return element
        case TupleKind(parts):
            found: Kind | None = None
            for part in parts:
                found = part if found is None else join(found, part)
            return found


def holds_array(kind: Kind) -> bool:
    """Whether any part lies in memory that an assignment may overwrite."""
    return isinstance(kind, ArrayKind) or (isinstance(kind, TupleKind) and any(map(holds_array, kind.parts)))
