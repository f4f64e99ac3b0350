"""`compiled`: machine code for a function, kept on disk between processes.

Numba keeps what it compiled as long as the function's own file is unchanged; a function or a number of another file
that was compiled into it may change without its notice. So the folder that machine code is kept in is named after the
contents of every file of `envs`: change one, and all is compiled anew, once, in a few seconds.

The folder is in `__pycache__` beside this file, or in `NUMBA_CACHE_DIR`, which a read-only installation must set.
Numba keeps pickles, and loading one can run code. So only this user may enter the folder, and one that somebody else
owns or can write to is refused before anything is loaded from it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config, types

Function = TypeVar("Function", bound=Callable[..., object])

_PREFIX = "cairn-compiled-"
_UNUSED_SECONDS = 30 * 86_400


@cache
def folder() -> Path:
    """Where the machine code of these very sources is kept. What was not used for 30 days is removed.

    Raises:
        OSError: it cannot be written, or others can write to it; says what to do.
    """
    here = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(here.rglob("*.py")):
        digest.update(source.read_bytes())
    given = os.environ.get("NUMBA_CACHE_DIR")
    root = Path(given) if given else here / "__pycache__"
    chosen = root / f"{_PREFIX}{digest.hexdigest()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        chosen.mkdir(mode=0o700, exist_ok=True)
        found = chosen.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise PermissionError(f"{chosen.name} there is not a folder that only this user can write to")
        os.utime(chosen)
    except OSError as reason:
        raise OSError(f"machine code cannot be kept in {root} ({reason}): set NUMBA_CACHE_DIR to a folder") from reason
    for old in root.glob(f"{_PREFIX}*"):
        if old.stat().st_mtime < time.time() - _UNUSED_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
    return chosen


def compiled(function: Function) -> Function:
    """Compile `function` at its first call, or load what an earlier process compiled.

    It runs without the interpreter's lock, and nothing checks bounds: callers check what they pass.
    """
    settings = vars(config)
    before, settings["CACHE_DIR"] = settings["CACHE_DIR"], str(folder())
    try:
        dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    finally:
        settings["CACHE_DIR"] = before
    # Numba would compile a function anew for each literal number that another one calls it with.
    template: Any = dispatcher.get_call_template
    plain: Any = types.unliteral
    vars(dispatcher)["get_call_template"] = lambda args, kws: template(tuple(map(plain, args)), kws)
    return cast(Function, dispatcher)
