"""A checkpoint is complete or absent, and the newest attempt's is never overwritten by an older one.

    checkpoints/
      v00000120-a0002/  model.safetensors  optimiser.safetensors  actors.safetensors  record.json
                        manifest.json   sha256 of each
      LATEST            the name of the newest, written last
      attempts/00000002 one file for each start of a controller on this run

A checkpoint is written under a temporary name, every file is synced, then the folder is renamed and `LATEST` replaced.
Reading verifies the hashes; a damaged checkpoint falls back to the one before it; if none is good, that is an error.
Arrays are safetensors, the rest is JSON: nothing here can run code. Who may save: `learner/files.py`.

Small ones are written at once. A large model's is copied in memory, and written by a thread while learning goes on.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from learner.files import Attempt, Superseded, replace_file, sha256, sync_folder, write_arrays, write_file

Arrays = dict[str, NDArray[Any]]

FORMAT = 2
BESIDE = 64_000_000
"""Bytes of arrays from which on it pays to write a checkpoint beside the learning. Fewer are written in a moment."""
NAME = re.compile(r"v(?P<version>\d+)(-a(?P<attempt>\d+))?(-(?P<again>\d+))?")


class CheckpointError(RuntimeError):
    """Checkpoints were expected and none is good."""


@dataclass(frozen=True)
class Checkpoint:
    """What was read: groups of arrays by file stem, and the JSON record."""

    path: Path
    arrays: dict[str, Arrays]
    record: dict[str, Any]
    skipped: tuple[str, ...] = ()  # newer ones that were damaged, with the reason


def write(folder: Path, version: int, arrays: Mapping[str, Arrays], record: dict[str, Any], keep: int = 3) -> Path:
    """Write checkpoint `version` into `folder` and prune all but the newest `keep`. Returns its path.

    Args:
        folder: of the run's checkpoints.
        version: of the weights.
        arrays: groups of arrays by file stem.
        record: JSON; its `attempt`, from `begin_attempt`, says who saves (0: nobody ever began one).
        keep: how many stay.

    Raises:
        Superseded: a newer attempt has begun. What is in the folder is as it was.
    """
    attempt = Attempt(folder, int(record.get("attempt", 0)))
    folder.mkdir(parents=True, exist_ok=True)
    attempt.assert_newest()
    for leftover in folder.glob(".v*"):  # of a save that was killed, or of an older attempt that is at it just now
        if _order(leftover.name[1:])[0] <= attempt.number:
            shutil.rmtree(leftover, ignore_errors=True)
    name = _free_name(folder, version, attempt.number)
    temporary, final = folder / f".{name}", folder / name
    try:
        temporary.mkdir()
        for stem, group in arrays.items():
            write_arrays(temporary / f"{stem}.safetensors", group)
        write_file(temporary / "record.json", json.dumps(record, indent=1).encode())
        hashes = {file.name: sha256(file) for file in sorted(temporary.iterdir())}
        write_file(temporary / "manifest.json", json.dumps({"format": FORMAT, "sha256": hashes}, indent=1).encode())
        sync_folder(temporary)
        attempt.assert_newest()  # to write may have taken minutes
        temporary.rename(final)
    except (OSError, Superseded):
        shutil.rmtree(temporary, ignore_errors=True)  # on a full disk, half a checkpoint takes the room of a whole one
        attempt.assert_newest()  # a newer attempt clears away what it finds half written
        raise
    sync_folder(folder)
    attempt.assert_newest()  # a newer attempt may be reading what would be pruned
    replace_file(folder / "LATEST", name.encode())
    for old in _names(folder)[:-keep]:
        with contextlib.suppress(FileNotFoundError):  # a newer attempt may prune at the same time
            shutil.rmtree(folder / old)
    return final


class Writer:
    """Writes checkpoints beside the learning, at most one at a time. What it is given must not change any more."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """How long the last one took that was written beside the learning; 0 before the first."""
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[Path] | None = None

    def write(
        self, folder: Path, version: int, arrays: Mapping[str, Arrays], record: dict[str, Any], keep: int, wait: bool
    ) -> Path | None:
        """`write`, after the one before is complete. Returns its path, or None if it is still being written.

        wait: until it is complete, as with arrays of fewer than `BESIDE` bytes.

        Raises:
            OSError, Superseded: as `write`, of this one or of the one before.
        """
        self.finish()
        size = sum(np.asarray(value).nbytes for group in arrays.values() for value in group.values())
        if wait or size < BESIDE:
            return write(folder, version, arrays, record, keep)
        self._writing = self._thread.submit(self._write, folder, version, arrays, record, keep)
        return None

    def finish(self) -> None:
        """Wait until what is being written is complete; raises as `write`."""
        writing, self._writing = self._writing, None
        if writing:
            writing.result()

    def check(self) -> None:
        """Raise, as `write`, if what was being written has failed."""
        if self._writing and self._writing.done():
            self.finish()

    def _write(self, *args: Any) -> Path:
        began = time.monotonic()
        try:
            return write(*args)
        finally:
            self.seconds = time.monotonic() - began


def spacing(every_s: float, save_s: float) -> float:
    """Seconds from one checkpoint to the next: as configured, but at least ten times as long as a large one takes to
    write (`Writer.seconds`). If they are wanted after every update (0), they are."""
    return every_s and max(every_s, 10 * save_s)


def _free_name(folder: Path, version: int, attempt: int) -> str:
    name = f"v{version:08d}" + (f"-a{attempt:04d}" if attempt else "")
    taken = [found for found in _names(folder) if _order(found)[:2] == (attempt, version)]
    # The same version a second time: after a resume, say. Pruning may have left a gap below the last.
    return f"{name}-{_order(taken[-1])[2] + 1:03d}" if taken else name


def read(path: Path) -> Checkpoint:
    """Read one checkpoint folder and verify it.

    Raises:
        CheckpointError: something is missing or differs from the manifest.
    """
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        if manifest["format"] != FORMAT:
            raise CheckpointError(f"{path} has format {manifest['format']}, this version reads {FORMAT}")
        for name, expected in manifest["sha256"].items():
            if sha256(path / name) != expected:
                raise CheckpointError(f"{path / name} is damaged: its hash differs from the manifest")
        arrays = {
            Path(name).stem: safetensors.numpy.load_file(path / name)
            for name in manifest["sha256"]
            if name.endswith(".safetensors")
        }
        if not arrays:
            raise CheckpointError(f"{path} is damaged: its manifest names no arrays")
        return Checkpoint(path, arrays, json.loads((path / "record.json").read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # a manifest may be JSON of any form
        raise CheckpointError(f"{path} is damaged: {error}") from error


def latest(folder: Path) -> Checkpoint | None:
    """The newest good checkpoint; None if none was ever written.

    Raises:
        CheckpointError: there are checkpoints, but none is good.
    """
    names = _names(folder)
    damaged: list[str] = []
    for name in reversed(names):
        try:
            found = read(folder / name)
        except CheckpointError as error:
            damaged.append(str(error))
            continue
        return Checkpoint(found.path, found.arrays, found.record, tuple(damaged))
    if damaged or (folder / "LATEST").exists():
        raise CheckpointError(f"no good checkpoint in {folder}: " + ("; ".join(damaged) or "all are missing"))
    return None


def _names(folder: Path) -> list[str]:
    """Checkpoints from the oldest to the newest."""
    found = (p.name for p in folder.glob("v*") if NAME.fullmatch(p.name) and p.is_dir())
    return sorted(found, key=_order) if folder.is_dir() else []


def _order(name: str) -> tuple[int, int, int]:
    """(attempt, version, how often that was saved before): what a name says."""
    parts = NAME.fullmatch(name)
    assert parts is not None, name
    return int(parts["attempt"] or 0), int(parts["version"]), int(parts["again"] or 0)


def part_of(arrays: Arrays, prefix: str) -> Arrays:
    """Those arrays whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
