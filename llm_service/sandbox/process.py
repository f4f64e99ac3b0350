"""Written programs, run in a process that can reach nothing: `Sandbox`.

    with Sandbox() as sandbox:
        done = sandbox.phi(code, observations, actions)      # Values; a fault is a 0.0 that is counted, never an error

One child (`child`, locked down by `lockdown`) answers one request after the other through two pipes. Whatever it does
but answer in time and in form ends it, the next request starts another. So a program can waste `wall_s` seconds three
times, and then is not run again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from llm_service.sandbox import grammar
from llm_service.sandbox.interpreter import LARGEST_ARGUMENT, Values
from llm_service.sandbox.lockdown import PROTECTIONS

log = logging.getLogger(__name__)

MAX_DEATHS = 3  # of children by one program, in one Sandbox
PIECE_ROWS = 1024  # sent at once; the limit of time is for each piece
PIECE_BYTES = 1 << 24
START_S = 60.0  # to import NumPy from a busy network file system
MAX_HEADER = 1 << 16
MAX_FAULTS = 64

_CHILD = Path(__file__).with_name("child.py")
_ROOT = Path(__file__).resolve().parents[2]
_FAULT = re.compile(r"[a-z][a-z ,_-]{0,39}")


class SandboxBroken(RuntimeError):
    """The child does not start; the message says why. No program can cause this."""


class _Ended(Exception):
    """The child did not answer as it should: by which fault."""


class Sandbox:
    """Runs programs of the grammar in a child process. Calls from several threads take turns.

    The child starts at the first call, in about a quarter of a second. It dies with this object and with this process.

    Args:
        wall_s: seconds within which a piece of at most PIECE_ROWS rows must be answered.
        memory_bytes: address space of the child beyond what Python and NumPy take.
        cpu_s: seconds of work after which a fresh child takes over, between two calls; its kernel limit.

    Raises:
        ValueError: a limit that leaves no room for one call.
    """

    def __init__(self, wall_s: float = 10.0, memory_bytes: int = 512 << 20, cpu_s: float = 300.0) -> None:
        if not 0 < wall_s <= cpu_s:
            raise ValueError(f"wall_s must be above 0 and at most cpu_s: {wall_s}, {cpu_s}")
        if memory_bytes < 8 * PIECE_BYTES:
            raise ValueError(f"memory_bytes must be at least {8 * PIECE_BYTES}, for one piece and its copies")
        self._wall_s, self._memory_bytes, self._cpu_s = wall_s, memory_bytes, cpu_s
        self._child: _Child | None = None
        self._end: weakref.finalize[..., Any] | None = None
        self._deaths: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._told = False

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child. The next call would start another."""
        with self._lock:
            self._stop()

    @property
    def protections(self) -> tuple[str, ...]:
        """Those of `lockdown.PROTECTIONS` that hold on this machine, as the child says; it is started if need be.

        Raises:
            SandboxBroken: the child does not start.
        """
        with self._lock:
            return self._ready().protections

    def phi(self, code: str, observations: NDArray[np.integer], actions: NDArray[np.integer]) -> Values:
        """What the program says of each row.

        Rows are sent in pieces of at most PIECE_ROWS. If the child does not answer one, its rows are 0.0 and counted:
        `wall` (no answer within wall_s), `memory`, `process` (it died or spoke nonsense), `banned` (this program ended
        MAX_DEATHS children and is not run again here).

        Args:
            code: a program of the grammar, `potential(observations, actions)`.
            observations: integers [N, K, ...], the newest last.
            actions: integers [N, K - 1].

        Returns:
            values float32 [N], all finite, and how many rows had which fault.

        Raises:
            CodeRefused: the program is outside the grammar.
            ValueError: arrays of other shapes or types, or a row larger than PIECE_BYTES.
            SandboxBroken: the child does not start.
        """
        code = _normalise(code)
        observations, actions, rows = _checked(observations, actions)
        parts, faults = [np.zeros(0, np.float32)], Counter[str]()
        with self._lock:
            for begin in range(0, len(observations), rows):
                piece = slice(begin, begin + rows)
                values, found = self._piece(code, observations[piece], actions[piece])
                parts.append(values)
                faults.update(found)
        return Values(np.concatenate(parts), dict(faults))

    def check(self, code: str, observations: NDArray[np.integer], actions: NDArray[np.integer]) -> Values:
        """As `phi`, asked twice, the second time in reverse order: a row with two answers is 0.0.

        Its fault is `not deterministic`. Run it once when a program is accepted; a call costs twice a `phi`.
        """
        first = self.phi(code, observations, actions)
        second = self.phi(code, observations[::-1], actions[::-1])
        differ = first.values != second.values[::-1]
        faults = {**second.faults, **first.faults}
        if differ.any():
            faults["not deterministic"] = int(differ.sum())
        return Values(np.where(differ, np.float32(0), first.values), faults)

    def _piece(
        self, code: str, observations: NDArray[np.integer], actions: NDArray[np.integer]
    ) -> tuple[NDArray[np.float32], dict[str, int]]:
        n = len(observations)
        while self._deaths[code] < MAX_DEATHS:
            child = self._ready()
            try:
                return child.ask(code, observations, actions, self._wall_s)
            except _Ended as ended:
                self._stop()
                if not child.starter.is_alive():
                    continue  # the kernel ended it with the thread that had started it, not for what it ran
                self._deaths[code] += 1
                name = hashlib.sha256(code.encode()).hexdigest()[:12]
                log.warning("written program %s: %s; its process is ended and started anew", name, ended)
                return np.zeros(n, np.float32), {str(ended): n}
        return np.zeros(n, np.float32), {"banned": n}

    def _ready(self) -> _Child:
        """A child that is alive, silent and has time for one more call."""
        if self._child is None or not self._child.idle() or self._child.spent_s + self._wall_s > self._cpu_s:
            self._stop()
            self._child = _Child(self._memory_bytes, self._cpu_s)
            self._end = weakref.finalize(self, self._child.kill)  # also at the end of this process
            self._tell(self._child.protections)
        return self._child

    def _stop(self) -> None:
        if self._end is not None:
            self._end()
        self._child = self._end = None

    def _tell(self, held: tuple[str, ...]) -> None:
        if self._told:
            return
        self._told = True
        log.info("written programs run behind: %s", ", ".join(held))
        if missing := [name for name in PROTECTIONS if name not in held]:
            log.warning("written programs run without: %s; this machine does not allow it", ", ".join(missing))


class _Child:
    """One child process and its two pipes."""

    def __init__(self, memory_bytes: int, cpu_s: float) -> None:
        packages = Path(np.__file__).parents[1]
        words = map(str, (_CHILD, packages, _ROOT, memory_bytes, cpu_s))
        libraries = "LD_LIBRARY_PATH"  # where a Python that is loaded as a module has its own library
        self._owner = os.getpid()
        self.starter = threading.current_thread()
        self.spent_s = 0.0  # of wall time in calls, an upper bound of the CPU time they took
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={libraries: os.environ[libraries]} if libraries in os.environ else {},
            cwd="/",
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._to, self._from = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        try:
            told = self._header(time.monotonic() + START_S)
        except _Ended as ended:
            told = {
                "error": f"no word in {START_S:.0f} s" if str(ended) == "wall" else "it ended before its first word"
            }
        held = told.get("protections")
        if not isinstance(held, list) or not all(name in PROTECTIONS for name in held):
            self.kill()
            raise SandboxBroken(f"the process for written programs does not start: {told.get('error')}")
        self.protections: tuple[str, ...] = tuple(held)

    def idle(self) -> bool:
        """Whether it is alive, will not die with its thread, belongs to this process and has nothing to say."""
        alive = self._owner == os.getpid() and self.starter.is_alive() and self.process.poll() is None
        return alive and not _ready(self._from, select.POLLIN, 0)

    def ask(
        self, code: str, observations: NDArray[np.integer], actions: NDArray[np.integer], wall_s: float
    ) -> tuple[NDArray[np.float32], dict[str, int]]:
        """One request.

        Raises:
            _Ended: no answer in time, or none in form.
        """
        begin = time.monotonic()
        deadline = begin + wall_s
        arrays = {"observations": observations, "actions": actions}
        request = {"code": code} | {name: [array.dtype.str, array.shape] for name, array in arrays.items()}
        text = json.dumps(request).encode()
        for part in (len(text).to_bytes(4, "little") + text, *(array.tobytes() for array in arrays.values())):
            self._write(part, deadline)
        answer = self._header(deadline)
        if "fault" in answer:
            raise _Ended("memory" if answer["fault"] == "memory" else "process")
        n = len(observations)
        faults = answer.get("faults")
        if answer.get("rows") != n or not _are_faults(faults, n):
            raise _Ended("process")
        values = np.frombuffer(self._read(4 * n, deadline), "<f4").astype(np.float32)
        if not np.isfinite(values).all() or _ready(self._from, select.POLLIN, 0):  # or more than was announced
            raise _Ended("process")
        self.spent_s += time.monotonic() - begin
        return values, faults

    def _header(self, deadline: float) -> dict[str, Any]:
        length = int.from_bytes(self._read(4, deadline), "little")
        if length > MAX_HEADER:
            raise _Ended("process")
        try:
            header = json.loads(self._read(length, deadline))
        except (ValueError, RecursionError):
            raise _Ended("process") from None
        if not isinstance(header, dict):
            raise _Ended("process")
        return header

    def _write(self, data: bytes, deadline: float) -> None:
        rest = memoryview(data)
        while rest:
            self._wait(self._to, select.POLLOUT, deadline)
            try:
                rest = rest[os.write(self._to, rest) :]
            except BlockingIOError:
                pass
            except OSError:
                raise _Ended("process") from None

    def _read(self, size: int, deadline: float) -> bytes:
        parts = []
        while size:
            self._wait(self._from, select.POLLIN, deadline)
            part = os.read(self._from, size)
            if not part:
                raise _Ended("process")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        if not _ready(descriptor, event, max(0.0, deadline - time.monotonic())):
            raise _Ended("wall")

    def kill(self) -> None:
        """End it and everything in its session, leave no zombie."""
        if self._owner != os.getpid():
            return  # a copy in a forked process: the child is not its own
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _ready(descriptor: int, event: int, seconds: float) -> bool:
    """Whether something can be read or written; also true where the other end is closed."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(seconds * 1000))


@functools.lru_cache(256)
def _normalise(code: str) -> str:
    return grammar.normalise(code, window=True)


def _checked(
    observations: NDArray[np.integer], actions: NDArray[np.integer]
) -> tuple[NDArray[np.integer], NDArray[np.integer], int]:
    """Both as little-endian arrays, and how many rows make a piece."""
    for name, array in (("observations", observations), ("actions", actions)):
        wide = array.itemsize > 4 and array.size and max(-int(array.min()), int(array.max())) > LARGEST_ARGUMENT
        if array.dtype.kind not in "iu" or wide:
            raise ValueError(f"{name} must be integers up to {LARGEST_ARGUMENT}, not {array.dtype}")
    if observations.ndim < 2 or actions.shape != (len(observations), observations.shape[1] - 1):
        raise ValueError(f"observations [N, K, ...] and actions [N, K - 1] of {observations.shape}, {actions.shape}")
    row = (observations.nbytes + actions.nbytes) // max(1, len(observations))
    if row > PIECE_BYTES:
        raise ValueError(f"a row has {row} bytes, more than {PIECE_BYTES}")
    little = [array.astype(array.dtype.newbyteorder("<"), copy=False) for array in (observations, actions)]
    return little[0], little[1], min(PIECE_ROWS, PIECE_BYTES // max(1, row))


def _are_faults(faults: object, n: int) -> TypeGuard[dict[str, int]]:
    """Whether these are short names with counts of rows."""
    return (
        isinstance(faults, dict)
        and len(faults) <= MAX_FAULTS
        and all(_FAULT.fullmatch(name) and type(count) is int and 0 <= count <= n for name, count in faults.items())
    )
