"""Whose an archive's files are: each name carries the number of the attempt at the run that wrote it.

`archive-a0002.json` is the index of attempt 2, and that of the newest attempt counts. `000000000-1026-a0002.parquet` is
a shard of it. A name without a number is of no attempt, which counts as 0.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from llm_service.files import replacing

ABOUT = "archive.json"  # the index, where no attempt has written

_INDEX = re.compile(r"archive(-a(?P<attempt>\d+))?\.json")
_SHARD = re.compile(r"\.?(?P<rows>\d+-\d+)(-a(?P<attempt>\d+))?\.parquet(\.[0-9a-f]+)?")  # or what a killed writer left
_LEFT = re.compile(r"\.archive(-a(?P<attempt>\d+))?\.json\.[0-9a-f]+")


def index_of(folder: Path) -> Path | None:
    """The index that counts, of the newest attempt that wrote one; None if the folder holds no archive."""
    found = [path for path in Path(folder).glob("archive*.json") if _INDEX.fullmatch(path.name)]
    return max(found, key=lambda path: whose(path.name) or 0, default=None)


def index_name(attempt: int) -> str:
    """Of the index that an attempt writes; 0 for none."""
    return f"archive-a{attempt:04d}.json" if attempt else ABOUT


def whose(name: str) -> int | None:
    """The number of the attempt that a file of an archive is of, 0 without one; None for any other file."""
    found = _INDEX.fullmatch(name) or _SHARD.fullmatch(name) or _LEFT.fullmatch(name)
    return int(found["attempt"] or 0) if found else None


def own(shard: Path, suffix: str) -> Path:
    """The same shard under a name of an attempt whose files have this suffix, whatever becomes of the other name.

    A link, which costs nothing; a copy where the file system has no links.

    Raises:
        FileNotFoundError: it is not there.
    """
    named = _SHARD.fullmatch(shard.name)
    path = shard.with_name(f"{named['rows'] if named else shard.stem}{suffix}.parquet")
    if path != shard:
        path.unlink(missing_ok=True)
        try:
            os.link(shard, path)
        except FileNotFoundError:
            raise
        except OSError:
            with replacing(path) as temporary:
                shutil.copyfile(shard, temporary)
                with open(temporary, "rb") as copy:
                    os.fsync(copy.fileno())
    return path
