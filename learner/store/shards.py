"""The files of an episode store: their owners, which of them count, and which may be removed.

    00007.json                  the entry of shard 00007: counts, and hashes of its files; it makes the shard exist
    00007-a0002.json            the entry by attempt 2, which takes precedence over attempt 1
    00007-a0002.0.3.json        by a later writer of attempt 2, which takes precedence over 00007-a0002.0.2
    closed.json                 the final list of shards, once the store is closed: no others count

Each shard has one writer, which also chooses its name, so writers need no coordination; shards are read in order of
their names. If several may write a shard (attempts at one run, see `learner.files`, or successive writers in one
attempt), each has its own files and changes no others, and readers use the newest.
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
EPISODES = "episodes"  # folder of a store inside the stage that produces it as a by-product
CLOSED = "closed.json"
MANIFEST = "manifest.json"  # of the stage whose artifact the store is

_FILE = re.compile(r"\.?(?P<name>.+?)(-a(?P<whose>\d+(\.\d+)*))?(?P<kind>(\.texts)?\.arrow|\.json)(\.[0-9a-f]+)?")


class StoreError(UsageError):
    """A store cannot be read or written. The message is one sentence that says what to do."""


def shards(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries of all shards, in order of their names: `episodes`, `steps`, `sha256`, and `more`."""
    return {name: entry_of(path) for name, path in _entries(folder).items()}


def digest(folder: Path) -> str:
    """Hash of a store's contents: equal contents in equal shards have equal hashes, whichever attempts wrote them."""
    hashes = [
        sorted((_parts(file)[0] + _parts(file)[2], sha256) for file, sha256 in entry["sha256"].items())
        for entry in shards(folder).values()
    ]
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


def forget_unfinished(
    folder: Path, attempt: Attempt | None = None, wanted: Callable[[str], bool] = lambda name: True
) -> dict[str, dict[str, Any]]:
    """Remove files of killed writers, and superseded files of older attempts. Returns the resulting `shards`.

    Only older attempts may be writing; a shard that one of them completes meanwhile does not count.

    attempt: the attempt that removes; files of newer ones stay.
    wanted: whether the shard with this name should stay.

    Raises:
        Superseded: a newer attempt has begun.
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
    """Close the store: the existing shards are final, so later additions by a writer that was not killed in time do not
    count.

    Raises:
        Superseded: a newer attempt has begun.
    """
    says = {"format": 1, "shards": [path.name for path in _entries(folder).values()]}
    replace_file(folder / CLOSED, json.dumps(says, indent=1).encode(), attempt)
    sync_folder(folder)


def _entries(folder: Path) -> dict[str, Path]:
    """The entry file of each shard, by the newest attempt that wrote it, in order of the shards' names."""
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
    """The contents of a shard's entry file.

    Raises:
        StoreError: the file is damaged.
    """
    try:
        entry: dict[str, Any] = json.loads(path.read_bytes())
        entry["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged: {error}; make it anew") from None
    return entry


def _parts(file: str) -> tuple[str, tuple[int, ...], str]:
    """The parts of a file name: the shard, the numbers of its attempt (0 without one) and of the writer in that
    attempt, and the suffix, such as `.texts.arrow`."""
    found = _FILE.fullmatch(file)
    if not found:
        return file, (0,), ""
    return found["name"], tuple(map(int, (found["whose"] or "0").split("."))), found["kind"]
