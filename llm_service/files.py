"""A file that is complete or absent: written beside its place, then renamed into it; nothing is left if that fails."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The path of a temporary file that takes the place of `path` when the block ends.

    The block writes and syncs it. If it raises, whatever that is, the temporary file is removed, since on a full disk
    it takes the room of a whole one, and `path` is as it was.
    """
    # Drawn: on a shared disk, processes of two containers may have the same number, and even the same host name.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield temporary
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
