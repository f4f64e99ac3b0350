"""Reductions of many numbers to one: sums, extremes, `any` and `all`, over elements one after the other."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeAlias

from llm_service.sandbox.batch import MAX_STEPS
from llm_service.sandbox.compiler import arithmetic
from llm_service.sandbox.compiler.arithmetic import Number, constant, real, whole
from llm_service.sandbox.compiler.emitter import REAL, TRUTH, WHOLE, Code, Emitter
from llm_service.sandbox.compiler.kinds import LARGE, join, size
from llm_service.sandbox.compiler.sequences import Value, read, write

Each: TypeAlias = Callable[[Callable[[Value], None]], None]
"""Writes the loops over all elements; calls its argument to write the innermost body."""

_NONE_YET = 1 << 62  # beyond all allowed integers


class Running:
    """An accumulator that a loop updates; it is reset whenever the block before the loop runs."""

    def __init__(self, e: Emitter) -> None:
        self._e, self._before, self._place = e, e.builder.block, None
        self.limit: int | None = None

    def begin(self, first: float, limit: int | None) -> None:
        self.limit = limit
        self._place = self._e.memory(8)
        with self._e.at(self._before):
            self._e.store(first, self._place)

    def get(self) -> Number:
        return Number(self._e.load(REAL if self.limit is None else WHOLE, self._place), self.limit)

    def set(self, code: Code) -> None:
        self._e.store(code, self._place)

    @property
    def begun(self) -> bool:
        return self._place is not None


def merged(e: Emitter, ways: list[tuple[Any, Value]]) -> Value:
    """The value from whichever of these blocks ran; all blocks continue at the same place.

    Raises:
        NotCompiled: some values are numbers, others lists.
    """
    kind = ways[0][1].kind
    for _, value in ways[1:]:
        kind = join(kind, value.kind)
    pointer, further = e.memory(size(kind)), e.block()
    for block, value in ways:
        e.start(block)
        write(e, kind, pointer, value)
        e.builder.branch(further)
    e.start(further)
    return read(e, kind, pointer)


def number(e: Emitter, value: Value) -> Number:
    """The value for arithmetic; the row gives up if it is a list."""
    if isinstance(value, Number):
        return value
    e.give_up()
    return constant(0)


def total(e: Emitter, each: Each, start: Number) -> Number:
    """The sum, added in order; the start is added last."""
    running = Running(e)

    def add(value: Value) -> None:
        part = number(e, value)
        limit = None if part.limit is None or part.limit * MAX_STEPS >= LARGE else part.limit * MAX_STEPS
        if not running.begun:
            running.begin(0.0 if limit is None else 0, limit)
        now = running.get()
        running.set(e.builder.fadd(now.code, real(e, part)) if limit is None else e.add(now.code, whole(e, part)))

    each(add)
    return arithmetic.arithmetic(e, ast.Add(), start, running.get()) if running.begun else start


def extreme(e: Emitter, each: Each, default: Number | None, largest: bool) -> Number:
    """The largest or smallest element, or the default if there are none; without a default the row gives up."""
    running = Running(e)

    def look(value: Value) -> None:
        part = number(e, value)
        if not running.begun:
            none = -_NONE_YET if largest else _NONE_YET
            running.begin(float("-inf" if largest else "inf") if part.limit is None else none, part.limit)
        better = arithmetic.better(e, part, running.get(), largest)
        running.set(better.code)

    each(look)
    if not running.begun:
        if default is None:
            e.give_up()
        return default or constant(0)
    best = running.get()
    if best.limit is None:
        there = e.builder.fcmp_ordered("<", e.call("fabs", best.code), e.code(float("inf")))
    else:
        there = e.compare("!=", best.code, -_NONE_YET if largest else _NONE_YET)
    if default is None:
        e.check(there)
        return best
    if best.limit is not None and default.limit is not None:
        return Number(e.choose(there, best.code, whole(e, default)), max(best.limit, default.limit))
    if best.limit is not None:
        best = Number(e.choose(there, best.code, 0), best.limit)
    return Number(e.builder.select(there, real(e, best), real(e, default)))


def decided(e: Emitter, each: Callable[[Callable[[Code], None]], None], conjunction: bool) -> Number:
    """`any` or `all` of bools one after the other; stops at the deciding one."""
    place, end = e.memory(8), e.block()
    e.store(conjunction, place)

    def look(test: Code) -> None:
        decides, further = e.block(), e.block()
        yes, no = (further, decides) if conjunction else (decides, further)
        e.branch(test, yes, no)
        e.start(decides)
        e.store(not conjunction, place)
        e.builder.branch(end)
        e.start(further)

    each(look)
    e.builder.branch(end)
    e.start(end)
    return Number(e.load(TRUTH, place), 1)
