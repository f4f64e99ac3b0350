"""Tests whether values are equal, and whether a list contains a value."""

from __future__ import annotations

from llm_service.sandbox.compiler import arithmetic
from llm_service.sandbox.compiler.arithmetic import Number
from llm_service.sandbox.compiler.emitter import TRUTH, Code, Emitter
from llm_service.sandbox.compiler.sequences import List, Sequence, Together, Value, at, even, is_one_block, length


def equal(e: Emitter, one: Value, other: Value) -> Code:
    """Whether two values are equal; lists are equal if their elements are."""
    if isinstance(one, Number) and isinstance(other, Number):
        return arithmetic.compare(e, "==", one, other)
    if isinstance(one, Number) or isinstance(other, Number):
        return False
    if isinstance(one, Together) and isinstance(other, Together):
        if len(one.parts) != len(other.parts):
            return False
        same: Code = True
        for a, b in zip(one.parts, other.parts, strict=True):
            same = e.both(same, equal(e, a, b))
        return same
    if is_one_block(one) and one.kind == other.kind:
        assert isinstance(one, Sequence)
        assert isinstance(other, Sequence)
        return e.same_bytes(one.origin, other.origin, one.kind.most * one.kind.element_bytes)  # type: ignore[union-attr]
    if not one.kind.most or not other.kind.most:
        return e.compare("==", length(e, one), length(e, other))
    a_list, b_list = even(e, one), even(e, other)
    found, like = e.memory(8), e.compare("==", a_list.length, b_list.length)
    e.store(like, found)
    with e.loop(e.choose(like, a_list.length, 0)) as loop:
        differs = e.block()
        e.branch(equal(e, at(e, a_list, loop.index), at(e, b_list, loop.index)), loop.following, differs)
        e.start(differs)
        e.store(False, found)
        e.builder.branch(loop.end)
        e.start(e.block())
    return e.load(TRUTH, found)


def contains(e: Emitter, container: List, item: Value) -> Code:
    """Whether any element equals the item."""
    if isinstance(container, Together):
        found: Code = False
        for part in container.parts:
            found = e.opposite(e.both(e.opposite(found), e.opposite(equal(e, item, part))))
        return found
    place = e.memory(8)
    e.store(False, place)
    with e.loop(container.length) as loop:
        there = e.block()
        e.branch(equal(e, item, at(e, container, loop.index)), there, loop.following)
        e.start(there)
        e.store(True, place)
        e.builder.branch(loop.end)
        e.start(e.block())
    return e.load(TRUTH, place)
