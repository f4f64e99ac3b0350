"""The process in which written programs run. `connection.Connection` starts this file by its path.

    python -I -S child.py PACKAGES ROOT MEMORY_BYTES CPU_S DESCRIPTOR [REQUEST]

It loads what it needs, maps the memory that it shares with its parent (the file of that descriptor), gives up
everything else (`lockdown`), says which protections hold, and then answers requests from standard input, one after the
other, until that ends. With a REQUEST it makes machine code for the program and the shapes that this names, and runs
such requests by it; all others, and what there is no code for, the interpreter runs.

A message is a length (4 bytes, little-endian) and so many bytes of JSON; arrays lie in the shared memory, each where
`places` says:

    first word {"protections", "compiled"}, or {"error"}

    request   {"code", and of each array "observations", "actions", perhaps "index": [dtype, shape]}
    answer    {"rows", "faults"}, and float32 values [N] at the beginning of the memory
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
MAX_ROWS = 1024  # of one request
MAX_BYTES = 1 << 24  # of its arrays
SHARED_BYTES = 4 * MAX_ROWS + MAX_BYTES + 4096  # the values, the arrays, and what lies between these
PROGRAMS = 64  # read programs that are kept, the last used ones

_ARRAYS = ("observations", "actions", "index")  # in their order; the last may be missing
_ALIGNED = 64  # bytes: where an array begins
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_FIRST = "def potential(observations, actions):\n    return max(1 / len(view) for view in observations)"


def main() -> None:
    packages, root, memory_bytes, cpu_s, descriptor, *request = sys.argv[1:]
    try:
        shared = mmap.mmap(int(descriptor), SHARED_BYTES)
        os.close(int(descriptor))
        _prepare(packages, root)
        from llm_service.sandbox.lockdown import filter_system_calls, lock_down

        # One whole request before the doors close, so that nothing is left to load.
        shapes = {"observations": ["|u1", [2, 2, 3]], "actions": ["<i8", [2, 1]]}
        _answer({"code": _FIRST} | shapes, shared, None)
        if request:
            from llm_service.sandbox.compiler.machine import compiled_for
        held = lock_down(int(memory_bytes), float(cpu_s))
        compiled = compiled_for(*map(json.loads, request)) if request else None
        held += filter_system_calls()  # from here on no more memory can be made executable
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
    """Find NumPy and the interpreter, without what this project or the site would import besides."""
    os.environ.clear()
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))  # no thread may be alive that the filter would not bind
    warnings.simplefilter("ignore")  # to show one, Python opens the file it comes from
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
    """Where in the shared memory each array of a request begins: behind the values, one after the other.

    Raises:
        ValueError: there is no room for them.
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
    """So many bytes of standard input. Where that ends, so does this process: the parent has closed it, or is gone."""
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
    os._exit(0)  # without the clean-up of an ordinary end, whose system calls are forbidden
