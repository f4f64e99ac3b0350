"""Lists, and how values are stored in memory.

A list is lazy: its elements are fetched on demand from the input arrays, a range or the row's own memory. A slice is
the same list with a different start, step and length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from llvmlite import ir

from llm_service.sandbox.compiler.arithmetic import Number, constant, real, whole
from llm_service.sandbox.compiler.emitter import PLACE, POINTER, REAL, WHOLE, Code, Emitter
from llm_service.sandbox.compiler.kinds import (
    SMALL,
    ArrayKind,
    EvenKind,
    Kind,
    NumberKind,
    RangeKind,
    TupleKind,
    ViewKind,
    element_of,
    size,
    view_of,
    volume,
)


@dataclass(frozen=True)
class Sequence:
    """A list of equally spaced elements. `origin` is a pointer for a view or an array, and a number for a range.

    Attributes:
        step: distance between neighbours: in elements; for a range, as a number.
    """

    kind: EvenKind
    origin: Code
    step: Code
    length: Code


@dataclass(frozen=True)
class Together:
    """A list whose parts are known individually."""

    parts: tuple[Value, ...]

    @property
    def kind(self) -> TupleKind:
        return TupleKind(tuple(part.kind for part in self.parts))


@dataclass(frozen=True)
class Zipped:
    """The result of `zip` or `enumerate`; only loops use it, and it is never stored.

    Attributes:
        start: the first number of enumerate; None for zip.
    """

    lists: tuple[Iterable, ...]
    start: Number | None = None

    @property
    def most(self) -> int:
        return min(most_of(each) for each in self.lists)


List: TypeAlias = Sequence | Together
Value: TypeAlias = Number | List
Iterable: TypeAlias = Sequence | Together | Zipped


def most_of(value: Iterable) -> int:
    """The maximum number of elements."""
    return value.most if isinstance(value, Zipped) else value.kind.most


def length(e: Emitter, value: Iterable) -> Code:
    if isinstance(value, Zipped):
        found = length(e, value.lists[0])
        for other in value.lists[1:]:
            found = e.least(found, length(e, other))
        return found
    return len(value.parts) if isinstance(value, Together) else value.length


def at(e: Emitter, value: Iterable, i: Code) -> Value:
    """Element i; the caller has checked that it exists."""
    if isinstance(value, Zipped):
        parts = tuple(at(e, each, i) for each in value.lists)
        if value.start is None:
            return Together(parts)
        return Together((Number(e.add(whole(e, value.start), i), 2 * SMALL), *parts))
    if isinstance(value, Together):
        if isinstance(i, int) and 0 <= i < len(value.parts):
            return value.parts[i]
        value = spilled(e, value)
    kind, place = value.kind, e.mul(i, value.step)
    if isinstance(kind, RangeKind):
        return Number(e.add(value.origin, place), SMALL)
    if isinstance(kind, ArrayKind):
        if kind.element is None:  # unreachable: the list is empty
            return constant(0)
        return read(e, kind.element, e.forward(value.origin, e.mul(place, size(kind.element))))
    assert isinstance(kind, ViewKind)
    if kind.indirect:
        which = e.load(PLACE, e.forward(value.origin, e.mul(place, 4)))
        offset = e.mul(e.builder.zext(which, WHOLE), kind.element_bytes)
        pointer = e.forward(e.observations, offset)
    else:
        pointer = e.forward(value.origin, e.mul(place, kind.element_bytes))
    if kind.inner:
        inner = view_of(kind.dtype, kind.inner)
        return Sequence(inner, pointer, 1, inner.most)
    bits = 8 * int(kind.dtype[2:])
    code = e.load(ir.IntType(bits), pointer)
    if bits < 64:
        code = (e.builder.sext if kind.dtype[1] == "i" else e.builder.zext)(code, WHOLE)
    return Number(code, 1 << min(bits, 32))


def spilled(e: Emitter, value: Together) -> Sequence:
    """The parts copied to memory, so that they can be indexed."""
    element = element_of(value.kind)
    kind = ArrayKind(element, len(value.parts))
    pointer = e.memory(size(kind))
    write(e, kind, pointer, value)
    found = read(e, kind, pointer)
    assert isinstance(found, Sequence)
    return found


def ready(e: Emitter, value: Iterable) -> Sequence | Zipped:
    """The same list, prepared for a loop: parts that must be in memory are copied there once."""
    if isinstance(value, Zipped):
        return Zipped(tuple(ready(e, each) for each in value.lists), value.start)
    return even(e, value)


def even(e: Emitter, value: List) -> Sequence:
    """The same list as a `Sequence`, with elements of one kind."""
    return spilled(e, value) if isinstance(value, Together) else value


def part(e: Emitter, value: List, start: Code | None, stop: Code | None, step: Code) -> List:
    """value[start:stop:step] with integer bounds; the step is not 0."""
    bounds = (start, stop, step)
    if isinstance(value, Together):
        if all(bound is None or isinstance(bound, int) for bound in bounds):
            return Together(value.parts[slice(*bounds)])
        value = spilled(e, value)
    n = value.length
    if all(bound is None or isinstance(bound, int) for bound in (n, *bounds)):
        first, last, _ = slice(*bounds).indices(n)
        count: Code = len(range(*slice(*bounds).indices(n)))
    else:
        forward = e.compare(">", step, 0)
        low, high = e.choose(forward, 0, -1), e.choose(forward, n, e.sub(n, 1))

        def clipped(bound: Code | None, otherwise: Code) -> Code:
            if bound is None:
                return otherwise
            return e.most(low, e.least(high, e.choose(e.compare("<", bound, 0), e.add(bound, n), bound)))

        first = clipped(start, e.choose(forward, low, high))
        last = clipped(stop, e.choose(forward, high, low))
        count = steps_between(e, first, last, step)
    kind = replace(value.kind, most=min(value.kind.most, count)) if isinstance(count, int) else value.kind
    if isinstance(kind, ViewKind):
        kind = replace(kind, exact=False)
    if isinstance(kind, RangeKind):
        origin = e.add(value.origin, e.mul(first, value.step))
    else:
        width = 4 if isinstance(kind, ViewKind) and kind.indirect else _element_bytes(kind)
        origin = e.forward(value.origin, e.mul(e.mul(first, value.step), width))
    return Sequence(kind, origin, e.mul(step, value.step), count)


def steps_between(e: Emitter, first: Code, last: Code, step: Code) -> Code:
    """The length of `range(first, last, step)`."""
    if all(isinstance(bound, int) for bound in (first, last, step)):
        return len(range(first, last, step))
    way = e.choose(e.compare(">", step, 0), e.sub(last, first), e.sub(first, last))
    if isinstance(step, int) and abs(step) == 1:
        return e.most(way, 0)
    size_ = e.choose(e.compare(">", step, 0), step, e.sub(0, step))
    count = e.builder.udiv(e.code(e.add(e.most(way, 0), e.sub(size_, 1))), e.code(size_))
    return count


def _element_bytes(kind: Kind) -> int:
    if isinstance(kind, ViewKind):
        return kind.element_bytes
    assert isinstance(kind, ArrayKind)
    return 0 if kind.element is None else size(kind.element)


# ---- memory ----------------------------------------------------------------------------------------------------------


def write(e: Emitter, kind: Kind, pointer: Any, value: Value) -> None:
    """Write the value to the pointer, as a value of this kind, which may be wider than its own."""
    match kind:
        case NumberKind(limit):
            assert isinstance(value, Number)
            e.store(real(e, value) if limit is None else whole(e, value), pointer)
        case TupleKind(parts):
            for i, part_kind in enumerate(parts):
                write(e, part_kind, pointer, at(e, value, i))  # type: ignore[arg-type]
                pointer = e.forward(pointer, size(part_kind))
        case ArrayKind(element):
            assert not isinstance(value, Number)
            count = length(e, value)
            e.store(count, pointer)
            if element is None:
                return
            begin = e.forward(pointer, 8)
            if isinstance(value, Together):
                for i, each in enumerate(value.parts):
                    write(e, element, e.forward(begin, i * size(element)), each)
                return
            with e.loop(count) as loop:
                write(e, element, e.forward(begin, e.mul(loop.index, size(element))), at(e, value, loop.index))
        case ViewKind() | RangeKind():
            assert isinstance(value, Sequence)
            for i, field in enumerate((value.origin, value.step, value.length)):
                e.store(field, e.forward(pointer, 8 * i))


def read(e: Emitter, kind: Kind, pointer: Any) -> Value:
    """The value at the pointer. An array is not copied: its elements are read when they are fetched."""
    match kind:
        case NumberKind(limit):
            return Number(e.load(REAL if limit is None else WHOLE, pointer), limit)
        case TupleKind(parts):
            found = []
            for part_kind in parts:
                found.append(read(e, part_kind, pointer))
                pointer = e.forward(pointer, size(part_kind))
            return Together(tuple(found))
        case ArrayKind():
            return Sequence(kind, e.forward(pointer, 8), 1, e.load(WHOLE, pointer))
        case ViewKind() | RangeKind():
            if isinstance(kind, ViewKind) and kind.exact:
                return Sequence(kind, e.load(POINTER, pointer), 1, kind.most)
            first = WHOLE if isinstance(kind, RangeKind) else POINTER
            fields = [e.load(t, e.forward(pointer, 8 * i)) for i, t in enumerate((first, WHOLE, WHOLE))]
            return Sequence(kind, *fields)


def kept(e: Emitter, value: Value) -> Value:
    """A copy that no assignment overwrites."""
    pointer = e.memory(size(value.kind))
    write(e, value.kind, pointer, value)
    return read(e, value.kind, pointer)


def is_one_block(value: List) -> bool:
    """Whether its numbers are contiguous in the input arrays, and as many as its kind says."""
    return isinstance(value.kind, ViewKind) and value.kind.exact


def volume_of(e: Emitter, value: Value) -> Code:
    """An upper bound on the number of numbers in the value."""
    if isinstance(value, Number):
        return 1
    if isinstance(value, Together):
        found: Code = 0
        for each in value.parts:
            found = e.add(found, volume_of(e, each))
        return found
    element = element_of(value.kind)
    return 0 if element is None else e.mul(value.length, volume(element))
