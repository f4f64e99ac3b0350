"""The process that runs written programs. `connection.Connection` starts this file by its path.

    python -I -S child.py PACKAGES ROOT MEMORY_BYTES CPU_S DESCRIPTOR [REQUEST]

It loads what it needs, maps the memory that it shares with its parent (the file behind DESCRIPTOR), gives up everything
else (`lockdown`) and reports which protections hold. Then it answers requests from standard input, one after the other,
until standard input is closed. With a REQUEST it compiles that request's program for that request's shapes and answers
matching requests with the machine code. The interpreter answers all other requests.

A message is a length (4 bytes, little-endian) followed by that many bytes of JSON. Arrays lie in the shared memory, at
the offsets that `places` computes:

    first word {"protections", "compiled"}, or {"error"}

    request   {"code", "observations", "actions", optionally "index"}; each array is given as [dtype, shape]
    answer    {"rows", "faults"}, and float32 values [N] at the start of the shared memory
    or        {"fault": "memory"}, {"fault": "process"}, and this process ends
"""

from __future__ import annotations

import functools
import json
import math
import mmap
import os
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llm_service.sandbox.compiler.machine import Compiled
    from llm_service.sandbox.interpreter import Program

MAX_HEADER = 1 << 16
MAX_ROWS = 1024  # in one request
MAX_BYTES = 1 << 24  # for the arrays of one request
SHARED_BYTES = 4 * MAX_ROWS + MAX_BYTES + 4096  # the values, the arrays, and the padding between them
PROGRAMS = 64  # parsed programs that are cached, least recently used first out

_ARRAYS = ("observations", "actions", "index")  # in this order; the last one is optional
_ALIGNED = 64  # bytes: arrays start at multiples of this
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_FIRST = "def potential(observations, actions):\n    return max(1 / len(view) for view in observations)"


def main() -> None:
    packages, root, memory_bytes, cpu_s, descriptor, *request = sys.argv[1:]
    try:
        shared = mmap.mmap(int(descriptor), SHARED_BYTES)
        os.close(int(descriptor))
        _prepare(packages, root)
        from llm_service.sandbox.lockdown import filter_system_calls, lock_down

        # One whole request before the lockdown, so that nothing is left to load.
        shapes = {"observations": ["|u1", [2, 2, 3]], "actions": ["<i8", [2, 1]]}
        _answer({"code": _FIRST} | shapes, shared, None)
        if request:
            from llm_service.sandbox.compiler.machine import compiled_for
        held = lock_down(int(memory_bytes), float(cpu_s))
        compiled = compiled_for(*map(json.loads, request)) if request else None
        held += filter_system_calls()  # from here on no memory can become executable
    except Exception as error:
        _send({"error": f"{type(error).__name__}: {error}"[:1000]})
        return
    _send({"protections": held, "compiled": compiled is not None})
    while True:
        header = _serve(shared, compiled)
        _send(header)
        if "fault" in header:
            return


def _prepare(packages: str, root: str) -> None:
    """Make NumPy and the interpreter importable, without the other imports of this project and of `site`."""
    os.environ.clear()
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))  # the system call filter binds only the calling thread
    warnings.simplefilter("ignore")  # to show a warning, Python opens its source file
    sys.path += [packages]
    package = types.ModuleType("llm_service")  # in place of its `__init__`, which imports the language-model client
    package.__path__ = [os.path.join(root, "llm_service")]
    sys.modules["llm_service"] = package
    import numpy as np

    np.seterr(all="ignore")
    if os.path.isdir("/proc/self/task") and len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("loading NumPy has started threads")


@functools.lru_cache(PROGRAMS)
def _program(code: str) -> Program:
    from llm_service.sandbox.interpreter import Program

    return Program(code)


def _serve(shared: mmap.mmap, compiled: Compiled | None) -> dict[str, Any]:
    try:
        return _answer(json.loads(_receive(int.from_bytes(_receive(4), "little"))), shared, compiled)
    except MemoryError:
        return {"fault": "memory"}
    except Exception:
        return {"fault": "process"}


def _answer(header: dict[str, Any], shared: mmap.mmap, compiled: Compiled | None) -> dict[str, Any]:
    import numpy as np

    arrays = [
        np.frombuffer(shared, header[name][0], math.prod(header[name][1]), place).reshape(header[name][1])
        for name, place in places(header).items()
    ]
    if compiled is not None and compiled.fits(header["code"], *arrays):
        done = compiled(*arrays)
    else:
        done = _program(header["code"])(*arrays)
    np.frombuffer(shared, np.float32, len(done.values))[:] = done.values
    return {"rows": len(done.values), "faults": done.faults}


def places(header: dict[str, Any]) -> dict[str, int]:
    """The offset of each array of a request in the shared memory: after the values, one after the other.

    Raises:
        ValueError: the arrays do not fit.
    """
    found, end = {}, 4 * MAX_ROWS
    for name in _ARRAYS:
        if name in header:
            dtype, shape = header[name]
            found[name] = begin = -(-end // _ALIGNED) * _ALIGNED
            end = begin + int(dtype[2:]) * math.prod(shape)  # "<i8" has 8 bytes
    if end > SHARED_BYTES:
        raise ValueError("the arrays are larger than the memory for them")
    return found


def _receive(size: int) -> bytes:
    """Read `size` bytes from standard input. At its end this process exits: the parent has closed it or has died."""
    if size > MAX_HEADER:
        raise ValueError("the message is too long")
    parts = []
    while size:
        part = os.read(0, size)
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _send(header: dict[str, Any]) -> None:
    text = json.dumps(header).encode()
    message = memoryview(len(text).to_bytes(4, "little") + text)
    while message:
        message = message[os.write(1, message) :]


if __name__ == "__main__":
    main()
    os._exit(0)  # skips the usual clean-up, whose system calls are forbidden
