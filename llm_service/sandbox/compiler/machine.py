"""A program as machine code: `Compiled` replaces `interpreter.Program`, and calls it for rows that give up."""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from llm_service.sandbox.compiler.emitter import BYTE, POINTER, REAL, TRUTH, WHOLE, Emitter, memory
from llm_service.sandbox.compiler.expressions import Expressions
from llm_service.sandbox.compiler.kinds import Kind, NotCompiled, TooLarge, ViewKind
from llm_service.sandbox.compiler.names import Names
from llm_service.sandbox.compiler.sequences import Sequence
from llm_service.sandbox.compiler.statements import Statements
from llm_service.sandbox.grammar import ARGUMENTS, checked
from llm_service.sandbox.interpreter import LARGEST_ARGUMENT, Program, Values

MAX_PASSES = 8  # over the program, to find the kinds of all names
LONGEST = (1 << 15, 1 << 12, 1 << 9, 1 << 6)
"""Maximum lengths of ranges of unknown length, tried in turn: with shorter ones more programs fit into memory."""

_NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
_MAX_WINDOW = 100  # observations per row
_ARGUMENTS = (ctypes.c_void_p,) * 3 + (ctypes.c_int64,) + (ctypes.c_void_p,) * 2


class Compiled:
    """A written program for rows of one shape, ready to run.

    Its values and faults are those of `interpreter.Program`.

    Args:
        code: the source of a function `potential(observations, actions)`.
        observations, actions: dtype and shape of the arrays as used with an index, [R, ...] and [N, K - 1]; R and N may
            differ at run time.

    Raises:
        CodeRefused: the program is outside the grammar.
        NotCompiled: the interpreter must run it.
    """

    def __init__(self, code: str, observations: tuple[str, tuple[int, ...]], actions: tuple[str, tuple[int, ...]]):
        self.code = code
        self._form = _form(observations), _form(actions)
        self._program = Program(code)
        self._engine = _engine(str(_module(code, *self._form)))
        address = self._engine.get_function_address("run")
        self._run = ctypes.CFUNCTYPE(None, *_ARGUMENTS)(address)

    def fits(
        self, code: str, observations: NDArray[Any], actions: NDArray[Any], index: NDArray[Any] | None = None
    ) -> bool:
        """Whether this code was compiled for this program and rows of this shape."""
        shape = observations.shape if index is not None else observations.shape[1:]
        own = (observations.dtype.str, shape), (actions.dtype.str, actions.shape)
        return code == self.code and self._form == tuple(map(_form, own))

    def __call__(self, observations: NDArray[Any], actions: NDArray[Any], index: NDArray[Any] | None = None) -> Values:
        """Run it for each row; same arguments and errors as `Program`."""
        rows = len(actions)
        if not self.fits(self.code, observations, actions, index):
            raise ValueError(f"there is no code for rows of shapes {observations.shape}, {actions.shape}")
        if index is None:
            index = np.arange(rows * (actions.shape[1] + 1), dtype=np.int32).reshape(rows, -1)
            observations = observations.reshape(-1, *observations.shape[2:])
        if index.shape != (rows, actions.shape[1] + 1):
            raise ValueError(f"observations [N, K, ...] need actions [N, K-1], not {index.shape}, {actions.shape}")
        for array in (observations, actions):
            wide = array.itemsize >= 4 and array.size
            if wide and max(int(array.max()), -int(array.min())) > LARGEST_ARGUMENT:
                raise ValueError(f"observations and actions are integers up to {LARGEST_ARGUMENT}")
        if index.size and not 0 <= index.min() <= index.max() < len(observations):
            raise ValueError(f"the index names other observations than {len(observations)}")
        observations, actions = np.ascontiguousarray(observations), np.ascontiguousarray(actions)
        index = np.ascontiguousarray(index, np.int32)
        values, done = np.zeros(rows, np.float32), np.zeros(rows, bool)
        places = [array.ctypes.data for array in (observations, index, actions, values, done)]
        self._run(*places[:3], rows, *places[3:])
        left = np.flatnonzero(~done)
        if not len(left):
            return Values(values, {})
        used, own = np.unique(index[left], return_inverse=True)
        rest = self._program(observations[used], actions[left], own.reshape(len(left), -1))
        values[left] = rest.values
        return Values(values, rest.faults)


def compiled_for(request: dict[str, Any]) -> Compiled | None:
    """The machine code for a request ("code", and dtype and shape of the arrays); None if it cannot be compiled."""
    observations, actions = ((request[name][0], tuple(request[name][1])) for name in ARGUMENTS)
    try:
        return Compiled(request["code"], observations, actions)
    except NotCompiled:
        return None


def _form(array: tuple[str, tuple[int, ...]]) -> tuple[str, tuple[int, ...]]:
    dtype, shape = array
    return dtype, tuple(shape[1:])


def _module(code: str, observations: tuple[str, tuple[int, ...]], actions: tuple[str, tuple[int, ...]]) -> ir.Module:
    (dtype, shape), (action_dtype, (moves,)) = observations, actions
    for name in (dtype, action_dtype):
        if name[0] not in "<|" or name[1:] not in _NUMBERS:
            raise NotCompiled(f"no code for numbers of type {name}")
    if 0 in shape or moves >= _MAX_WINDOW:
        raise NotCompiled(f"no code for observations of shape {shape}, {moves + 1} a row")
    body = checked(code).body
    for longest in LONGEST:
        kinds: dict[str, Kind] = {}
        try:
            for _ in range(MAX_PASSES):
                module, widened = _written(body, longest, observations, actions, kinds)
                if not widened:
                    return module
        except TooLarge:
            continue
        raise NotCompiled("the kind of a name is not the same in all rounds")
    raise NotCompiled("the lists of a row take too much memory")


def _written(
    body: list[Any], longest: int, observations: Any, actions: Any, kinds: dict[str, Kind]
) -> tuple[ir.Module, bool]:
    """The code, and whether kinds were widened, which makes the code useless."""
    module = ir.Module("program")
    row = ir.Function(module, ir.FunctionType(TRUTH, [POINTER] * 4), "row")
    row.linkage = "internal"
    e = Emitter(row, longest)
    (dtype, shape), (action_dtype, (moves,)) = observations, actions
    window = ViewKind(dtype, shape, moves + 1, indirect=True)
    done = ViewKind(action_dtype, (), moves, exact=True)
    given = Sequence(window, e.index, 1, moves + 1), Sequence(done, e.actions, 1, moves)
    names = Names(e, kinds)
    expressions = Expressions(e, names, dict(zip(ARGUMENTS, given, strict=True)))
    Statements(e, names, expressions).block(body)
    e.finish()
    if not names.widened:
        _rows(module, row, 4 * (moves + 1), int(action_dtype[2:]) * moves)
    return module, names.widened


def _rows(module: ir.Module, row: ir.Function, index_bytes: int, action_bytes: int) -> None:
    """Write run(observations, index, actions, rows, values, done): it runs each row, and stores its value (0.0 if it
    gave up) and whether it finished."""
    run = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER] * 3 + [WHOLE] + [POINTER] * 2), "run")
    observations, index, actions, rows, values, done = run.args
    first, head, body, end = (run.append_basic_block() for _ in range(4))
    build = ir.IRBuilder(first)
    result = memory(build, 8)
    build.branch(head)
    build.position_at_end(head)
    i = build.phi(WHOLE)
    i.add_incoming(ir.Constant(WHOLE, 0), first)
    build.cbranch(build.icmp_signed("<", i, rows), body, end)
    build.position_at_end(body)

    def place(origin: Any, size: int) -> Any:
        return build.gep(origin, [build.mul(i, ir.Constant(WHOLE, size))], source_etype=BYTE)

    build.store(ir.Constant(REAL, 0.0), result)
    good = build.call(row, [observations, place(index, index_bytes), place(actions, action_bytes), result])
    found = build.fadd(build.load(result, typ=REAL), ir.Constant(REAL, 0.0))  # + 0.0 turns -0.0 into 0.0
    found = build.select(good, found, ir.Constant(REAL, 0.0))
    build.store(build.fptrunc(found, ir.FloatType()), place(values, 4))
    build.store(build.zext(good, BYTE), place(done, 1))
    i.add_incoming(build.add(i, ir.Constant(WHOLE, 1)), body)
    build.branch(head)
    build.position_at_end(end)
    build.ret_void()


def _engine(text: str) -> Any:
    """The engine that holds the machine code. LLVM may not change any bit: no fast math, no fused multiply-add."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), opt=2)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False  # costs more than it saves
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine
