"""`compiled`: machine code for a function, kept on disk between processes.

Numba keeps what it compiled as long as the function's own file is unchanged; a function of another file that was
compiled into it may change without its notice. So the folder that machine code is kept in is named after the contents
of every file of `envs/native`: change one, and all is compiled anew, once, in a few seconds.

The folder is `__pycache__` beside this file, or `NUMBA_CACHE_DIR` where that is set, which a read-only installation
needs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config, types

Function = TypeVar("Function", bound=Callable[..., object])

_PREFIX = "compiled-"


@cache
def folder() -> Path:
    """Where the machine code of these very sources is kept. Those of earlier sources are removed."""
    here = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(here.rglob("*.py")):
        digest.update(source.read_bytes())
    given = os.environ.get("NUMBA_CACHE_DIR")
    root = Path(given) if given else here / "__pycache__"
    chosen = root / f"{_PREFIX}{digest.hexdigest()}"
    if not chosen.exists():
        for old in root.glob(f"{_PREFIX}*"):
            shutil.rmtree(old, ignore_errors=True)
    return chosen


def compiled(function: Function) -> Function:
    """Compile `function` at its first call, or load what an earlier process compiled.

    It runs without the interpreter's lock. Integers divide as in C; nothing checks bounds: callers check what they
    pass.
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
