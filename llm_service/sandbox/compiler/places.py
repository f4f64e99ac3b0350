"""Indexing, slicing and unpacking of lists. The row gives up before it reads at an invalid index."""

from __future__ import annotations

from llm_service.sandbox.compiler.arithmetic import Number, as_whole, constant
from llm_service.sandbox.compiler.emitter import Emitter
from llm_service.sandbox.compiler.sequences import Value, at, length, part


def item(e: Emitter, value: Value, index: Value) -> Value:
    """value[index]."""
    if isinstance(value, Number) or not isinstance(index, Number) or not value.kind.most:
        e.give_up()
        return constant(0)
    i, n = as_whole(e, index), length(e, value)
    if isinstance(i, int) and isinstance(n, int) and not -n <= i < n:
        e.give_up()
        return constant(0)
    e.check(e.both(e.compare(">=", i, e.sub(0, n)), e.compare("<", i, n)))
    return at(e, value, e.choose(e.compare("<", i, 0), e.add(i, n), i))


def part_of(e: Emitter, value: Value, start: Number | None, stop: Number | None, step: Number | None) -> Value:
    """value[start:stop:step]."""
    first, last, by = (None if bound is None else as_whole(e, bound) for bound in (start, stop, step))
    if isinstance(value, Number):
        e.give_up()
        return constant(0)
    by = 1 if by is None else by
    e.check(e.compare("!=", by, 0))
    if isinstance(by, int) and by == 0:  # never reached
        by = 1
    return part(e, value, first, last, by)


def unpacked(e: Emitter, value: Value, count: int) -> tuple[Value, ...]:
    """The elements of a list of length `count`; otherwise the row gives up."""
    if isinstance(value, Number) or value.kind.most < count:
        e.give_up()
        return (constant(0),) * count
    n = length(e, value)
    e.check(e.compare("==", n, count))
    if isinstance(n, int) and n != count:  # never reached
        return (constant(0),) * count
    return tuple(at(e, value, i) for i in range(count))
