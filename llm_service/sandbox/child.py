"""The process in which written programs run. `connection.Connection` starts this file by its path.

    python -I -S child.py PACKAGES ROOT MEMORY_BYTES CPU_S

It loads what it needs, gives up everything else (`lockdown`), says which protections hold, and then answers requests
from standard input, one after the other, until that ends. A message is a length (4 bytes, little-endian), so many bytes
of JSON, and the bytes of arrays:

    request   {"code", and of each array "observations", "actions", perhaps "index": [dtype, shape]}    the arrays
    answer    {"rows", "faults"}                                                     float32 values [N]
    or        {"fault": "memory"}, {"fault": "process"}                              nothing, and this process ends
"""

from __future__ import annotations

import functools
import json
import math
import os
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from llm_service.sandbox.interpreter import Program

MAX_HEADER = 1 << 16
MAX_PAYLOAD = 1 << 26
PROGRAMS = 64  # read programs that are kept, the last used ones

_ARRAYS = ("observations", "actions", "index")  # in their order; the last may be missing
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_FIRST = "def potential(observations, actions):\n    return max(1 / len(view) for view in observations)"


def main() -> None:
    packages, root, memory_bytes, cpu_s = sys.argv[1:]
    try:
        _prepare(packages, root)
        from llm_service.sandbox.lockdown import lock_down

        # One whole request before the doors close, so that nothing is left to load.
        shapes = {"observations": ["|u1", [2, 2, 3]], "actions": ["<i8", [2, 1]]}
        _answer({"code": _FIRST} | shapes, memoryview(bytes(12 + 16)))
        held = lock_down(int(memory_bytes), float(cpu_s))
    except Exception as error:
        _send({"error": f"{type(error).__name__}: {error}"[:1000]})
        return
    _send({"protections": held})
    while True:
        header, values = _serve()
        _send(header, values)
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


def _serve() -> tuple[dict[str, Any], bytes]:
    try:
        header = json.loads(_receive(int.from_bytes(_receive(4), "little"), MAX_HEADER))
        size = sum(_size(*header[name]) for name in _ARRAYS if name in header)
        return _answer(header, memoryview(_receive(size, MAX_PAYLOAD)))
    except MemoryError:
        return {"fault": "memory"}, b""
    except Exception:
        return {"fault": "process"}, b""


def _answer(header: dict[str, Any], payload: memoryview) -> tuple[dict[str, Any], bytes]:
    arrays, begin = [], 0
    for name in _ARRAYS:
        if name in header:
            end = begin + _size(*header[name])
            arrays.append(_array(payload[begin:end], *header[name]))
            begin = end
    done = _program(header["code"])(*arrays)
    return {"rows": len(done.values), "faults": done.faults}, done.values.tobytes()


def _size(dtype: str, shape: list[int]) -> int:
    return int(dtype[2:]) * math.prod(shape)  # "<i8" has 8 bytes


def _array(data: memoryview, dtype: str, shape: list[int]) -> NDArray[np.integer]:
    import numpy as np

    return np.frombuffer(data, dtype).reshape(shape)


def _receive(size: int, most: int = MAX_HEADER) -> bytes:
    """So many bytes of standard input. Where that ends, so does this process: the parent has closed it, or is gone."""
    if size > most:
        raise ValueError("the message is too long")
    parts = []
    while size:
        part = os.read(0, size)
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _send(header: dict[str, Any], payload: bytes = b"") -> None:
    text = json.dumps(header).encode()
    message = memoryview(len(text).to_bytes(4, "little") + text + payload)
    while message:
        message = message[os.write(1, message) :]


if __name__ == "__main__":
    main()
    os._exit(0)  # without the clean-up of an ordinary end, whose system calls are forbidden
