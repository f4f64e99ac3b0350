"""Decides which `for` loops can run all rounds at once, as comprehensions do, with the same result.

A loop can if no round needs anything from earlier rounds except sums and extremes:

- every name it assigns is either assigned in each round before that round reads it, or only added to (`x += e`, `x -=
  e`, `x = x + e`), or only minimised (`x = min(x, e)`, `if e < x: x = e`), or only maximised,
- the same holds for the loops inside it.

`return` and `break` are allowed: the effects of later rounds are discarded.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple


class Gathering(NamedTuple):
    """A statement that updates `name` to its sum, minimum or maximum with `part`."""

    name: str
    kind: str  # "add", "min" or "max"
    part: ast.expr


def at_once(loop: ast.For) -> bool:
    """Whether the loop may run over all its elements at once."""
    return all(_only_gathers(node, carried(node)) for node in ast.walk(loop) if isinstance(node, ast.For))


def can_be_left(loop: ast.For) -> bool:
    """Whether the loop contains a `return`, or a `break` that belongs to it."""

    def leaves(node: ast.AST, inside: bool) -> bool:
        if isinstance(node, ast.Return) or (isinstance(node, ast.Break) and not inside):
            return True
        return any(leaves(child, inside or isinstance(node, ast.For)) for child in ast.iter_child_nodes(node))

    return any(leaves(node, False) for node in loop.body)


def carried(loop: ast.For) -> set[str]:
    """The names that a round may read with a value from an earlier round."""
    return exposed(loop.body, stored(loop.target)) & assigned([loop])


def gathering(node: ast.stmt) -> Gathering | None:
    """The statement as a `Gathering`; None if it does not have that form."""
    found = None
    match node:
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=part):
            found = Gathering(name, "add", part)
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Sub(), value=part):
            found = Gathering(name, "add", ast.UnaryOp(ast.USub(), part))
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(left=ast.Name(id=left), op=ast.Add(), right=part)):
            found = Gathering(name, "add", part) if left == name else None
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=ast.Name(id="min" | "max" as kind), args=[one, other], keywords=[]),
        ):
            if name in (getattr(one, "id", ""), getattr(other, "id", "")):
                found = Gathering(name, kind, other if getattr(one, "id", "") == name else one)
        case ast.If(
            test=ast.Compare(
                left=left, ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() as operator], comparators=[right]
            ),
            body=[ast.Assign(targets=[ast.Name(id=name)], value=part)],
            orelse=[],
        ):
            less, same = isinstance(operator, ast.Lt | ast.LtE), ast.dump(part)
            if ast.dump(left) == same and isinstance(right, ast.Name) and right.id == name:  # if part < name
                found = Gathering(name, "min" if less else "max", part)
            elif ast.dump(right) == same and isinstance(left, ast.Name) and left.id == name:  # if name < part
                found = Gathering(name, "max" if less else "min", part)
    return found


def _only_gathers(loop: ast.For, names: set[str]) -> bool:
    """Whether the loop uses these names only in gathering statements, each of one kind."""
    kinds: dict[str, str] = {}

    def clean(body: Iterable[ast.stmt]) -> bool:
        for node in body:
            found = gathering(node)
            if found and found.name in names:
                if kinds.setdefault(found.name, found.kind) != found.kind or reads(found.part) & names:
                    return False
            elif isinstance(node, ast.If):
                if reads(node.test) & names or not clean(node.body) or not clean(node.orelse):
                    return False
            elif isinstance(node, ast.For):
                if (reads(node.iter) | stored(node.target)) & names or not clean(node.body):
                    return False
            elif (reads(node) | assigned([node])) & names:
                return False
        return True

    return clean(loop.body)


# ---- names ----------------------------------------------------------------------------------------------------------


def stored(target: ast.expr) -> set[str]:
    """The names of an assignment's target."""
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def assigned(body: Iterable[ast.stmt]) -> set[str]:
    """The names that the statements may assign; excludes those of comprehensions."""
    found: set[str] = set()
    for node in body:
        match node:
            case ast.Assign(targets=targets):
                found |= set().union(*map(stored, targets))
            case ast.AugAssign(target=target):
                found |= stored(target)
            case ast.For(target=target, body=inner):
                found |= stored(target) | assigned(inner)
            case ast.If(body=inner, orelse=orelse):
                found |= assigned(inner) | assigned(orelse)
    return found


def reads(node: ast.AST) -> set[str]:
    """The names that an expression or statement reads; excludes those of comprehensions."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            return {name}
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            return {name} | reads(value)
        case ast.ListComp(elt=element, generators=generators) | ast.GeneratorExp(elt=element, generators=generators):
            own: set[str] = set()
            found: set[str] = set()
            for generator in generators:
                found |= reads(generator.iter) - own
                own |= stored(generator.target)
                found |= set().union(*map(reads, generator.ifs)) - own
            return found | (reads(element) - own)
    return set().union(*map(reads, ast.iter_child_nodes(node)))


def exposed(body: Iterable[ast.stmt], known: set[str]) -> set[str]:
    """The names that the statements may read before assigning them. Adds what is surely assigned to `known`."""
    found: set[str] = set()
    for node in body:
        match node:
            case ast.If(test=test, body=then, orelse=otherwise):
                one, other = set(known), set(known)
                found |= (reads(test) - known) | exposed(then, one) | exposed(otherwise, other)
                known |= other if _leaves(then) else one if _leaves(otherwise) else one & other
            case ast.For(target=target, iter=iterable, body=inner):
                found |= (reads(iterable) - known) | exposed(inner, known | stored(target))
            case _:
                found |= reads(node) - known
                known |= assigned([node])
    return found


def _leaves(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return | ast.Break | ast.Continue)
