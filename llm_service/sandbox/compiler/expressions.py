"""Expressions of written programs as code: from a syntax tree to the value that the row's code computes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llm_service.sandbox.compiler import arithmetic, calls, places
from llm_service.sandbox.compiler.arithmetic import SIGNS, Number, constant
from llm_service.sandbox.compiler.comparisons import contains, equal
from llm_service.sandbox.compiler.emitter import WHOLE, Code, Emitter
from llm_service.sandbox.compiler.kinds import ArrayKind, Kind, NotCompiled, TooLarge, checked, size, volume
from llm_service.sandbox.compiler.names import Names
from llm_service.sandbox.compiler.reductions import Each, decided, merged, number
from llm_service.sandbox.compiler.sequences import (
    Iterable,
    Together,
    Value,
    Zipped,
    at,
    even,
    length,
    most_of,
    read,
    ready,
    volume_of,
    write,
)
from llm_service.sandbox.values import MAX_ELEMENTS

MAX_LANES = 1 << 15
"""Maximum number of rounds of nested loops. With more, the interpreter may add in a different order."""


class Expressions:
    """Writes expressions.

    Args:
        bound: values of names that are never reassigned: the arguments, and inside comprehensions their variables.

    Attributes:
        lanes: number of rounds of the enclosing loops that the interpreter runs at once.
    """

    def __init__(self, e: Emitter, names: Names, bound: dict[str, Value]) -> None:
        self._e, self._names, self._bound = e, names, bound
        self.lanes = 1

    def value(self, node: ast.expr) -> Value:
        """The value of the expression.

        Raises:
            NotCompiled: it could be either a number or a list, or it is too large.
        """
        e = self._e
        match node:
            case ast.Constant(value=bool() | int() | float() as known):
                return constant(known)
            case ast.Name(id=name):
                return self._bound[name] if name in self._bound else self._names.read(name)
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                together = Together(tuple(self.value(element) for element in elements))
                checked(together.kind)
                return together
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() | float() as exponent)):
                return arithmetic.power(e, self.number(left), exponent)
            case ast.BinOp(left=left, op=operator, right=right):
                one = self.number(left)
                return arithmetic.arithmetic(e, operator, one, self.number(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return arithmetic.negative(e, self.number(operand))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.number(operand)
            case ast.UnaryOp(op=ast.Not()) | ast.Compare():
                return Number(self.truth(node), 1)
            case ast.BoolOp(op=operator, values=values):
                return self._either(values, isinstance(operator, ast.And))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                yes, no = e.block(), e.block()
                e.branch(self.truth(test), yes, no)
                ways = []
                for block, way in ((yes, body), (no, orelse)):
                    e.start(block)
                    value = self.value(way)
                    ways.append((e.builder.block, value))
                return merged(e, ways)
            case ast.Subscript(value=whole, slice=ast.Slice(lower=lower, upper=upper, step=step)):
                value = self.value(whole)
                given = [None if bound is None else self.number(bound) for bound in (lower, upper, step)]
                return self._fitting(places.part_of(e, value, *given))
            case ast.Subscript(value=whole, slice=index):
                value = self.value(whole)
                return self._fitting(places.item(e, value, self.value(index)))
            case ast.ListComp(elt=element, generators=generators):
                return self._comprehension(element, generators)
            case ast.Call(func=ast.Name(id="any" | "all" as name), args=[ast.GeneratorExp() as rounds]):
                return decided(e, lambda body: self._tests(rounds, body), name == "all")
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
                return calls.call(e, self, name, arguments, [keyword.value for keyword in keywords])
        raise NotCompiled(f"no code for {type(node).__name__}")

    def number(self, node: ast.expr) -> Number:
        """The value for arithmetic; the row gives up at a list."""
        return number(self._e, self.value(node))

    def truth(self, node: ast.expr) -> Code:
        """The value's truth, as in Python."""
        e = self._e
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return e.opposite(self.truth(operand))
            case ast.BoolOp(op=operator, values=values):

                def each(body: Callable[[Code], None]) -> None:
                    for value in values:
                        body(self.truth(value))

                return decided(e, each, isinstance(operator, ast.And)).code
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                one = self.value(left)
                return self._compare(operator, one, self.value(right))
            case ast.Compare(left=left, ops=operators, comparators=others):

                def chain(body: Callable[[Code], None]) -> None:
                    one = self.value(left)
                    for operator, right in zip(operators, others, strict=True):
                        other = self.value(right)
                        body(self._compare(operator, one, other))
                        one = other

                return decided(e, chain, True).code
        return self._true(self.value(node))

    def _true(self, value: Value) -> Code:
        if isinstance(value, Number):
            return arithmetic.truth_of(self._e, value)
        return self._e.compare(">", length(self._e, value), 0)

    def _either(self, values: list[ast.expr], conjunction: bool) -> Value:
        """`and` and `or`: the deciding value."""
        e, ways = self._e, []
        for i, node in enumerate(values):
            value = self.value(node)
            if i < len(values) - 1:
                decides, further = e.block(), e.block()
                e.branch(self._true(value), *((further, decides) if conjunction else (decides, further)))
                ways.append((decides, value))
                e.start(further)
            else:
                ways.append((e.builder.block, value))
        return merged(e, ways)

    def _compare(self, operator: ast.cmpop, one: Value, other: Value) -> Code:
        e = self._e
        if isinstance(operator, ast.In | ast.NotIn):
            if isinstance(other, Number):
                e.give_up()
                return False
            e.spend(length(e, other))
            if not isinstance(one, Number):
                e.spend(volume_of(e, other))
            self._room(other.kind)
            found = contains(e, other, one)
            return found if isinstance(operator, ast.In) else e.opposite(found)
        if isinstance(one, Number) and isinstance(other, Number):
            return arithmetic.compare(e, SIGNS[type(operator)], one, other)
        if not isinstance(operator, ast.Eq | ast.NotEq):
            e.give_up()
            return False
        if not isinstance(one, Number) and not isinstance(other, Number):
            e.spend(e.add(volume_of(e, one), volume_of(e, other)))
            self._room(one.kind)
            self._room(other.kind)
        same = equal(e, one, other)
        return same if isinstance(operator, ast.Eq) else e.opposite(same)

    def _fitting(self, value: Value) -> Value:
        self._room(value.kind)
        return value

    def _room(self, kind: Kind) -> None:
        """Raise TooLarge for a value that may not fit into the interpreter's memory for all rounds together."""
        if self.lanes * volume(kind) > MAX_ELEMENTS:
            raise TooLarge("lists of many rounds")

    # ---- loops -------------------------------------------------------------------------------------------------------

    def iterable(self, node: ast.expr) -> Iterable:
        """The list that a loop runs over; the row gives up if it is a number."""
        e = self._e
        match node:
            case ast.Call(func=ast.Name(id="zip"), args=arguments):
                lists = tuple(map(self.iterable, arguments))
                return Zipped(lists)
            case ast.Call(func=ast.Name(id="enumerate"), args=[over, *given], keywords=keywords):
                inner = self.iterable(over)
                starts = [*given, *(keyword.value for keyword in keywords)]
                start = self.number(starts[0]) if starts else constant(0)
                return Zipped((inner,), calls.small(e, start))
        value = self.value(node)
        if isinstance(value, Number):
            e.give_up()
            return Together(())
        return value

    @contextmanager
    def at_once(self, most: int) -> Iterator[None]:
        """Inside a loop of at most `most` rounds that the interpreter runs at once."""
        outside = self.lanes
        self.lanes *= max(1, most)
        if self.lanes > MAX_LANES:
            raise TooLarge("many rounds of loops inside each other")
        yield
        self.lanes = outside

    def rounds(self, generators: list[ast.comprehension], body: Callable[[], None]) -> None:
        """Write the loops of a comprehension around its body."""
        e, (first, *rest) = self._e, generators
        value = ready(e, self.iterable(first.iter))
        count = length(e, value)
        e.spend(count)
        with self.at_once(most_of(value)), e.loop(count) as loop:
            outside, self._bound = self._bound, dict(self._bound)
            self._bind(first.target, at(e, value, loop.index))
            for test in first.ifs:
                chosen = e.block()
                e.branch(self.truth(test), chosen, loop.following)
                e.start(chosen)
            if rest:
                self.rounds(rest, body)
            else:
                body()
            self._bound = outside

    def _tests(self, rounds: ast.GeneratorExp, body: Callable[[Code], None]) -> None:
        self.rounds(rounds.generators, lambda: body(self.truth(rounds.elt)))

    def _bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._bound[target.id] = value
        elif isinstance(target, ast.Tuple):
            for each, got in zip(target.elts, places.unpacked(self._e, value, len(target.elts)), strict=True):
                self._bind(each, got)

    def _comprehension(self, element: ast.expr, generators: list[ast.comprehension]) -> Value:
        e = self._e
        count, inside = e.memory(8), self.lanes
        e.store(0, count)
        made: list[tuple[ArrayKind, Any]] = []

        def add() -> None:
            value = self.value(element)
            most = self.lanes // inside
            kind = ArrayKind(value.kind, most)
            checked(kind)
            self._room(kind)
            pointer = e.memory(size(kind))
            done = e.load(WHOLE, count)
            write(e, value.kind, e.forward(pointer, e.add(8, e.mul(done, size(value.kind)))), value)
            e.store(e.add(done, 1), count)
            made.append((kind, pointer))

        self.rounds(generators, add)
        (kind, pointer), *_ = made
        e.store(e.load(WHOLE, count), pointer)
        return read(e, kind, pointer)

    def each(self, node: ast.expr) -> Each:
        """Write a loop over the elements of a list or generator; counts their steps."""
        e = self._e
        if isinstance(node, ast.ListComp | ast.GeneratorExp):

            def of_rounds(body: Callable[[Value], None]) -> None:
                count = e.memory(8)
                e.store(0, count)

                def one() -> None:
                    body(self.value(node.elt))
                    e.store(e.add(e.load(WHOLE, count), 1), count)

                self.rounds(node.generators, one)
                e.spend(e.load(WHOLE, count))

            return of_rounds
        value = self.value(node)
        if isinstance(value, Number):
            e.give_up()
            value = Together(())
        over = even(e, value)

        def of_list(body: Callable[[Value], None]) -> None:
            if over.kind.most:
                e.spend(over.length)
                with e.loop(over.length) as loop:
                    body(at(e, over, loop.index))

        return of_list
