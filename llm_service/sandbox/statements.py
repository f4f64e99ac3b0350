"""Statements of written programs as closures. Each takes a batch and the mask of the rows to run, and returns the mask
of the rows that go on to the next statement, or None if no row does.

`if` splits the mask, and `return` removes rows from it. `break` and `continue` set rows aside until the end of the loop
or of the round. A loop runs its body once per element. A loop that `loops.at_once` allows runs it once for all
elements, which become an extra axis in front of the lanes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from llm_service.sandbox import functions, lists, loops
from llm_service.sandbox.batch import Ahead, Batch
from llm_service.sandbox.comparisons import truth
from llm_service.sandbox.expressions import Expression, Expressions, Scope, Store
from llm_service.sandbox.values import Array, any_lane, as_list, by_rows, floats, is_number, pick


@dataclass(slots=True)
class Round:
    """The rows that left the current round of a loop (`continue`), and those that left the loop (`break`)."""

    continued: Array | None = None
    broken: Array | None = None


Statement: TypeAlias = Callable[[Batch, Array, Round], "Array | None"]


@dataclass(frozen=True, slots=True)
class Place:
    """The context of a statement: what names mean, the number of lane axes, and which names are read later."""

    scope: Scope
    lanes: int
    later: frozenset[str]

    def before(self, names: set[str]) -> Place:
        """The same place, with these names also read later."""
        return Place(self.scope, self.lanes, self.later | names)


class Statements:
    """Turns statements into closures.

    Args:
        at_once: whether loops may run over all their elements at once; False takes less memory.
    """

    def __init__(self, at_once: bool) -> None:
        self._at_once = at_once
        self._expressions = Expressions()

    def function(self, body: list[ast.stmt]) -> Statement:
        """The closure of the body of a function."""
        place = Place({}, 1, frozenset())
        steps = [self._statement(node, place.before(loops.exposed(body[i:], set()))) for i, node in enumerate(body, 1)]

        def run(batch: Batch, mask: Array, rounds: Round) -> Array | None:
            going: Array | None = mask
            for step in steps:
                going = step(batch, batch.whole, rounds)
                if going is None:
                    return None
                batch.whole = going
            return going

        return run

    def _block(self, body: list[ast.stmt], place: Place) -> Statement:
        steps = [self._statement(node, place.before(loops.exposed(body[i:], set()))) for i, node in enumerate(body, 1)]

        def run(batch: Batch, mask: Array, rounds: Round) -> Array | None:
            going: Array | None = mask
            for step in steps:
                going = step(batch, going, rounds)  # type: ignore[arg-type]
                if going is None:
                    return None
            return going

        return run

    def _statement(self, node: ast.stmt, place: Place) -> Statement:
        found = loops.gathering(node)
        if found and place.scope.get(found.name, ("", 1))[1] < place.lanes:
            return self._gather(found, place)
        match node:
            case ast.Assign(targets=targets, value=value):
                return self._assign([self._target(target, place) for target in targets], self._of(value, place))
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                both = ast.BinOp(ast.Name(name, ast.Load()), op, value)
                return self._assign([self._target(target, place)], self._of(both, place))
            case ast.If(test=test, body=body, orelse=orelse):
                stays = not orelse and not any(
                    isinstance(part, ast.Return | ast.Break | ast.Continue) for part in ast.walk(node)
                )
                then, otherwise = self._block(body, place), None if stays else self._block(orelse, place)
                return self._if(self._of(test, place), then, otherwise)
            case ast.For():
                at_once = place.lanes > 1 or (self._at_once and loops.at_once(node))
                return self._for_at_once(node, place) if at_once else self._for(node, place)
            case ast.Return(value=ast.expr() as value):
                return self._return(self._of(value, place))
            case ast.Break():
                return self._break_at_once if place.lanes > 1 else self._leave("broken")
            case ast.Continue():
                return self._leave("continued")
        return lambda batch, mask, rounds: mask

    def _of(self, node: ast.expr, place: Place) -> Expression:
        return self._expressions.expression(node, place.scope, place.lanes)

    # ---- assignment -------------------------------------------------------------------------------------------------

    def _assign(self, stores: list[Store], value: Expression) -> Statement:
        def run(batch: Batch, mask: Array, rounds: Round) -> Array | None:
            before, got = batch.alive, value(batch, mask)
            for store in stores:
                if batch.alive is not before:
                    before, mask = batch.alive, batch.still(mask)
                    if not np.count_nonzero(mask):
                        return None
                store(batch, mask, got)
            return mask

        return run

    def _target(self, node: ast.expr, place: Place) -> Store:
        lanes = place.lanes
        if isinstance(node, ast.Name):
            key, _ = place.scope.get(node.id, (node.id, 1))
            return lambda batch, mask, value: batch.assign(key, mask, value, lanes)
        parts = [self._target(part, place) for part in node.elts]  # type: ignore[attr-defined]

        def store(batch: Batch, mask: Array, value: Any) -> None:
            values = lists.unpacked(batch, mask, value, len(parts), lanes)
            if values is not None:
                mask = batch.still(mask)
                for part, got in zip(parts, values, strict=True):
                    part(batch, mask, got)

        return store

    def _gather(self, found: loops.Gathering, place: Place) -> Statement:
        """Accumulate a sum or extreme over the enclosing loops that run at once."""
        key, own = place.scope.get(found.name, (found.name, 1))
        old = self._expressions.expression(ast.Name(found.name, ast.Load()), place.scope, own)
        part = self._of(found.part, place)

        def run(batch: Batch, mask: Array, rounds: Round) -> Array | None:
            before, got = batch.alive, batch.number(mask, part(batch, mask))
            if batch.alive is not before:
                mask = batch.still(mask)
            shape = (*reversed(batch.lengths), batch.rows)

            def add(lanes: Array) -> None:
                if batch.ahead and batch.ahead[-1].lanes > own:  # which of these rounds count is not known yet
                    batch.ahead[-1].effects.append((lanes, add))
                    return
                outer = any_lane(lanes, own)
                current = old(batch, outer)
                if not is_number(current):
                    batch.fault("type", outer)
                elif key in batch.names:
                    gathered = functions.gathered(lanes, found.kind, got, shape, own)
                    batch.names[key] = functions.together(batch, outer, found.kind, floats(current), gathered)

            add(mask)
            return mask

        return run

    # ---- the way through --------------------------------------------------------------------------------------------

    def _if(self, test: Expression, then: Statement, otherwise: Statement | None) -> Statement:
        """`otherwise` is None if there is no else branch and nothing in `then` returns, breaks or continues."""

        def run(batch: Batch, mask: Array, rounds: Round) -> Array | None:
            before, chosen = batch.alive, truth(test(batch, mask))
            if batch.alive is not before:
                mask = batch.still(mask)
                if not np.count_nonzero(mask):
                    return None
            if not isinstance(chosen, np.ndarray):
                then_or_not = then if chosen else otherwise
                return mask if then_or_not is None else then_or_not(batch, mask, rounds)
            yes = mask & chosen
            count = np.count_nonzero(yes)
            if otherwise is None:
                before = batch.alive
                if count:
                    then(batch, mask if count == yes.size else yes, rounds)
                if batch.alive is before:
                    return mask
                mask = batch.still(mask)
                return mask if np.count_nonzero(mask) else None
            if not count:
                return otherwise(batch, mask, rounds)
            no = mask & ~chosen
            if not np.count_nonzero(no):
                return then(batch, mask, rounds)
            first, second = then(batch, yes, rounds), otherwise(batch, no, rounds)
            if first is yes and second is no:
                return mask
            if first is None or second is None:
                return second if first is None else first
            return first | second

        return run

    def _for(self, node: ast.For, place: Place) -> Statement:
        iterable, store = self._of(node.iter, place), self._target(node.target, place)
        body = self._block(node.body, place.before(loops.exposed(node.body, loops.stored(node.target))))

        def run(batch: Batch, mask: Array, rounds: Round) -> Array | None:
            value, length, present = lists.elements(batch, mask, iterable(batch, mask))
            going, alive, mine = batch.still(mask), batch.alive, Round()
            for i in range(length):
                if batch.alive is not alive:
                    going, alive = batch.still(going), batch.alive
                active = going if present is None else going & present[i]
                if not np.count_nonzero(active):
                    continue
                store(batch, active, value[i] if isinstance(value, tuple) else pick(value.element, i, 1))
                after = body(batch, active, mine)
                if mine.continued is not None:
                    after = mine.continued if after is None else after | mine.continued
                    mine.continued = None
                if after is not active:
                    stayed = going & ~active
                    going = stayed if after is None else stayed | after
            going = batch.still(going if mine.broken is None else going | mine.broken)
            return going if np.count_nonzero(going) else None

        return run

    def _for_at_once(self, node: ast.For, place: Place) -> Statement:
        """The loop over all its elements at once; names assigned in each round get their own keys in the batch."""
        lanes, own = place.lanes, loops.assigned([node]) - loops.carried(node)
        names = {name: self._expressions.new_name(name) for name in sorted(own)}
        scope = {**place.scope, **{name: (key, lanes + 1) for name, key in names.items()}}
        inside = Place(scope, lanes + 1, place.later)
        iterable, store = self._of(node.iter, place), self._target(node.target, inside)
        body = self._block(node.body, inside)
        can_be_left = loops.can_be_left(node)
        kept = [(names[name], self._target(ast.Name(name), place)) for name in sorted(own & place.later)]

        def run(batch: Batch, mask: Array, rounds: Round) -> Array | None:
            value, length, present = lists.elements(batch, mask, iterable(batch, mask))
            if not length:
                mask = batch.still(mask)
                return mask if np.count_nonzero(mask) else None
            inner = mask if present is None else mask & present
            for key in names.values():
                batch.names.pop(key, None)
                batch.assigned.pop(key, None)
            batch.enter(length)
            if can_be_left:
                batch.ahead.append(Ahead(lanes + 1))
            store(batch, inner, by_rows(as_list(value, lanes).element))
            body(batch, inner, Round())
            batch.lengths.pop()
            there, ended = batch.come_back(length) if can_be_left else (None, None)
            for key, keep in kept:
                if key in batch.names:
                    assigned = batch.assigned[key] & batch.alive
                    rows, last = lists.last(
                        batch.names[key], assigned if there is None else assigned & there, length, lanes
                    )
                    keep(batch, batch.still(mask & rows), last)
            mask = batch.still(mask if ended is None else mask & ~ended)
            return mask if np.count_nonzero(mask) else None

        return run

    def _break_at_once(self, batch: Batch, mask: Array, rounds: Round) -> None:
        batch.ahead[-1].leave(mask)

    def _leave(self, where: str) -> Statement:
        def run(batch: Batch, mask: Array, rounds: Round) -> Array | None:
            before = getattr(rounds, where)
            setattr(rounds, where, mask if before is None else before | mask)
            return None

        return run

    def _return(self, value: Expression) -> Statement:
        def run(batch: Batch, mask: Array, rounds: Round) -> Array | None:
            got = batch.number(mask, value(batch, mask))
            batch.give(batch.still(mask), got)
            return None

        return run
