"""Writes a file so that it is complete or absent: written next to its place, then renamed. A failure leaves nothing."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The path of a temporary file that takes the place of `path` when the block ends.

    The block writes and syncs it. If the block raises anything, the temporary file is removed, since it could fill the
    disk, and `path` stays unchanged.
    """
    # A random name: on a shared disk, processes of two containers may have the same process id and even host name.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield temporary
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
