"""Files of JSON lines that one process appends to: locked meanwhile, and repaired if lines are damaged.

    journal.jsonl  ── good lines ──> journal.jsonl            complete or absent, locked the whole time
                   ── the others ──> journal.damaged.jsonl    kept for inspection

A damaged line must not stop a run: readers continue without it, and report how many there were.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from llm_service.files import replacing


def open_alone(path: Path) -> int:
    """Open a file for reading and appending as its only writer, and create it if missing. Returns its descriptor.

    Raises:
        BlockingIOError: another process writes it.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file), os.stat(path)):  # its writer has just replaced it
            raise BlockingIOError(f"{path} is being written")
    except OSError:
        os.close(file)
        raise
    return file


def put_in_place(path: Path, file: int, lines: Iterable[bytes]) -> int:
    """Replace a file that `open_alone` opened as `file` by one with these lines, and close `file`.

    Returns the descriptor of the new file, opened by its only writer. Raises OSError: nothing has changed.
    """
    for leftover in path.parent.glob(f".{path.name}.*"):
        leftover.unlink()  # left by a killed process: only the lock's holder gets here
    with replacing(path) as temporary:
        new = open_alone(temporary)
        with open(temporary, "wb") as writer:
            writer.writelines(lines)
            writer.flush()
            os.fsync(writer.fileno())
    os.close(file)
    return new


def set_aside(path: Path, damaged: Sequence[bytes]) -> str:
    """Append damaged lines to the file for them; they are on disk when this returns. Returns a message.

    The caller removes them from the original file, so that they are reported once.
    """
    beside = path.with_suffix(f".damaged{path.suffix}")
    with open(beside, "ab") as file:
        file.writelines(line if line.endswith(b"\n") else line + b"\n" for line in damaged)
        file.flush()
        os.fsync(file.fileno())
    lines = "1 damaged line" if len(damaged) == 1 else f"{len(damaged):,} damaged lines"
    return f"{lines} of {path} {'is' if len(damaged) == 1 else 'are'} set aside in {beside.name}"
