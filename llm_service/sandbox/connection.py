"""One child process and the two pipes to it, as its parent sees them: `Connection`.

Nothing that comes back is trusted: what is late or not exactly an answer is `Ended`, and the child must go.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from llm_service.sandbox import child
from llm_service.sandbox.lockdown import PROTECTIONS

START_S = 60.0  # to import NumPy from a busy network file system
MAX_FAULTS = 64

_PIPE_BYTES = 1 << 20  # a whole piece of small views: the two processes take turns less often
_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "67108864", "MALLOC_TRIM_THRESHOLD_": "268435456"}
"""The child keeps memory for its next array (glibc reads these): to get it anew each time takes longer than to fill it.
"""
_CHILD = Path(child.__file__)
_ROOT = Path(__file__).resolve().parents[2]
_FAULT = re.compile(r"[a-z][a-z ,_-]{0,39}")


class SandboxBroken(RuntimeError):
    """The child does not start; the message says why. No program can cause this."""


class Ended(Exception):
    """The child did not answer as it should; the message is the fault: `wall`, `memory` or `process`."""


class Connection:
    """Starts the child and waits for its first word.

    Args:
        memory_bytes, cpu_s: what `lockdown.lock_down` leaves it.

    Attributes:
        protections: those that hold, as it says.
        spent_s: seconds that its calls took, an upper bound of their CPU time.
        starter: the thread with which the kernel will end it.

    Raises:
        SandboxBroken: it does not start.
    """

    def __init__(self, memory_bytes: int, cpu_s: float) -> None:
        packages = Path(np.__file__).parents[1]
        words = map(str, (_CHILD, packages, _ROOT, memory_bytes, cpu_s))
        libraries = "LD_LIBRARY_PATH"  # where a Python that is loaded as a module has its own library
        self.starter = threading.current_thread()
        self.spent_s = 0.0
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_MEMORY | ({libraries: os.environ[libraries]} if libraries in os.environ else {}),
            cwd="/",
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._to, self._from = self.process.stdin.fileno(), self.process.stdout.fileno()
        with contextlib.suppress(OSError, AttributeError):  # not everywhere, nor for every user
            fcntl.fcntl(self._to, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        try:
            self.protections = self._first_word()
        except BaseException:
            self.kill()
            raise

    def _first_word(self) -> tuple[str, ...]:
        try:
            told = self._header(time.monotonic() + START_S)
        except Ended as ended:
            late = str(ended) == "wall"
            told = {"error": f"no word in {START_S:.0f} s" if late else "it ended before its first word"}
        held = told.get("protections")
        if not isinstance(held, list) or not all(name in PROTECTIONS for name in held):
            raise SandboxBroken(f"the process for written programs does not start: {told.get('error')}")
        return tuple(held)

    def idle(self) -> bool:
        """Whether it is alive and has nothing to say. In a forked copy of its parent it counts as ended."""
        return self.process.poll() is None and not _ready(self._from, select.POLLIN, 0)

    def ask(
        self,
        code: str,
        observations: NDArray[np.integer],
        actions: NDArray[np.integer],
        index: NDArray[np.int32] | None,
        wall_s: float,
    ) -> tuple[NDArray[np.float32], dict[str, int]]:
        """One request, about `len(actions)` rows.

        Raises:
            Ended: no answer in time, or none in form.
        """
        begin = time.monotonic()
        deadline = begin + wall_s
        arrays = {"observations": observations, "actions": actions} | ({} if index is None else {"index": index})
        request = {"code": code} | {name: [array.dtype.str, array.shape] for name, array in arrays.items()}
        text = json.dumps(request).encode()
        contents = b"".join(np.ascontiguousarray(array).data for array in arrays.values())
        self._write(len(text).to_bytes(4, "little") + text + contents, deadline)
        answer = self._header(deadline)
        if "fault" in answer:
            raise Ended("memory" if answer["fault"] == "memory" else "process")
        n = len(actions)
        faults = answer.get("faults")
        if answer.get("rows") != n or not _are_faults(faults, n):
            raise Ended("process")
        values = np.frombuffer(self._read(4 * n, deadline), "<f4").astype(np.float32)
        if not np.isfinite(values).all() or _ready(self._from, select.POLLIN, 0):  # or more than was announced
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
        """End it and everything in its session, leave no zombie."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _ready(descriptor: int, event: int, seconds: float) -> bool:
    """Whether something can be read or written; also true where the other end is closed."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(seconds * 1000))


def _are_faults(faults: object, n: int) -> TypeGuard[dict[str, int]]:
    """Whether these are short names with counts of rows."""
    return (
        isinstance(faults, dict)
        and len(faults) <= MAX_FAULTS
        and all(_FAULT.fullmatch(name) and type(count) is int and 0 <= count <= n for name, count in faults.items())
    )
