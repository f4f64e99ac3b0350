"""Runs written programs over many observations at once, without ever handing their text to Python.

The checked syntax tree becomes closures once. A statement takes the mask of the rows it runs for and returns the mask of
those that go on to the next statement: `if` parts the mask, `return` takes rows out of it, `break` and `continue` lay
them aside for the end of the loop or of the round. An expression takes a mask and returns a value for those rows. A
comprehension runs over all its elements at once, along a further axis in front of the rows.

A row that does what Python forbids, or too much, has a fault: its value is 0.0 and it stops. Nothing of a row depends on
the rows beside it: each counts its own steps, and where rows need values of unlike structure or too much memory together
they are run again apart.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from llm_service.sandbox import functions
from llm_service.sandbox.batch import FAULTS, Batch
from llm_service.sandbox.grammar import WINDOW_ARGUMENTS, checked
from llm_service.sandbox.values import Array, List, Split, Value, as_list, flattened, is_number, lift, pick, select, truth

MAX_ROWS = 1_024  # together; more only need more memory
LARGEST_ARGUMENT = 2**31

Expression: TypeAlias = Callable[[Batch, Array], Any]
Statement: TypeAlias = Callable[[Batch, Array, "Rounds | None"], "Array | None"]
Target: TypeAlias = Callable[[Batch, Array, Any], None]
Scope: TypeAlias = dict[str, tuple[str, int]]
"""For the names of comprehensions: where the batch keeps their value, and how many lanes they have."""


@dataclass(frozen=True)
class Values:
    """What a program says of N rows.

    Attributes:
        values: float32 [N], finite; 0.0 where a row has a fault.
        faults: how many rows had each kind of fault of `batch.FAULTS`; kinds that did not occur are left out.
    """

    values: NDArray[np.float32]
    faults: dict[str, int]


@dataclass(slots=True)
class Rounds:
    """The rows that left the present round of a loop (`continue`), and those that left the loop (`break`)."""

    continued: Array | None = None
    broken: Array | None = None


class Program:
    """A written program, ready to run.

    Args:
        code: the text of a `potential(observations, actions)`.

    Raises:
        CodeRefused: it is not a program of the grammar.
    """

    def __init__(self, code: str) -> None:
        self._body = _Compiler().block(checked(code, window=True).body)

    def __call__(self, observations: NDArray[Any], actions: NDArray[Any]) -> Values:
        """Run it for each row.

        Args:
            observations: int [N, K, ...], the last K observations, oldest first.
            actions: int [N, K-1], what was done between them.

        Raises:
            ValueError: these are no integers of such shapes.
        """
        rows = len(observations)
        if observations.ndim < 2 or actions.shape != (rows, observations.shape[1] - 1):
            raise ValueError(f"observations [N, K, ...] need actions [N, K-1], not {observations.shape}, {actions.shape}")
        for array in (observations, actions):
            if array.dtype.kind not in "iu" or (array.itemsize > 4 and np.abs(array).max(initial=0) > LARGEST_ARGUMENT):
                raise ValueError(f"observations and actions are integers up to {LARGEST_ARGUMENT}")
        values, kinds = np.zeros(rows), np.zeros(rows, np.int8)
        waiting = [np.arange(first, min(first + MAX_ROWS, rows)) for first in range(0, rows, MAX_ROWS)]
        while waiting:
            some = waiting.pop()
            try:
                values[some], kinds[some] = self._run(observations[some], actions[some])
            except Split as split:
                if len(some) == 1:
                    kinds[some] = FAULTS.index(split.kind)
                    continue
                together = split.rows
                if together is None or together.all() or not together.any():
                    together = np.arange(len(some)) < len(some) // 2
                waiting += [some[together], some[~together]]
        faults = Counter(FAULTS[kind] for kind in kinds[kinds > 0])
        return Values(values.astype(np.float32), dict(sorted(faults.items())))

    def _run(self, observations: NDArray[Any], actions: NDArray[Any]) -> tuple[Array, Array]:
        batch = Batch(len(observations))
        for name, array in zip(WINDOW_ARGUMENTS, (observations, actions), strict=True):
            batch.names[name] = _nested(array)
        with np.errstate(all="ignore"):  # what they warn of is found, and is the fault of its row
            end = self._body(batch, batch.whole, None)
            if end is not None:
                batch.fault("no value", end)
        return np.where(batch.fault_kinds == 0, batch.result, 0.0), batch.fault_kinds


def run(code: str, observations: NDArray[Any], actions: NDArray[Any]) -> Values:
    """The values of a program; arguments and errors are those of `Program`."""
    return Program(code)(observations, actions)


def _nested(array: Array) -> Value:
    """Integers [N, ...] as lists of lists: the shape of each row."""
    value: Value = np.ascontiguousarray(array.T)
    for length in reversed(array.shape[1:]):
        value = List(length, value if length else 0.0)
    return value


class _Compiler:
    """Turns parts of the tree into closures."""

    def __init__(self) -> None:
        self._comprehensions = 0

    # ---- statements -------------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> Statement:
        steps = [self._statement(node) for node in body]

        def run(batch: Batch, mask: Array, rounds: Rounds | None) -> Array | None:
            outermost = mask is batch.whole and rounds is None
            going: Array | None = mask
            for step in steps:
                going = step(batch, going, rounds)
                if going is None:
                    return None
                if outermost:
                    batch.whole = going
            return going

        return run

    def _statement(self, node: ast.stmt) -> Statement:
        match node:
            case ast.Assign(targets=targets, value=value):
                return self._assign(targets, self._expression(value, {}, 1))
            case ast.AugAssign(target=target, op=op, value=value):
                both = ast.BinOp(ast.Name(target.id, ast.Load()), op, value)  # type: ignore[union-attr]
                return self._assign([target], self._expression(both, {}, 1))
            case ast.If(test=test, body=body, orelse=orelse):
                return self._if(self._expression(test, {}, 1), self.block(body), self.block(orelse))
            case ast.For(target=target, iter=iterable, body=body):
                return self._for(self._target(target), self._expression(iterable, {}, 1), self.block(body))
            case ast.Return(value=ast.expr() as value):
                return self._return(self._expression(value, {}, 1))
            case ast.Break():
                return self._leave("broken")
            case ast.Continue():
                return self._leave("continued")
        return lambda batch, mask, rounds: mask

    def _assign(self, targets: list[ast.expr], value: Expression) -> Statement:
        stores = [self._target(target) for target in targets]

        def run(batch: Batch, mask: Array, rounds: Rounds | None) -> Array | None:
            before, got = batch.alive, value(batch, mask)
            for store in stores:
                if batch.alive is not before:
                    before, mask = batch.alive, batch.still(mask)
                    if not np.count_nonzero(mask):
                        return None
                store(batch, mask, got)
            return mask

        return run

    def _target(self, node: ast.expr) -> Target:
        if isinstance(node, ast.Name):
            name = node.id
            return lambda batch, mask, value: batch.assign(name, mask, value)
        parts = [self._target(part) for part in node.elts]  # type: ignore[attr-defined]

        def store(batch: Batch, mask: Array, value: Any) -> None:
            values = functions.unpacked(batch, mask, value, len(parts), 1)
            if values is not None:
                mask = batch.still(mask)
                for part, got in zip(parts, values, strict=True):
                    part(batch, mask, got)

        return store

    def _if(self, test: Expression, then: Statement, otherwise: Statement) -> Statement:
        def run(batch: Batch, mask: Array, rounds: Rounds | None) -> Array | None:
            before, chosen = batch.alive, truth(test(batch, mask))
            if batch.alive is not before:
                mask = batch.still(mask)
                if not np.count_nonzero(mask):
                    return None
            if not isinstance(chosen, np.ndarray):
                return (then if chosen else otherwise)(batch, mask, rounds)
            yes = mask & chosen
            count = np.count_nonzero(yes)
            if not count:
                return otherwise(batch, mask, rounds)
            if count == np.count_nonzero(mask):
                return then(batch, mask, rounds)
            no = mask & ~chosen
            first, second = then(batch, yes, rounds), otherwise(batch, no, rounds)
            if first is yes and second is no:
                return mask
            if first is None or second is None:
                return second if first is None else first
            return first | second

        return run

    def _for(self, store: Target, iterable: Expression, body: Statement) -> Statement:
        def run(batch: Batch, mask: Array, rounds: Rounds | None) -> Array | None:
            value = iterable(batch, mask)
            if is_number(value):
                batch.fault("type", mask)
                value = ()
            length, present = functions.extent(value)
            batch.spend(mask, length, present)
            alive, going = None, mask
            mine = Rounds()
            for i in range(length):
                if batch.alive is not alive:
                    going, alive = batch.still(going), batch.alive
                active = going if present is None else going & present[i]
                if not np.count_nonzero(active):
                    if present is None:
                        break
                    continue
                element = value[i] if isinstance(value, tuple) else pick(value.element, i, 1)
                store(batch, active, element)
                after = body(batch, active, mine)
                if mine.continued is not None:
                    after = mine.continued if after is None else after | mine.continued
                    mine.continued = None
                if after is not active:
                    stayed = going & ~active
                    going = stayed if after is None else stayed | after
            if mine.broken is not None:
                going = going | mine.broken
            going = batch.still(going)
            return going if np.count_nonzero(going) else None

        return run

    def _leave(self, where: str) -> Statement:
        def run(batch: Batch, mask: Array, rounds: Rounds | None) -> Array | None:
            before = getattr(rounds, where)
            setattr(rounds, where, mask if before is None else before | mask)
            return None

        return run

    def _return(self, value: Expression) -> Statement:
        def run(batch: Batch, mask: Array, rounds: Rounds | None) -> Array | None:
            got = batch.number(mask, value(batch, mask))
            np.copyto(batch.result, got, where=mask)
            return None

        return run

    # ---- expressions ------------------------------------------------------------------------------------------------

    def _expression(self, node: ast.expr | None, scope: Scope, lanes: int) -> Expression:
        def of(part: ast.expr) -> Expression:
            return self._expression(part, scope, lanes)

        match node:
            case None:
                return lambda batch, mask: None
            case ast.Constant(value=constant):
                return lambda batch, mask: constant
            case ast.Name(id=name):
                return self._name(name, scope, lanes)
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                parts = [of(element) for element in elements]
                return lambda batch, mask: tuple([part(batch, mask) for part in parts])
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=exponent)):
                base = of(left)
                return lambda batch, mask: functions.power(batch, mask, base(batch, mask), exponent)  # type: ignore[arg-type]
            case ast.BinOp(left=left, op=op, right=right):
                one, other, apply = of(left), of(right), functions.arithmetic(type(op))
                return lambda batch, mask: apply(batch, mask, one(batch, mask), other(batch, mask))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                test = of(operand)
                return lambda batch, mask: functions.opposite(truth(test(batch, mask)))
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
                whole, bounds = of(value), [self._expression(bound, scope, lanes) for bound in (lower, upper, step)]
                return lambda batch, mask: functions.part(
                    batch, mask, whole(batch, mask), tuple([bound(batch, mask) for bound in bounds]), lanes
                )
            case ast.Subscript(value=value, slice=index):
                whole, place = of(value), of(index)
                return lambda batch, mask: functions.item(batch, mask, whole(batch, mask), place(batch, mask), lanes)
            case ast.ListComp(elt=element, generators=generators) | ast.GeneratorExp(elt=element, generators=generators):
                return self._comprehension(element, generators, scope, lanes)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
                return self._call(name, list(map(of, arguments)), [of(keyword.value) for keyword in keywords], lanes)
        raise AssertionError(f"the grammar has no {type(node).__name__}")

    def _name(self, name: str, scope: Scope, lanes: int) -> Expression:
        key, own = scope.get(name, (name, 1))

        def run(batch: Batch, mask: Array) -> Any:
            if key not in batch.names:
                batch.fault("unassigned", mask)
                return 0.0
            if key in batch.assigned:
                batch.fault("unassigned", mask, ~batch.assigned[key])
            value = batch.names[key]
            return value if own == lanes or is_number(value) else lift(value, own, lanes)

        return run

    def _either(self, values: list[Expression], conjunction: bool, lanes: int) -> Expression:
        """`and` and `or`: the value that decides, as in Python; of a list and a number, its truth."""

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
                result = select(undecided, got, result, lanes)
            return result

        return run

    def _compare(self, values: list[Expression], kinds: list[type[ast.cmpop]], lanes: int) -> Expression:
        def run(batch: Batch, mask: Array) -> Any:
            left, result = values[0](batch, mask), None
            for value, kind in zip(values[1:], kinds, strict=True):
                right = value(batch, mask)
                test = functions.compare(batch, mask, kind, left, right, lanes)
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
        (generator, *rest) = generators
        iterable = self._expression(generator.iter, scope, lanes)
        self._comprehensions += 1
        inside = dict(scope)
        store = self._inner_target(generator.target, inside, lanes + 1)
        tests = [self._expression(test, inside, lanes + 1) for test in generator.ifs]
        if rest:
            body = self._comprehension(element, rest, inside, lanes + 1)
        else:
            body = self._expression(element, inside, lanes + 1)

        def run(batch: Batch, mask: Array) -> Any:
            value = iterable(batch, mask)
            if is_number(value):
                batch.fault("type", mask)
                value = ()
            value = as_list(value, lanes)
            batch.spend(mask, value.length, value.present)
            if not value.length:
                return List(0, 0.0)
            batch.enter(value.length)
            present = value.present
            if present is not None:
                mask = mask & present
            store(batch, mask, value.element)
            for test in tests:
                chosen = truth(test(batch, mask))
                mask = mask & chosen
                present = np.asarray(chosen) if present is None else present & chosen
            result = body(batch, mask)
            batch.lengths.pop()
            if present is not None:
                shape = (1,) * (lanes + 1 - present.ndim) + present.shape
                present = np.broadcast_to(present.reshape(shape), (value.length, *shape[1:]))
            made = List(value.length, result, present)
            return flattened(made, lanes) if rest else made

        return run

    def _inner_target(self, node: ast.expr, inside: Scope, lanes: int) -> Target:
        if isinstance(node, ast.Name):
            key = f"{node.id} of comprehension {self._comprehensions}"
            inside[node.id] = (key, lanes)
            return lambda batch, mask, value: batch.names.__setitem__(key, value)
        parts = [self._inner_target(part, inside, lanes) for part in node.elts]  # type: ignore[attr-defined]

        def store(batch: Batch, mask: Array, value: Any) -> None:
            values = functions.unpacked(batch, mask, value, len(parts), lanes)
            for part, got in zip(parts, values or (0.0,) * len(parts), strict=True):
                part(batch, mask, got)

        return store

    def _call(self, name: str, arguments: list[Expression], keywords: list[Expression], lanes: int) -> Expression:
        function = functions.FUNCTIONS[name]
        return lambda batch, mask: function(
            batch, mask, [argument(batch, mask) for argument in arguments], [k(batch, mask) for k in keywords], lanes
        )
