"""`Sandbox` runs written programs in a process that has no access to files, network or other processes.

    with Sandbox() as sandbox:
        done = sandbox.phi(code, observations, actions)      # Values; a fault counts and gives 0.0, never an error

One child (`child`, locked down by `lockdown`) answers one request after the other, through two pipes and shared memory.
If it does not give a well-formed answer in time, it is killed, and the next request starts another child. So a program
can waste `wall_s` seconds three times; then it is not run again.

A program that is called often gets its own child, which compiles it to machine code before its lockdown is complete.
Until that child is ready, the first child interprets the program. The values are bit-identical.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import threading
import weakref
from collections import Counter, OrderedDict
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from llm_service.sandbox import grammar
from llm_service.sandbox.child import MAX_BYTES, MAX_ROWS
from llm_service.sandbox.connection import Connection, Ended, Request, SandboxBroken, request_of
from llm_service.sandbox.interpreter import LARGEST_ARGUMENT, Values
from llm_service.sandbox.lockdown import PROTECTIONS

__all__ = ["Sandbox", "SandboxBroken"]

log = logging.getLogger(__name__)

MAX_DEATHS = 3  # of children, caused by one program in one Sandbox
PIECE_ROWS = MAX_ROWS  # sent at once; the time limit is per piece
PIECE_BYTES = MAX_BYTES
COMPILED_AFTER = 1 << 15
"""A program is compiled after this many rows of one shape. Compiling costs as much as interpreting even more rows."""
MAX_OWN = 2  # programs with a process for their machine code at the same time
NEVER = -(1 << 62)

Key: TypeAlias = "tuple[str, str, tuple[int, ...], str, int]"
"""A program and the layout of its rows: dtype and shape of one observation, dtype and number of actions."""


class Sandbox:
    """Runs programs of the grammar in a child process. Calls from several threads take turns.

    A child starts at the first call, in about 0.1 s. All children end with this object and with this process.

    Args:
        wall_s: the time limit in seconds for a piece of at most PIECE_ROWS rows.
        memory_bytes: address space of a child beyond what Python, NumPy and LLVM use.
        cpu_s: seconds of work after which a fresh child takes over, between two calls; also the child's kernel limit.

    Raises:
        ValueError: a limit is too small for one call.
    """

    def __init__(self, wall_s: float = 10.0, memory_bytes: int = 512 << 20, cpu_s: float = 300.0) -> None:
        if not 0 < wall_s <= cpu_s:
            raise ValueError(f"wall_s must be above 0 and at most cpu_s: {wall_s}, {cpu_s}")
        if memory_bytes < 8 * PIECE_BYTES:
            raise ValueError(f"memory_bytes must be at least {8 * PIECE_BYTES}, for one piece and its copies")
        self._wall_s, self._memory_bytes, self._cpu_s = wall_s, memory_bytes, cpu_s
        self._child: Connection | None = None  # interprets any program
        self._own = OrderedDict[Key, Connection]()  # of programs that are called often, most recently used last
        self._alive: list[Connection] = []
        weakref.finalize(self, _end, self._alive)  # also runs when this process exits
        self._rows = Counter[Key]()  # requested so far, per program and shape
        self._deaths = Counter[str]()
        self._lock = threading.Lock()
        self._told = False

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all children. A later call starts a new one."""
        with self._lock:
            self._child = None
            self._own.clear()
            _end(self._alive)

    @property
    def protections(self) -> tuple[str, ...]:
        """The names in `lockdown.PROTECTIONS` that hold on this machine, as the child reports; starts it if necessary.

        Raises:
            SandboxBroken: the child did not start.
        """
        with self._lock:
            return self._ready().greet()

    def await_code(self) -> int:
        """Wait for compilations in progress; returns how many programs have machine code."""
        with self._lock:
            return sum([self._has_code(key, child) for key, child in [*self._own.items()]])

    def phi(
        self,
        code: str,
        observations: NDArray[np.integer],
        actions: NDArray[np.integer],
        index: NDArray[np.integer] | None = None,
    ) -> Values:
        """The program's value for each row.

        Rows are sent in pieces of at most PIECE_ROWS. If the child does not answer a piece, its rows are 0.0 and count
        as faults: `wall` (no answer within wall_s), `memory`, `process` (the child died or sent a malformed answer),
        `banned` (this program ended MAX_DEATHS children and is not run again in this Sandbox).

        Args:
            code: a program of the grammar, `potential(observations, actions)`.
            observations: integers [N, K, ...], newest last; with an index, [R, ...].
            actions: integers [N, K - 1].
            index: integers [N, K], each row's observations as indices into [R, ...]. Sharing observations costs less.

        Returns:
            values float32 [N], all finite, and the number of rows per kind of fault.

        Raises:
            CodeRefused: the program is outside the grammar.
            ValueError: the arrays have other shapes or types, or a row is larger than PIECE_BYTES.
            SandboxBroken: the child did not start.
        """
        code = _normalise(code)
        observations, actions, rows = _checked(observations, actions, index)
        parts, faults = [np.zeros(0, np.float32)], Counter[str]()
        with self._lock:
            for begin in range(0, len(actions), rows):
                piece = slice(begin, begin + rows)
                own = (observations[piece], None) if index is None else _needed(observations, index[piece])
                values, found = self._piece(code, own[0], actions[piece], own[1])
                parts.append(values)
                faults.update(found)
        return Values(np.concatenate(parts), dict(faults))

    def check(self, code: str, observations: NDArray[np.integer], actions: NDArray[np.integer]) -> Values:
        """Like `phi`, but computed twice, the second time in reverse order. A row whose two values differ gets 0.0.

        Its fault is `not deterministic`. Call it once when a program is accepted; it costs twice as much as `phi`.
        """
        first = self.phi(code, observations, actions)
        second = self.phi(code, observations[::-1], actions[::-1])
        differ = first.values != second.values[::-1]
        faults = {**second.faults, **first.faults}
        if differ.any():
            faults["not deterministic"] = int(differ.sum())
        return Values(np.where(differ, np.float32(0), first.values), faults)

    def _piece(
        self,
        code: str,
        observations: NDArray[np.integer],
        actions: NDArray[np.integer],
        index: NDArray[np.int32] | None,
    ) -> tuple[NDArray[np.float32], dict[str, int]]:
        n = len(actions)
        while self._deaths[code] < MAX_DEATHS:
            child = self._child_for(code, observations, actions, index)
            try:
                return child.ask(code, observations, actions, index, self._wall_s)
            except Ended as ended:
                self._stop(child)
                if not child.starter.is_alive():
                    continue  # killed because its starter thread ended, not because of the program
                self._deaths[code] += 1
                name = hashlib.sha256(code.encode()).hexdigest()[:12]
                log.warning("written program %s: %s; its process is ended and started anew", name, ended)
                return np.zeros(n, np.float32), {str(ended): n}
            except BaseException:  # such as Ctrl-C: a late answer would be taken for the next one
                self._stop(child)
                raise
        return np.zeros(n, np.float32), {"banned": n}

    def _child_for(self, code: str, observations: Any, actions: Any, index: Any) -> Connection:
        """The child with machine code for such rows if there is one, otherwise the child that interprets.

        A program that is called often gets its own child. It starts and compiles in parallel; the interpreting child
        answers meanwhile.
        """
        shape = observations.shape[1 if index is not None else 2 :]
        key = code, observations.dtype.str, shape, actions.dtype.str, actions.shape[1]
        self._rows[key] += len(actions)
        child = self._own.get(key)
        if child is None:
            if self._rows[key] >= COMPILED_AFTER:
                forms = {"observations": np.empty((1, *shape), observations.dtype), "actions": actions[:1]}
                self._own[key] = self._started(request_of(code, forms))
                if len(self._own) > MAX_OWN:
                    old, _ = next(iter(self._own.items()))
                    self._stop(self._own[old])
                    self._rows[old] = 0
            return self._ready()
        self._own.move_to_end(key)
        if child.protections is None and not child.may_greet():
            return self._ready()
        if not self._has_code(key, child):
            return self._ready()
        if not self._has_time(child):
            self._stop(child)
            return self._ready()
        if not child.spent_s and self._child is not None:
            self._stop(self._child)  # it may never be needed again
        return child

    def _has_code(self, key: Key, child: Connection) -> bool:
        """Whether the program's own child has machine code; waits for its first message. Without code it is killed."""
        try:
            child.greet()
        except SandboxBroken as broken:
            log.warning("there is no machine code for a written program: %s", broken)
        if not child.compiled:
            self._stop(child)
            self._rows[key] = NEVER
        return child.compiled

    def _ready(self) -> Connection:
        """The child that interprets: alive, with no unread output, and with time for one more call."""
        if self._child is None or not self._has_time(self._child):
            if self._child is not None:
                self._stop(self._child)
            child = self._started(None)
            self._tell(child.greet())
            self._child = child
        return self._child

    def _has_time(self, child: Connection) -> bool:
        return child.idle() and child.spent_s + self._wall_s <= self._cpu_s

    def _started(self, request: Request | None) -> Connection:
        child = Connection(self._memory_bytes, self._cpu_s, request)
        self._alive.append(child)
        return child

    def _stop(self, child: Connection) -> None:
        child.kill()
        self._alive.remove(child)
        if child is self._child:
            self._child = None
        for key in [key for key, own in self._own.items() if own is child]:
            del self._own[key]

    def _tell(self, held: tuple[str, ...]) -> None:
        if self._told:
            return
        self._told = True
        log.info("written programs run behind: %s", ", ".join(held))
        if missing := [name for name in PROTECTIONS if name not in held]:
            log.warning("written programs run without: %s; this machine does not allow it", ", ".join(missing))


def _end(children: list[Connection]) -> None:
    while children:
        children.pop().kill()


@functools.lru_cache(256)
def _normalise(code: str) -> str:
    return grammar.normalise(code)


def _checked(
    observations: NDArray[np.integer], actions: NDArray[np.integer], index: NDArray[np.integer] | None
) -> tuple[NDArray[np.integer], NDArray[np.integer], int]:
    """Observations and actions as little-endian arrays, and the number of rows per piece."""
    for name, array in (("observations", observations), ("actions", actions)):
        wide = array.itemsize > 4 and array.size and max(-int(array.min()), int(array.max())) > LARGEST_ARGUMENT
        if array.dtype.kind not in "iu" or wide:
            raise ValueError(f"{name} must be integers up to {LARGEST_ARGUMENT}, not {array.dtype}")
    shape = observations.shape[:2] if index is None else index.shape
    if len(shape) != 2 or actions.shape != (shape[0], shape[1] - 1):
        raise ValueError(f"observations [N, K, ...] and actions [N, K - 1] of {shape}, {actions.shape}")
    if index is not None and index.size and not 0 <= index.min() <= index.max() < len(observations):
        raise ValueError(f"the index names other observations than {len(observations)}")
    row = observations.nbytes // max(1, len(observations)) * (1 if index is None else shape[1])
    row += actions.nbytes // max(1, len(actions)) + (0 if index is None else 4 * shape[1])
    if row > PIECE_BYTES:
        raise ValueError(f"a row has {row} bytes, more than {PIECE_BYTES}")
    little = [array.astype(array.dtype.newbyteorder("<"), copy=False) for array in (observations, actions)]
    return little[0], little[1], min(PIECE_ROWS, PIECE_BYTES // max(1, row))


def _needed(
    observations: NDArray[np.integer], index: NDArray[np.integer]
) -> tuple[NDArray[np.integer], NDArray[np.int32]]:
    """The observations that the index uses (perhaps a few more), and the index into these."""
    first, end = int(index.min()), int(index.max()) + 1
    if end - first <= index.size:  # so they are no more than the rows could have without sharing
        return observations[first:end], (index - first).astype("<i4")
    used = np.zeros(len(observations), bool)
    used[index] = True
    return observations[used], (np.cumsum(used) - 1)[index].astype("<i4")
