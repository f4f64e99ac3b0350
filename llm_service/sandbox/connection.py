"""The parent's side of one child process: `Connection` holds its two pipes and the memory shared with it.

The pipes carry small JSON messages. Arrays lie in shared memory, so they are written once and cross no pipe.

Nothing from the child is trusted: a late or malformed answer raises `Ended`, and the caller kills the child. The child
can write to the shared memory at any time. So values are copied out first and checked afterwards, and nothing else is
ever read from it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from llm_service.sandbox import child
from llm_service.sandbox.lockdown import PROTECTIONS

START_S = 60.0  # importing NumPy from a busy network file system can take long
MAX_FAULTS = 64

_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "67108864", "MALLOC_TRIM_THRESHOLD_": "268435456"}
"""Settings of glibc: the child keeps freed memory for its next array. Getting it anew takes longer than filling it."""
_CHILD = Path(child.__file__)
_ROOT = Path(__file__).resolve().parents[2]
_FAULT = re.compile(r"[a-z][a-z ,_-]{0,39}")


Request: TypeAlias = "dict[str, Any]"


def request_of(code: str, arrays: Mapping[str, NDArray[Any]]) -> Request:
    """The JSON message of a request."""
    return {"code": code} | {name: [array.dtype.str, array.shape] for name, array in arrays.items()}


class SandboxBroken(RuntimeError):
    """The child did not start; the message says why. No program can cause this."""


class Ended(Exception):
    """The child did not answer as it should; the message is the fault: `wall`, `memory` or `process`."""


class Connection:
    """Starts the child; `greet` waits for its first message.

    Args:
        memory_bytes, cpu_s: the limits that `lockdown.lock_down` sets.
        request: a request, from `request_of`, that the child compiles to machine code if possible.

    Attributes:
        protections: those that hold, according to the child; None before its first message.
        compiled: whether it has machine code, according to the child.
        spent_s: the total seconds that its calls took, an upper bound on their CPU time.
        starter: the thread that started it; the kernel kills the child when this thread ends.
    """

    protections: tuple[str, ...] | None = None
    compiled = False

    def __init__(self, memory_bytes: int, cpu_s: float, request: Request | None = None) -> None:
        packages = Path(np.__file__).parents[1]
        shared = _shared_file()
        words = [*map(str, (_CHILD, packages, _ROOT, memory_bytes, cpu_s, shared))]
        if request is not None:
            words.append(json.dumps(request))
        libraries = "LD_LIBRARY_PATH"  # where a Python from an environment module finds its shared library
        self.starter = threading.current_thread()
        self.spent_s, self._begun = 0.0, time.monotonic()
        try:
            self._shared = mmap.mmap(shared, child.SHARED_BYTES)
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_MEMORY | ({libraries: os.environ[libraries]} if libraries in os.environ else {}),
                cwd="/",
                start_new_session=True,
                pass_fds=[shared],
            )
        finally:
            os.close(shared)
        self._values = np.frombuffer(self._shared, "<f4", child.MAX_ROWS)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._to, self._from = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)

    def may_greet(self) -> bool:
        """Whether `greet` would return at once: the child has sent something, has ended, or START_S has passed."""
        return _ready(self._from, select.POLLIN, 0) or time.monotonic() > self._begun + START_S

    def greet(self) -> tuple[str, ...]:
        """Wait for the child's first message and return the protections.

        Raises:
            SandboxBroken: it does not start; it is killed.
        """
        if self.protections is None:
            try:
                self.protections = self._first_word()
            except BaseException:
                self.kill()
                raise
        return self.protections

    def _first_word(self) -> tuple[str, ...]:
        try:
            told = self._header(self._begun + START_S)
        except Ended as ended:
            late = str(ended) == "wall"
            told = {"error": f"no word in {START_S:.0f} s" if late else "it ended before its first word"}
        held = told.get("protections")
        if not isinstance(held, list) or not all(name in PROTECTIONS for name in held):
            raise SandboxBroken(f"the process for written programs does not start: {told.get('error')}")
        self.compiled = told.get("compiled") is True
        return tuple(held)

    def idle(self) -> bool:
        """Whether the child is alive and has sent nothing unread. A forked copy of the parent sees it as ended."""
        return self.process.poll() is None and not _ready(self._from, select.POLLIN, 0)

    def ask(
        self,
        code: str,
        observations: NDArray[np.integer],
        actions: NDArray[np.integer],
        index: NDArray[np.int32] | None,
        wall_s: float,
    ) -> tuple[NDArray[np.float32], dict[str, int]]:
        """Send one request for `len(actions)` rows, and wait for the answer.

        Raises:
            Ended: no answer in time, or a malformed one.
        """
        begin = time.monotonic()
        deadline = begin + wall_s
        arrays = {"observations": observations, "actions": actions} | ({} if index is None else {"index": index})
        request = request_of(code, arrays)
        n = len(actions)
        self._values[:n] = np.nan  # to detect a child that answers without writing values
        for name, place in child.places(request).items():
            array = arrays[name]
            np.frombuffer(self._shared, array.dtype, array.size, place).reshape(array.shape)[...] = array
        text = json.dumps(request).encode()
        self._write(len(text).to_bytes(4, "little") + text, deadline)
        answer = self._header(deadline)
        if "fault" in answer:
            raise Ended("memory" if answer["fault"] == "memory" else "process")
        faults = answer.get("faults")
        if answer.get("rows") != n or not _are_faults(faults, n):
            raise Ended("process")
        values = self._values[:n].astype(np.float32)  # a copy, which the child cannot reach
        # After the answer nothing more may wait in the pipe.
        if not np.isfinite(values).all() or _ready(self._from, select.POLLIN, 0):
            raise Ended("process")
        self.spent_s += time.monotonic() - begin
        return values, faults

    def _header(self, deadline: float) -> dict[str, Any]:
        length = int.from_bytes(self._read(4, deadline), "little")
        if length > child.MAX_HEADER:
            raise Ended("process")
        try:
            header = json.loads(self._read(length, deadline))
        except (ValueError, RecursionError):
            raise Ended("process") from None
        if not isinstance(header, dict):
            raise Ended("process")
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
                raise Ended("process") from None

    def _read(self, size: int, deadline: float) -> bytes:
        parts = []
        while size:
            self._wait(self._from, select.POLLIN, deadline)
            part = os.read(self._from, size)
            if not part:
                raise Ended("process")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        if not _ready(descriptor, event, max(0.0, deadline - time.monotonic())):
            raise Ended("wall")

    def kill(self) -> None:
        """Kill the child and everything in its session; leave no zombie."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _shared_file() -> int:
    """The descriptor of a new file in memory. Neither side can change its size."""
    if not hasattr(os, "memfd_create"):  # not Linux
        with tempfile.TemporaryFile() as file:
            file.truncate(child.SHARED_BYTES)
            return os.dup(file.fileno())
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, child.SHARED_BYTES)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


def _ready(descriptor: int, event: int, seconds: float) -> bool:
    """Whether the descriptor can be read or written; also true when the other end is closed."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(seconds * 1000))


def _are_faults(faults: object, n: int) -> TypeGuard[dict[str, int]]:
    """Whether `faults` maps short names to counts of at most n rows."""
    return (
        isinstance(faults, dict)
        and len(faults) <= MAX_FAULTS
        and all(_FAULT.fullmatch(name) and type(count) is int and 0 <= count <= n for name, count in faults.items())
    )
