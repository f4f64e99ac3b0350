"""Files of JSON lines that one process appends to: locked while it does, and mended where a line is damaged.

    journal.jsonl  ── good lines ──> journal.jsonl            complete or absent, locked all the while
                   ── the others ──> journal.damaged.jsonl    for whoever wants to know what they were

A damaged line is not worth a run: whoever reads the file goes on without it, and tells how many there were.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from llm_service.files import replacing


def open_alone(path: Path) -> int:
    """Open a file for reading and appending, made if it is not there, as its only writer. Returns its descriptor.

    Raises:
        BlockingIOError: another process writes it.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file), os.stat(path)):  # its writer has just put another in its place
            raise BlockingIOError(f"{path} is being written")
    except OSError:
        os.close(file)
        raise
    return file


def put_in_place(path: Path, file: int, lines: Iterable[bytes]) -> int:
    """Put a file of these lines in the place of one that `open_alone` opened as `file`, which is closed.

    Returns the descriptor of the new one, which is its only writer's too. Raises OSError: all is as it was.
    """
    for leftover in path.parent.glob(f".{path.name}.*"):
        leftover.unlink()  # of a process that was killed: who holds the lock is the only one here
    with replacing(path) as temporary:
        new = open_alone(temporary)
        with open(temporary, "wb") as writer:
            writer.writelines(lines)
            writer.flush()
            os.fsync(writer.fileno())
    os.close(file)
    return new


def set_aside(path: Path, damaged: Sequence[bytes]) -> str:
    """Add damaged lines of a file to the one beside it; they are on the disk when this returns. Returns a sentence.

    The caller takes them out of the file, so that they are told once.
    """
    beside = path.with_suffix(f".damaged{path.suffix}")
    with open(beside, "ab") as file:
        file.writelines(line if line.endswith(b"\n") else line + b"\n" for line in damaged)
        file.flush()
        os.fsync(file.fileno())
    lines = "1 damaged line" if len(damaged) == 1 else f"{len(damaged):,} damaged lines"
    return f"{lines} of {path} {'is' if len(damaged) == 1 else 'are'} set aside in {beside.name}"
