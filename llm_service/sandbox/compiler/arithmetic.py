"""Arithmetic on numbers, bit-identical to the interpreter's operators and functions.

Nothing is reordered or fused. Whole numbers stay integers, which is exact and fast. The row gives up when one exceeds
the interpreter's limit.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from llm_service.sandbox.compiler.emitter import REAL, TRUTH, WHOLE, Code, Emitter
from llm_service.sandbox.compiler.kinds import LARGE, SMALL, NumberKind

MAX_DIGITS = 15  # for round; 10**15 is exact
_ROUNDED = 2.0**51  # below this the distance to the nearest whole number is exact

SIGNS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


@dataclass(frozen=True)
class Number:
    """A number computed by the generated code.

    Attributes:
        code: a bool, an integer or a float64.
        limit: the largest magnitude of a bool or integer, at most LARGE; None for a float64.
    """

    code: Code
    limit: int | None = None

    @property
    def kind(self) -> NumberKind:
        return NumberKind(self.limit if self.limit is None else SMALL if self.limit <= SMALL else LARGE)

    @property
    def is_truth(self) -> bool:
        return isinstance(self.code, bool) or getattr(self.code, "type", None) == TRUTH


def constant(value: int | float) -> Number:
    return Number(value, abs(value) if isinstance(value, int) else None)


def truth_of(e: Emitter, number: Number) -> Code:
    """Whether the number is not zero."""
    if number.is_truth:
        return number.code
    if number.limit is not None:
        return e.compare("!=", number.code, 0)
    return e.builder.fcmp_ordered("!=", e.code(number.code), e.code(0.0))


def whole(e: Emitter, number: Number) -> Code:
    """The integer of a bool or integer."""
    if isinstance(number.code, int):
        return int(number.code)
    return e.builder.zext(number.code, WHOLE) if number.is_truth else number.code


def real(e: Emitter, number: Number) -> Any:
    if isinstance(number.code, int | float):
        return e.code(float(number.code))
    return e.builder.sitofp(whole(e, number), REAL) if number.limit is not None else number.code


def as_whole(e: Emitter, number: Number) -> Code:
    """The number as an integer; the row gives up if it is not whole."""
    if number.limit is not None:
        return whole(e, number)
    code = e.code(number.code)
    e.check(e.builder.fcmp_ordered("==", code, e.call("floor", code)))
    return e.builder.fptosi(code, WHOLE)


def bounded(e: Emitter, code: Any) -> Number:
    """A float64; the row gives up unless its magnitude is below LARGE."""
    e.check(e.builder.fcmp_ordered("<", e.call("fabs", code), e.code(float(LARGE))))
    return Number(code)


def bounded_whole(e: Emitter, code: Code, limit: int) -> Number:
    if isinstance(code, int) and abs(code) < LARGE:
        return Number(code, abs(code))
    if limit >= LARGE:
        limit = LARGE
        e.check(e.both(e.compare("<", code, LARGE), e.compare(">", code, -LARGE)))
    return Number(code, limit)


def arithmetic(e: Emitter, operator: ast.operator, a: Number, b: Number) -> Number:
    """a + b, a - b, a * b, a / b, a // b or a % b."""
    exact = a.limit is not None and b.limit is not None
    match operator:
        case ast.Add() | ast.Sub():
            plus = isinstance(operator, ast.Add)
            if exact:
                code = (e.add if plus else e.sub)(whole(e, a), whole(e, b))
                return bounded_whole(e, code, a.limit + b.limit)  # type: ignore[operator]
            return bounded(e, (e.builder.fadd if plus else e.builder.fsub)(real(e, a), real(e, b)))
        case ast.Mult():
            if exact and a.limit * b.limit < LARGE:  # type: ignore[operator]
                return Number(e.mul(whole(e, a), whole(e, b)), a.limit * b.limit)  # type: ignore[operator]
            return bounded(e, e.builder.fmul(real(e, a), real(e, b)))
    e.check(truth_of(e, b))
    if isinstance(operator, ast.Div):
        return bounded(e, e.builder.fdiv(real(e, a), real(e, b)))
    quotient, rest = _divided_exactly(e, a, b) if exact else _divided(e, real(e, a), real(e, b))
    return quotient if isinstance(operator, ast.FloorDiv) else rest


def _divided_exactly(e: Emitter, a: Number, b: Number) -> tuple[Number, Number]:
    """a // b and a % b of integers."""
    one, other = whole(e, a), whole(e, b)
    if isinstance(one, int) and isinstance(other, int) and other:
        return constant(one // other), constant(one % other)
    quotient = e.builder.sdiv(e.code(one), e.code(other))
    rest = e.sub(one, e.mul(quotient, other))
    apart = e.both(e.compare("!=", rest, 0), e.compare("<", e.builder.xor(e.code(rest), e.code(other)), 0))
    down = e.builder.zext(e.code(apart), WHOLE)
    return Number(e.sub(quotient, down), a.limit), Number(e.choose(apart, e.add(rest, other), rest), b.limit)


def _divided(e: Emitter, a: Any, b: Any) -> tuple[Number, Number]:
    """a // b and a % b of float64 numbers, as Python and NumPy compute them."""
    build, zero = e.builder, e.code(0.0)
    rest = build.frem(a, b)
    quotient = build.fdiv(build.fsub(a, rest), b)
    apart = e.both(
        build.fcmp_ordered("!=", rest, zero),
        build.xor(build.fcmp_ordered("<", b, zero), build.fcmp_ordered("<", rest, zero)),
    )
    rest = build.select(apart, build.fadd(rest, b), rest)
    quotient = build.select(apart, build.fsub(quotient, e.code(1.0)), quotient)
    floor = e.call("floor", quotient)
    low = build.fcmp_ordered(">", build.fsub(quotient, floor), e.code(0.5))
    return bounded(e, build.select(low, build.fadd(floor, e.code(1.0)), floor)), bounded(e, rest)


def power(e: Emitter, base: Number, exponent: float) -> Number:
    """base ** exponent, for an exponent that the grammar allows."""
    if exponent == 0.5:
        number = real(e, base)
        e.check(e.builder.fcmp_ordered(">=", number, e.code(0.0)))
        return Number(e.call("sqrt", number))
    result = constant(1)
    for _ in range(int(exponent)):
        result = arithmetic(e, ast.Mult(), result, base)
    return result


def negative(e: Emitter, number: Number) -> Number:
    if number.limit is not None:
        return Number(e.sub(0, whole(e, number)), number.limit)
    return Number(-number.code if isinstance(number.code, float) else e.builder.fneg(number.code))


def absolute(e: Emitter, number: Number) -> Number:
    if number.limit is None:
        return Number(e.call("fabs", number.code))
    code = whole(e, number)
    return Number(e.most(code, e.sub(0, code)), number.limit)


def towards_zero(e: Emitter, number: Number) -> Number:
    """int(number)."""
    if number.limit is not None:
        return Number(whole(e, number), number.limit)
    return Number(e.builder.fptosi(e.code(number.code), WHOLE), LARGE)


def rounded(e: Emitter, number: Number, digits: Number | None) -> Number:
    """round(number, digits), exactly as Python; the row gives up unless digits is a known constant and not negative."""
    places = 0 if digits is None else digits.code
    if not isinstance(places, int | float) or places != int(places) or not 0 <= places <= MAX_DIGITS:
        e.give_up()
        places = 0
    if number.limit is not None:
        return Number(whole(e, number), number.limit)
    if places == 0:
        return Number(e.builder.fptosi(e.call("rint", number.code), WHOLE), LARGE)
    build, value, shift = e.builder, e.code(number.code), e.code(10.0 ** int(places))
    moved = build.fmul(value, shift)
    e.check(build.fcmp_ordered("<", e.call("fabs", moved), e.code(_ROUNDED)))
    beyond = e.call("fma", value, shift, build.fneg(moved))  # the exact rounding error of the product
    floor = e.call("floor", moved)
    part, half, zero = build.fsub(moved, floor), e.code(0.5), e.code(0.0)
    middle = build.fcmp_ordered("==", part, half)
    up = build.select(middle, build.fcmp_ordered(">", beyond, zero), build.fcmp_ordered(">", part, half))
    near = build.select(up, build.fadd(floor, e.code(1.0)), floor)
    tie = build.and_(middle, build.fcmp_ordered("==", beyond, zero))
    return bounded(e, build.fdiv(build.select(tie, e.call("rint", moved), near), shift))


def better(e: Emitter, a: Number, b: Number, largest: bool) -> Number:
    """The larger or the smaller of two numbers."""
    if a.limit is not None and b.limit is not None:
        choose = e.most if largest else e.least
        return Number(choose(whole(e, a), whole(e, b)), max(a.limit, b.limit))
    one, other = real(e, a), real(e, b)
    return Number(e.builder.select(e.builder.fcmp_ordered(">" if largest else "<", one, other), one, other))


def compare(e: Emitter, sign: str, a: Number, b: Number) -> Code:
    if a.limit is not None and b.limit is not None:
        return e.compare(sign, whole(e, a), whole(e, b))
    return e.builder.fcmp_ordered(sign, real(e, a), real(e, b))
