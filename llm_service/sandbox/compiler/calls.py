"""Code for the functions that programs may call."""

from __future__ import annotations

import ast
from typing import Protocol

from llm_service.sandbox.batch import MAX_STEPS
from llm_service.sandbox.compiler import arithmetic
from llm_service.sandbox.compiler.arithmetic import Number, as_whole, constant, truth_of, whole
from llm_service.sandbox.compiler.emitter import TRUTH, Code, Emitter
from llm_service.sandbox.compiler.kinds import SMALL, RangeKind
from llm_service.sandbox.compiler.reductions import Each, extreme, number, total
from llm_service.sandbox.compiler.sequences import Sequence, Value, length, steps_between

_FURTHEST = SMALL >> 2  # largest magnitude of a bound of range or enumerate


class Arguments(Protocol):
    """Writes the arguments of a call."""

    def value(self, node: ast.expr) -> Value: ...

    def number(self, node: ast.expr) -> Number: ...

    def each(self, node: ast.expr) -> Each: ...


def call(e: Emitter, of: Arguments, name: str, given: list[ast.expr], named: list[ast.expr]) -> Value:
    """The value of a call; the row gives up where Python would raise an error."""
    match name:
        case "abs":
            return arithmetic.absolute(e, of.number(given[0]))
        case "float":
            return of.number(given[0])
        case "int":
            return arithmetic.towards_zero(e, of.number(given[0]))
        case "round":
            first, *digits = [of.number(node) for node in given]
            return arithmetic.rounded(e, first, digits[0] if digits else None)
        case "len":
            value = of.value(given[0])
            if isinstance(value, Number):
                e.give_up()
                return constant(0)
            return Number(length(e, value), SMALL)
        case "range":
            return _range(e, [of.number(node) for node in given])
        case "sum":
            starts = [*given[1:], *named]
            each = of.each(given[0])
            start = of.number(starts[0]) if starts else constant(0)
            return total(e, each, start)
        case "any" | "all":
            return _decided(e, of.each(given[0]), name == "all")
        case "min" | "max" if len(given) > 1:
            first, *others = [of.number(node) for node in given]
            for other in others:
                first = arithmetic.better(e, first, other, name == "max")
            return first
        case "min" | "max":
            each = of.each(given[0])
            default = of.number(named[0]) if named else None
            return extreme(e, each, default, name == "max")
    raise AssertionError(f"the grammar has no {name}")


def small(e: Emitter, number_: Number) -> Number:
    """An integer small enough to count from; otherwise the row gives up."""
    code = as_whole(e, number_)
    if number_.limit is None or number_.limit > _FURTHEST:
        e.check(e.both(e.compare("<=", code, _FURTHEST), e.compare(">=", code, -_FURTHEST)))
    return Number(code, _FURTHEST)


def _range(e: Emitter, bounds: list[Number]) -> Value:
    numbers: list[Code] = [whole(e, small(e, bound)) for bound in bounds]
    start, stop, step = [0, numbers[0], 1] if len(numbers) == 1 else [*numbers, 1][:3]
    e.check(e.compare("!=", step, 0))
    count = steps_between(e, start, stop, step if not isinstance(step, int) else step or 1)
    if isinstance(count, int):
        if count > MAX_STEPS:
            e.give_up()
            count = 0
        return Sequence(RangeKind(count), start, step, count)
    e.check(e.compare("<=", count, e.longest))
    return Sequence(RangeKind(e.longest), start, step, count)


def _decided(e: Emitter, each: Each, conjunction: bool) -> Number:
    """`any` or `all` of a list; reads every element."""
    place = e.memory(8)
    e.store(conjunction, place)

    def look(value: Value) -> None:
        test, before = e.code(truth_of(e, number(e, value))), e.load(TRUTH, place)
        e.store((e.builder.and_ if conjunction else e.builder.or_)(before, test), place)

    each(look)
    return Number(e.load(TRUTH, place), 1)
