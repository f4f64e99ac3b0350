"""The files of a store of episodes: whose they are, which of them count, and what may be removed.

    00007.json                  the entry of shard 00007: counts, and hashes of its files; with it, the shard is there
    00007-a0002.json            that of attempt 2 at a run, which counts before one of attempt 1
    00007-a0002.0.3.json        that of a later writer of attempt 2, which counts before one of 00007-a0002.0.2
    closed.json                 the shards that there will ever be, once somebody says so: no other counts any more

A shard has one writer, and its name is the writer's own, so writers need not know of each other; shards are read in
order of their names. Where several may write a shard, attempts at one run (`learner.files`) or one after the other in
an attempt, each has files of its own and touches nobody else's, and of each shard the newest one's is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from learner.files import Attempt, read_about, replace_file, sync_folder
from llm_service.errors import UsageError

ABOUT = "store.json"
EPISODES = "episodes"  # folder of a store within that of a stage which makes it on the way
CLOSED = "closed.json"
MANIFEST = "manifest.json"  # of the stage whose artifact it is

_FILE = re.compile(r"\.?(?P<name>.+?)(-a(?P<whose>\d+(\.\d+)*))?(?P<kind>(\.texts)?\.arrow|\.json)(\.[0-9a-f]+)?")


class StoreError(UsageError):
    """A store cannot be read or written as asked. The message is one sentence that says what to do."""


def shards(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries of all shards that are there, in order of their names: `episodes`, `steps`, `sha256`, and `more`."""
    return {name: entry_of(path) for name, path in _entries(folder).items()}


def digest(folder: Path) -> str:
    """Hash of what a store holds: equal contents in equal shards, equal hashes, whichever attempts wrote them."""
    hashes = [
        sorted((_parts(file)[0] + _parts(file)[2], sha256) for file, sha256 in entry["sha256"].items())
        for entry in shards(folder).values()
    ]
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


def forget_unfinished(
    folder: Path, attempt: Attempt | None = None, wanted: Callable[[str], bool] = lambda name: True
) -> dict[str, dict[str, Any]]:
    """Remove what killed writers left, and what older attempts wrote in vain. Returns what `shards` then would.

    Only older attempts may be writing; a shard that one of them ends just now does not count.

    attempt: of whoever removes; what is of a newer one stays.
    wanted: of a shard's name, whether it shall stay at all.

    Raises:
        Superseded: a newer one has begun.
    """
    if attempt:
        attempt.assert_newest()
    paths = {name: path for name, path in _entries(folder).items() if wanted(name)}
    entries = {name: entry_of(path) for name, path in paths.items()}
    kept = {ABOUT, CLOSED, MANIFEST} | {path.name for path in paths.values()}
    kept |= {file for entry in entries.values() for file in entry["sha256"]}
    for path in [*folder.glob("*.json"), *folder.glob("*.arrow"), *folder.glob(".*")]:  # entries first
        if path.name not in kept and (attempt is None or _parts(path.name)[1][0] <= attempt.number):
            path.unlink(missing_ok=True)
    return entries


def close(folder: Path, attempt: Attempt | None = None) -> None:
    """Say that the shards which are there are all: what a writer that was killed too late still adds does not count.

    Raises:
        Superseded: a newer attempt has begun.
    """
    says = {"format": 1, "shards": [path.name for path in _entries(folder).values()]}
    replace_file(folder / CLOSED, json.dumps(says, indent=1).encode(), attempt)
    sync_folder(folder)


def _entries(folder: Path) -> dict[str, Path]:
    """The file of each shard's entry, of the newest attempt that wrote the shard, in order of the shards' names."""
    paths = [path for path in folder.glob("*.json") if path.name not in (ABOUT, CLOSED, MANIFEST)]
    if (folder / CLOSED).exists():
        paths = [
            folder / name
            for name in read_about(folder / CLOSED, "closed store", (1,), ("shards",), StoreError)["shards"]
        ]
    found: dict[str, Path] = {}
    for path in sorted(paths, key=lambda path: _parts(path.name)[:2]):
        if not path.name.startswith("."):
            found[_parts(path.name)[0]] = path
    return found


def entry_of(path: Path) -> dict[str, Any]:
    """What the file of a shard's entry holds.

    Raises:
        StoreError: it is damaged.
    """
    try:
        entry: dict[str, Any] = json.loads(path.read_bytes())
        entry["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged: {error}; make it anew") from None
    return entry


def _parts(file: str) -> tuple[str, tuple[int, ...], str]:
    """What a file's name says: the shard, the numbers of its attempt, 0 without one, and of its writer in that, and the
    kind, as in `.texts.arrow`."""
    found = _FILE.fullmatch(file)
    if not found:
        return file, (0,), ""
    return found["name"], tuple(map(int, (found["whose"] or "0").split("."))), found["kind"]
