"""Writes the code for one row: the basic operations that every part of a program uses.

Integers and bools known at compile time stay Python's `int` and `bool`, and are computed here, not in the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from llvmlite import ir

from llm_service.sandbox.batch import MAX_STEPS
from llm_service.sandbox.compiler.kinds import NotCompiled, TooLarge

TRUTH, BYTE, PLACE, WHOLE, REAL = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.DoubleType()
POINTER = ir.PointerType()

MAX_BLOCKS = 2_000  # in the code for a row; the largest realistic programs have 300
MAX_FRAME = 1 << 18  # bytes for all names and lists of a row, which lie on the stack

Code: TypeAlias = Any
"""An LLVM value, or a Python number known at compile time."""


def memory(builder: ir.IRBuilder, size: int) -> Any:
    """A pointer to `size` newly allocated bytes on the stack."""
    found = builder.alloca(ir.ArrayType(WHOLE, -(-size // 8)))
    found.type = POINTER  # llvmlite types it as a pointer to that array
    return found


@dataclass(frozen=True)
class Loop:
    """A loop that is being written.

    Attributes:
        index: the number of the round.
        before: the block before the loop.
        following, end: the blocks for the next round and after the loop.
    """

    index: Code
    before: Any
    following: Any
    end: Any


class Emitter:
    """Builds the function for one row; its arguments are `observations`, `index`, `actions` and `result`.

    Attributes:
        end: the block that ends a finished row; it stores nothing.
        longest: maximum length of ranges whose bounds are unknown at compile time.
    """

    def __init__(self, function: Any, longest: int) -> None:
        self.function, self.longest = function, longest
        self.observations, self.index, self.actions, self.result = function.args
        self._entry, self._gives_up, self.end = (self.block() for _ in range(3))
        self.builder = ir.IRBuilder(self._entry)
        self._first = self.block()
        self._allocations = ir.IRBuilder(self._entry)
        self.frame = 0
        self._steps = self.memory(8)
        self._allocations.store(ir.Constant(WHOLE, 0), self._steps)
        self.builder.position_at_end(self._first)

    def finish(self) -> None:
        """End the function. A row that gets here has not returned a value, so it gives up."""
        self.builder.branch(self._gives_up)
        self._allocations.branch(self._first)
        for block, done in ((self._gives_up, 0), (self.end, 1)):
            self.builder.position_at_end(block)
            self.builder.ret(ir.Constant(TRUTH, done))

    def block(self) -> Any:
        """A new block that nothing jumps to yet.

        Raises:
            NotCompiled: there are too many blocks, which would take long to compile.
        """
        if len(self.function.blocks) > MAX_BLOCKS:
            raise NotCompiled("the code is too long")
        return self.function.append_basic_block()

    def start(self, block: Any) -> None:
        """Continue writing in this block."""
        self.builder.position_at_end(block)

    # ---- memory ----------------------------------------------------------------------------------------------------

    def memory(self, size: int) -> Any:
        """A pointer to `size` bytes on the row's stack. Raises TooLarge beyond MAX_FRAME."""
        self.frame += size
        if self.frame > MAX_FRAME:
            raise TooLarge("the lists take too much memory")
        return memory(self._allocations, size)

    def flag(self) -> Any:
        """A pointer to a bool that is False when the row begins."""
        pointer = self.memory(8)
        self._allocations.store(ir.Constant(TRUTH, 0), pointer)
        return pointer

    def forward(self, pointer: Any, size: Code) -> Any:
        """The pointer moved `size` bytes forward."""
        if isinstance(size, int) and size == 0:
            return pointer
        return self.builder.gep(pointer, [self.code(size)], source_etype=BYTE)

    def load(self, type_: Any, pointer: Any) -> Any:
        return self.builder.load(pointer, typ=type_, align=1 if type_ in (BYTE, TRUTH) else None)

    def store(self, value: Code, pointer: Any) -> None:
        self.builder.store(self.code(value), pointer)

    # ---- whole numbers and truths ------------------------------------------------------------------------------------

    def code(self, value: Code) -> Any:
        """The LLVM value."""
        if isinstance(value, bool):
            return ir.Constant(TRUTH, int(value))
        if isinstance(value, int):
            return ir.Constant(WHOLE, value)
        return ir.Constant(REAL, value) if isinstance(value, float) else value

    def add(self, a: Code, b: Code) -> Code:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if isinstance(b, int) and b == 0:
            return a
        return b if isinstance(a, int) and a == 0 else self.builder.add(self.code(a), self.code(b))

    def sub(self, a: Code, b: Code) -> Code:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if isinstance(b, int) and b == 0 else self.builder.sub(self.code(a), self.code(b))

    def mul(self, a: Code, b: Code) -> Code:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if isinstance(b, int) and b == 1:
            return a
        return b if isinstance(a, int) and a == 1 else self.builder.mul(self.code(a), self.code(b))

    def compare(self, sign: str, a: Code, b: Code) -> Code:
        """The comparison of two integers."""
        if isinstance(a, int) and isinstance(b, int):
            return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[sign]
        return self.builder.icmp_signed(sign, self.code(a), self.code(b))

    def choose(self, test: Code, a: Code, b: Code) -> Code:
        """`a` if the test holds, otherwise `b`."""
        if isinstance(test, bool):
            return a if test else b
        return self.builder.select(test, self.code(a), self.code(b))

    def least(self, a: Code, b: Code) -> Code:
        return self.choose(self.compare("<", a, b), a, b)

    def most(self, a: Code, b: Code) -> Code:
        return self.choose(self.compare(">", a, b), a, b)

    def both(self, a: Code, b: Code) -> Code:
        if isinstance(a, bool):
            return b if a else False
        if isinstance(b, bool):
            return a if b else False
        return self.builder.and_(a, b)

    def opposite(self, a: Code) -> Code:
        return not a if isinstance(a, bool) else self.builder.not_(a)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call an LLVM intrinsic on float64 numbers."""
        type_ = ir.FunctionType(REAL, [REAL] * len(arguments))
        intrinsic = self.function.module.declare_intrinsic(f"llvm.{name}", [REAL], type_)
        return self.builder.call(intrinsic, [self.code(argument) for argument in arguments])

    def same_bytes(self, one: Any, other: Any, size: int) -> Any:
        """Whether the `size` bytes at both pointers are equal."""
        module = self.function.module
        function = module.globals.get("memcmp")
        if function is None:
            function = ir.Function(module, ir.FunctionType(PLACE, [POINTER, POINTER, WHOLE]), "memcmp")
        found = self.builder.call(function, [one, other, ir.Constant(WHOLE, size)])
        return self.builder.icmp_signed("==", found, ir.Constant(PLACE, 0))

    # ---- the way through ---------------------------------------------------------------------------------------------

    def give_up(self) -> None:
        """Leave this row to the interpreter. Code written next is unreachable."""
        self.builder.branch(self._gives_up)
        self.start(self.block())

    def check(self, good: Code) -> None:
        """Give up unless `good` holds."""
        if good is True:
            return
        if good is False:
            self.give_up()
            return
        further = self.block()
        self.builder.cbranch(good, further, self._gives_up)
        self.start(further)

    def branch(self, test: Code, yes: Any, no: Any) -> None:
        self.builder.cbranch(self.code(test), yes, no)

    def spend(self, steps: Code) -> None:
        """Count steps; never fewer than the interpreter counts."""
        if isinstance(steps, int) and steps == 0:
            return
        spent = self.add(self.load(WHOLE, self._steps), steps)
        self.store(spent, self._steps)
        self.check(self.compare("<=", spent, MAX_STEPS))

    @contextmanager
    def loop(self, rounds: Code) -> Iterator[Loop]:
        """Write the body of a loop; it may jump to `following` or `end`."""
        before, head, body, following, end = self.builder.block, *(self.block() for _ in range(4))
        self.builder.branch(head)
        self.start(head)
        index = self.builder.phi(WHOLE)
        index.add_incoming(ir.Constant(WHOLE, 0), before)
        self.branch(self.compare("<", index, rounds), body, end)
        self.start(body)
        yield Loop(index, before, following, end)
        self.builder.branch(following)
        self.start(following)
        index.add_incoming(self.builder.add(index, ir.Constant(WHOLE, 1)), following)
        self.builder.branch(head)
        self.start(end)

    @contextmanager
    def at(self, block: Any) -> Iterator[None]:
        """Write at the end of another block, which may already have a terminator."""
        with self.builder.goto_block(block):
            yield
