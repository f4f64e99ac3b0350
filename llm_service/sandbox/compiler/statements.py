"""Statements of written programs as code.

The interpreter runs some loops over all their elements at once (`loops.at_once`) and sums `x += e` loop by loop, the
innermost first. This code adds in the same order, so the sums are bit-identical.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from llm_service.sandbox import loops
from llm_service.sandbox.batch import MAX_STEPS
from llm_service.sandbox.compiler import arithmetic, places
from llm_service.sandbox.compiler.arithmetic import Number, real, whole
from llm_service.sandbox.compiler.emitter import REAL, WHOLE, Emitter, Loop
from llm_service.sandbox.compiler.expressions import Expressions
from llm_service.sandbox.compiler.kinds import LARGE, holds_array
from llm_service.sandbox.compiler.names import Names
from llm_service.sandbox.compiler.reductions import number
from llm_service.sandbox.compiler.sequences import Iterable, Value, Zipped, at, kept, length, most_of, ready


@dataclass
class AtOnce:
    """A loop that the interpreter runs at once.

    Attributes:
        before: the block before the loop.
        sums: the sums that it accumulates.
    """

    before: Any
    sums: list[Sum] = field(default_factory=list)


@dataclass(frozen=True)
class Sum:
    """The sum that one statement adds to a name over all rounds of one loop.

    Attributes:
        place: pointer to the sum.
        limit: maximum magnitude of an integer sum; None for a float64.
        outer: the sum of the enclosing loop; None if the sum goes directly to the name.
    """

    name: str
    place: Any
    limit: int | None
    outer: Any


class Statements:
    """Writes the body of a function."""

    def __init__(self, e: Emitter, names: Names, expressions: Expressions) -> None:
        self._e, self._names, self._expressions = e, names, expressions
        self._loops: list[Loop] = []
        self._at_once: list[AtOnce] = []
        self._levels: dict[str, int] = {}  # for names local to a round: how many loops at once enclose it

    def block(self, body: list[ast.stmt]) -> None:
        for node in body:
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        e = self._e
        found = loops.gathering(node)
        if found and found.kind == "add" and self._levels.get(found.name, 0) < len(self._at_once):
            self._gather(found)
            return
        match node:
            case ast.Assign(targets=targets, value=source):
                value = self._expressions.value(source)
                if holds_array(value.kind) and not isinstance(source, ast.ListComp):
                    value = kept(e, value)
                for target in targets:
                    self._assign(target, value)
            case ast.AugAssign(target=ast.Name(id=name), op=operator, value=part):
                both = ast.BinOp(ast.Name(name, ast.Load()), operator, part)
                self._names.assign(name, self._expressions.value(both))
            case ast.If(test=test, body=body, orelse=orelse):
                yes, no, further = e.block(), e.block(), e.block()
                e.branch(self._expressions.truth(test), yes, no)
                for block, way in ((yes, body), (no, orelse)):
                    e.start(block)
                    self.block(way)
                    e.builder.branch(further)
                e.start(further)
            case ast.For():
                self._for(node)
            case ast.Return(value=ast.expr() as result):
                e.store(real(e, self._expressions.number(result)), e.result)
                self._leave(e.end)
            case ast.Break():
                self._leave(self._loops[-1].end)
            case ast.Continue():
                self._leave(self._loops[-1].following)

    def _leave(self, block: Any) -> None:
        self._e.builder.branch(block)
        self._e.start(self._e.block())

    def _assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._names.assign(target.id, value)
        elif isinstance(target, ast.Tuple):
            for each, got in zip(target.elts, places.unpacked(self._e, value, len(target.elts)), strict=True):
                self._assign(each, got)

    def _for(self, node: ast.For) -> None:
        e = self._e
        value = self._expressions.iterable(node.iter)
        changed = loops.assigned([node]) & loops.reads(node.iter)
        if changed and not isinstance(value, Zipped) and holds_array(value.kind):
            again = kept(e, value)
            assert not isinstance(again, Number)
            value = again
        elif changed and isinstance(value, Zipped):
            value = self._kept_lists(value)
        value = ready(e, value)
        count = length(e, value)
        e.spend(count)
        if not (self._at_once or loops.at_once(node)):
            with e.loop(count) as loop:
                self._round(node, loop, value)
            return
        outside = dict(self._levels)
        self._levels |= dict.fromkeys(loops.assigned([node]) - loops.carried(node), len(self._at_once) + 1)
        with self._expressions.at_once(most_of(value)), e.loop(count) as loop:
            self._at_once.append(AtOnce(loop.before))
            self._round(node, loop, value)
        self._levels = outside
        self._add_up(self._at_once.pop())

    def _kept_lists(self, value: Zipped) -> Zipped:
        lists: list[Iterable] = []
        for each in value.lists:
            if isinstance(each, Zipped):
                lists.append(self._kept_lists(each))
                continue
            again = kept(self._e, each) if holds_array(each.kind) else each
            assert not isinstance(again, Number)
            lists.append(again)
        return Zipped(tuple(lists), value.start)

    def _round(self, node: ast.For, loop: Loop, value: Any) -> None:
        self._loops.append(loop)
        self._assign(node.target, at(self._e, value, loop.index))
        self.block(node.body)
        self._loops.pop()

    # ---- sums over loops at once -------------------------------------------------------------------------------------

    def _gather(self, found: loops.Gathering) -> None:
        """`name += part`, summed over the enclosing loops at once to which the name is not local."""
        e, outer = self._e, None
        part = number(e, self._expressions.value(found.part))
        limit = None if part.limit is None or part.limit * MAX_STEPS >= LARGE else part.limit * MAX_STEPS
        self._names.assert_assigned(found.name)
        for around in self._at_once[self._levels.get(found.name, 0) :]:
            place = e.memory(8)
            with e.at(around.before):
                e.store(0.0 if limit is None else 0, place)
            around.sums.append(Sum(found.name, place, limit, outer))
            outer = place
        self._add(outer, part, limit)

    def _add(self, place: Any, part: Number, limit: int | None) -> None:
        e = self._e
        if limit is None:
            e.store(e.builder.fadd(e.load(REAL, place), real(e, part)), place)
        else:
            e.store(e.add(e.load(WHOLE, place), whole(e, part)), place)

    def _add_up(self, done: AtOnce) -> None:
        """After the loop: add its sums to those of the enclosing loop, or to the names."""
        e = self._e
        for one in done.sums:
            if one.limit is None:
                found = arithmetic.bounded(e, e.load(REAL, one.place))
            else:
                found = Number(e.load(WHOLE, one.place), one.limit)
            if one.outer is not None:
                self._add(one.outer, found, one.limit)
                continue
            now = number(e, self._names.read(one.name))
            self._names.assign(one.name, arithmetic.arithmetic(e, ast.Add(), now, found))
