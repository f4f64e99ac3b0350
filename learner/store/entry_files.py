"""Files of a memory index: complete or absent, despite concurrent readers and writers, and kills.

    index/
      retrieval.json                        format, width, the next id, hashes of the files that count
      entries-3f0a9c51d2e47b86.safetensors  keys [N, width], ids and columns [N] in the order of ids; named by its hash

    begin ──> write, once for each shard ──> publish            read ──> arrays of each file, perhaps one shard of them

Every file is synced before `retrieval.json`, which is replaced atomically, names it. So a reader sees the old entries
or the new ones; if an old file is gone, it reads `retrieval.json` again. An unsharded index has one file, a sharded one
has one per shard; readers may distribute entries over other shards.

Limit: a shard reads every file, and keeps its own entries of each.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.numpy
from numpy.typing import NDArray

from learner.files import Attempt, read_about, replace_file, sha256, sync_folder
from learner.store.ranking import COLUMNS
from llm_service.errors import UsageError

FORMAT = 2
ABOUT = "retrieval.json"
BEGUN = re.compile(r"\.entries-[0-9a-f]{16}(?:-a(\d+))?\.safetensors\..+")
"""Names of unfinished files of entries, with the number of their attempt."""

Arrays = dict[str, NDArray[Any]]
"""`key`, `id` and the columns of entries."""


class RetrievalError(UsageError):
    """An index cannot be read. The message is one sentence that says what to do."""


def begin(folder: Path, attempt: Attempt | None) -> list[Path]:
    """Create the folder, whose parent must exist. Returns the files to remove once something newer is published.

    Files that a newer attempt writes from now on are not included.
    """
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)
    before = list(folder.glob("entries-*.safetensors"))
    for path in folder.iterdir():  # a killed writer leaves unfinished files
        begun = BEGUN.fullmatch(path.name)
        if begun and (attempt is None or int(begun[1] or 0) <= attempt.number):
            before.append(path)
    return before


def write(folder: Path, arrays: Arrays, attempt: Attempt | None) -> tuple[str, str]:
    """Write a file of entries that does not count yet. Returns its name and hash.

    Raises:
        Superseded: a newer attempt has begun.
    """
    content = safetensors.numpy.save(arrays)
    digest = hashlib.sha256(content).hexdigest()
    name = f"entries-{digest[:16]}{attempt.suffix if attempt else ''}.safetensors"
    replace_file(folder / name, content, attempt)
    return name, digest


def publish(
    folder: Path, width: int, next_id: int, files: Mapping[str, str], before: list[Path], attempt: Attempt | None
) -> None:
    """Make exactly these files count, by name and hash; `before` is the result of `begin`.

    Raises:
        Superseded: a newer attempt has begun; the folder still holds what it held.
    """
    sync_folder(folder)
    says = {"format": FORMAT, "width": width, "next_id": next_id, "sha256": dict(files)}
    replace_file(folder / ABOUT, json.dumps(says, indent=1).encode(), attempt)
    sync_folder(folder)
    for old in before:
        if old.name not in files:
            old.unlink(missing_ok=True)


def about(folder: Path) -> dict[str, Any]:
    """The content of `retrieval.json`: `width`, `next_id`, and `sha256` by file name.

    Raises:
        RetrievalError: there is no index, or it is damaged or of another version.
    """
    says = read_about(folder / ABOUT, "memory index", (FORMAT,), ("width", "next_id", "sha256"), RetrievalError)
    files = says["sha256"]
    if not (isinstance(says["width"], int) and isinstance(says["next_id"], int) and isinstance(files, dict) and files):
        raise RetrievalError(f"{folder / ABOUT} is damaged: it names no width, id or file; build the index again")
    return says


def read(folder: Path, shard: int = 0, of: int = 1) -> tuple[int, int, list[Arrays]]:
    """Width, next id, and entries of each file; only owners that are `shard` modulo `of`.

    Raises:
        RetrievalError: there is no index, or it is damaged.
    """
    says = about(folder)
    before: dict[str, Any] | None = None
    while says != before:
        try:
            return _read(folder, says, shard, of)
        except FileNotFoundError:  # a writer removed it if `retrieval.json` has changed meanwhile
            says, before = about(folder), says
    raise RetrievalError(f"{folder} is damaged: a file that {ABOUT} names is gone; build it again")


def _read(folder: Path, says: Mapping[str, Any], shard: int, of: int) -> tuple[int, int, list[Arrays]]:
    """Read the files that `retrieval.json` names.

    Raises:
        FileNotFoundError: a file is gone.
        RetrievalError: one is damaged.
    """
    parts = []
    try:
        for name, digest in says["sha256"].items():
            if sha256(folder / name) != digest:
                raise RetrievalError(f"{folder / name} is damaged: its hash is not the one in {ABOUT}; build it again")
            arrays = safetensors.numpy.load_file(folder / name)
            if missing := {"key", "id", *COLUMNS} - arrays.keys():
                raise RetrievalError(f"{folder / name} has no {min(missing)}: build it again")
            own = arrays["owner"] % of == shard
            parts.append(arrays if own.all() else {column: values[own] for column, values in arrays.items()})
    except (FileNotFoundError, RetrievalError):
        raise
    except (OSError, ValueError) as reason:
        raise RetrievalError(f"{folder} is damaged: {reason}") from None
    return says["width"], says["next_id"], parts
