"""Ownership of an archive's files: each name contains the number of the attempt that wrote it.

`archive-a0002.json` is the index of attempt 2; the newest attempt's index counts. `000000000-1026-a0002.parquet` is one
of its shards. A name without a number belongs to no attempt, which counts as 0.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from llm_service.files import replacing

ABOUT = "archive.json"  # the index without an attempt

_INDEX = re.compile(r"archive(-a(?P<attempt>\d+))?\.json")
_SHARD = re.compile(r"\.?(?P<rows>\d+-\d+)(-a(?P<attempt>\d+))?\.parquet(\.[0-9a-f]+)?")  # or an unfinished one
_LEFT = re.compile(r"\.archive(-a(?P<attempt>\d+))?\.json\.[0-9a-f]+")


def index_of(folder: Path) -> Path | None:
    """The index that counts: that of the newest attempt. None if the folder holds no archive."""
    found = [path for path in Path(folder).glob("archive*.json") if _INDEX.fullmatch(path.name)]
    return max(found, key=lambda path: whose(path.name) or 0, default=None)


def index_name(attempt: int) -> str:
    """File name of an attempt's index; 0 for no attempt."""
    return f"archive-a{attempt:04d}.json" if attempt else ABOUT


def whose(name: str) -> int | None:
    """The attempt number of an archive's file, 0 without one; None for any other file."""
    found = _INDEX.fullmatch(name) or _SHARD.fullmatch(name) or _LEFT.fullmatch(name)
    return int(found["attempt"] or 0) if found else None


def own(shard: Path, suffix: str) -> Path:
    """The same shard under a name with this attempt's suffix, independent of the original name.

    It is a hard link, which costs nothing, or a copy if the file system has no links.

    Raises:
        FileNotFoundError: the shard is missing.
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
