"""Expressions of written programs as closures: from a batch and a mask to a value for those rows or lanes.

A comprehension runs over all its elements at once: they become an extra axis in front of the lanes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from llm_service.sandbox import functions, lists
from llm_service.sandbox.batch import Ahead, Batch
from llm_service.sandbox.comparisons import compare, opposite, truth
from llm_service.sandbox.values import (
    Array,
    List,
    any_lane,
    as_list,
    by_rows,
    flattened,
    is_number,
    is_truth,
    lift,
    select,
    settled,
)

Expression: TypeAlias = Callable[[Batch, Array], Any]
Store: TypeAlias = Callable[[Batch, Array, Any], None]
Scope: TypeAlias = dict[str, tuple[str, int]]
"""For each name that is not simply one value per row: its key in the batch, and its number of lane axes."""


class Expressions:
    """Turns expressions into closures.

    Each closure is made for one place in the program. The scope says what names mean there; `lanes` is the number of
    lane axes, which is 1 outside comprehensions and loops that run at once.
    """

    def __init__(self) -> None:
        self._places = 0

    def new_name(self, name: str) -> str:
        """A unique key in the batch, for a name that has a different meaning inside a comprehension or loop."""
        self._places += 1
        return f"{name} {self._places}"

    def expression(self, node: ast.expr | None, scope: Scope, lanes: int) -> Expression:
        """The closure of an expression; for None, a closure that returns None."""

        def of(part: ast.expr) -> Expression:
            return self.expression(part, scope, lanes)

        match node:
            case None:
                return lambda batch, mask: None
            case ast.Constant(value=constant):
                return lambda batch, mask: constant
            case ast.Name(id=name):
                return self._name(name, scope, lanes)
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                parts = [of(element) for element in elements]
                return lambda batch, mask: batch.structured(mask, tuple([part(batch, mask) for part in parts]))
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=exponent)):
                base = of(left)
                return lambda batch, mask: functions.power(batch, mask, base(batch, mask), exponent)  # type: ignore[arg-type]
            case ast.BinOp(left=left, op=op, right=right):
                one, other, apply = of(left), of(right), functions.arithmetic(type(op))
                return lambda batch, mask: apply(batch, mask, one(batch, mask), other(batch, mask))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                test = of(operand)
                return lambda batch, mask: opposite(truth(test(batch, mask)))
            case ast.UnaryOp(op=op, operand=operand):
                number, sign = of(operand), -1 if isinstance(op, ast.USub) else 1
                return lambda batch, mask: sign * batch.number(mask, number(batch, mask))
            case ast.BoolOp(op=op, values=values):
                return self._either([of(value) for value in values], isinstance(op, ast.And), lanes)
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._compare([of(left), *map(of, others)], [type(op) for op in ops], lanes)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(of(test), of(body), of(orelse), lanes)
            case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=step)):
                whole, bounds = of(value), [self.expression(bound, scope, lanes) for bound in (lower, upper, step)]
                return lambda batch, mask: lists.part(
                    batch, mask, whole(batch, mask), tuple([bound(batch, mask) for bound in bounds]), lanes
                )
            case ast.Subscript(value=value, slice=index):
                whole, place = of(value), of(index)
                return lambda batch, mask: lists.item(batch, mask, whole(batch, mask), place(batch, mask), lanes)
            case (
                ast.ListComp(elt=element, generators=generators) | ast.GeneratorExp(elt=element, generators=generators)
            ):
                return self._comprehension(element, generators, scope, lanes)
            case ast.Call(func=ast.Name(id="any" | "all" as name), args=[ast.GeneratorExp() as rounds]):
                return self._decided(rounds.elt, rounds.generators, name == "all", scope, lanes)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
                return self._call(name, list(map(of, arguments)), [of(keyword.value) for keyword in keywords], lanes)
        raise AssertionError(f"the grammar has no {type(node).__name__}")

    def _name(self, name: str, scope: Scope, lanes: int) -> Expression:
        key, own = scope.get(name, (name, 1))

        def run(batch: Batch, mask: Array) -> Any:
            if key not in batch.names:
                batch.fault("unassigned", mask)
                return 0.0
            if own == 1 and key in batch.assigned:
                batch.fault("unassigned", mask, ~batch.assigned[key])
            value = batch.names[key]
            return value if own == lanes or is_number(value) else lift(value, own, lanes)

        return run

    def _either(self, values: list[Expression], conjunction: bool, lanes: int) -> Expression:
        """`and` and `or`: the deciding value, as in Python; only its truth if lists and numbers are mixed."""

        def run(batch: Batch, mask: Array) -> Any:
            result = values[0](batch, mask)
            for value in values[1:]:
                test = truth(result)
                if not isinstance(test, np.ndarray):
                    if test is not conjunction:
                        return result
                    result = value(batch, mask)
                    continue
                undecided = test if conjunction else ~test
                further = mask & undecided
                if not np.count_nonzero(further):
                    return result
                got = value(batch, further)
                if is_number(got) != is_number(result):
                    got, result = truth(got), test
                if is_truth(got) and is_truth(result):
                    result = test & got if conjunction else test | got
                else:
                    result = select(undecided, got, result, lanes)
            return result

        return run

    def _compare(self, values: list[Expression], kinds: list[type[ast.cmpop]], lanes: int) -> Expression:
        def run(batch: Batch, mask: Array) -> Any:
            left, result = values[0](batch, mask), None
            for value, kind in zip(values[1:], kinds, strict=True):
                right = value(batch, mask)
                test = compare(batch, mask, kind, left, right, lanes)
                result = test if result is None else result & test
                if len(kinds) > 1:
                    mask = mask & result
                    if not np.count_nonzero(mask):
                        return result
                left = right
            return result

        return run

    def _choice(self, test: Expression, yes: Expression, no: Expression, lanes: int) -> Expression:
        def run(batch: Batch, mask: Array) -> Any:
            chosen = truth(test(batch, mask))
            if not isinstance(chosen, np.ndarray):
                return (yes if chosen else no)(batch, mask)
            here, there = mask & chosen, mask & ~chosen
            if not np.count_nonzero(there):
                return yes(batch, mask)
            if not np.count_nonzero(here):
                return no(batch, mask)
            return select(chosen, yes(batch, here), no(batch, there), lanes)

        return run

    def _comprehension(
        self, element: ast.expr, generators: list[ast.comprehension], scope: Scope, lanes: int
    ) -> Expression:
        first, *rest = generators
        inside, begin = self._rounds(first, scope, lanes)
        if rest:
            body = self._comprehension(element, rest, inside, lanes + 1)
        else:
            body = self.expression(element, inside, lanes + 1)

        def run(batch: Batch, mask: Array) -> Any:
            length, mask, present = begin(batch, mask)
            if not length:
                return List(0, 0.0)
            result = body(batch, mask)
            batch.lengths.pop()
            if present is not None:
                shape = (1,) * (lanes + 1 - present.ndim) + present.shape
                present = np.broadcast_to(present.reshape(shape), (length, *shape[1:]))
            made = batch.structured(mask, List(length, result, present))
            if is_number(made):
                return made
            return flattened(made, lanes) if rest else made

        return run

    def _decided(
        self, element: ast.expr, generators: list[ast.comprehension], conjunction: bool, scope: Scope, lanes: int
    ) -> Expression:
        """`any` and `all` over a generator: elements after the deciding one cause no faults."""
        first, *rest = generators
        inside, begin = self._rounds(first, scope, lanes, can_be_left=True)
        if rest:
            body = self._decided(element, rest, conjunction, inside, lanes + 1)
        else:
            body = self.expression(element, inside, lanes + 1)

        def run(batch: Batch, mask: Array) -> Any:
            length, mask, _ = begin(batch, mask)
            if not length:
                return conjunction
            test = truth(body(batch, mask))
            decides = mask & (opposite(test) if conjunction else test)
            batch.lengths.pop()
            batch.ahead[-1].leave(decides)
            batch.come_back(length)
            found = settled(any_lane(decides, lanes))
            return opposite(found) if conjunction else found

        return run

    def _rounds(
        self, generator: ast.comprehension, scope: Scope, lanes: int, can_be_left: bool = False
    ) -> tuple[Scope, Callable[[Batch, Array], tuple[int, Array, Array | None]]]:
        """The scope inside a generator, and a function that begins its rounds. That function returns the number of
        rounds, the mask inside, and which rounds are present."""
        iterable, inside = self.expression(generator.iter, scope, lanes), dict(scope)
        store = self._inner_target(generator.target, inside, lanes + 1)
        tests = [self.expression(test, inside, lanes + 1) for test in generator.ifs]

        def begin(batch: Batch, mask: Array) -> tuple[int, Array, Array | None]:
            value, length, present = lists.elements(batch, mask, iterable(batch, mask))
            if not length:
                return 0, mask, None
            if present is not None:
                mask = mask & present
            batch.enter(length)
            if can_be_left:
                batch.ahead.append(Ahead(lanes + 1))
            store(batch, mask, by_rows(as_list(value, lanes).element))
            for test in tests:
                chosen = truth(test(batch, mask))
                mask = mask & chosen
                present = np.asarray(chosen) if present is None else present & chosen
            return length, mask, present

        return inside, begin

    def _inner_target(self, node: ast.expr, inside: Scope, lanes: int) -> Store:
        """A store that assigns the target's names inside a comprehension; adds these names to the scope."""
        if isinstance(node, ast.Name):
            key = self.new_name(node.id)
            inside[node.id] = (key, lanes)
            return lambda batch, mask, value: batch.names.__setitem__(key, value)
        parts = [self._inner_target(part, inside, lanes) for part in node.elts]  # type: ignore[attr-defined]

        def store(batch: Batch, mask: Array, value: Any) -> None:
            values = lists.unpacked(batch, mask, value, len(parts), lanes)
            for part, got in zip(parts, values or (0.0,) * len(parts), strict=True):
                part(batch, mask, got)

        return store

    def _call(self, name: str, arguments: list[Expression], keywords: list[Expression], lanes: int) -> Expression:
        function = functions.FUNCTIONS[name]
        return lambda batch, mask: function(
            batch, mask, [argument(batch, mask) for argument in arguments], [k(batch, mask) for k in keywords], lanes
        )
