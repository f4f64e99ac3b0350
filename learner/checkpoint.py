"""A checkpoint is complete or absent, and the newest attempt's is never overwritten by an older one.

    checkpoints/
      v00000120-a0002/  model.safetensors  optimiser.safetensors  actors.safetensors  record.json
                        manifest.json   sha256 of each
      LATEST            the name of the newest, written last
      attempts/00000002 one file for each start of a controller on this run: who may save

A checkpoint is written under a temporary name, every file is synced, then the folder is renamed and `LATEST` replaced.
Reading verifies the hashes; a damaged checkpoint falls back to the one before it; if none is good, that is an error.
Arrays are safetensors, the rest is JSON: nothing here can run code.

Two controllers may work on one run at once, where a lock does not reach: on two hosts, while the cluster believes that
the first is gone. Each takes the next number by creating a file that must not exist, which every file system decides
in one place; an attempt that sees a higher number than its own may not save. Where directories are cached, it may see
it late: so the number is also part of the name, and by names a newer attempt's checkpoint always comes after an older
one's, whatever the older one still manages to write.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from llm_service.errors import UsageError

Arrays = dict[str, NDArray[Any]]

FORMAT = 2
ATTEMPTS = "attempts"
NAME = re.compile(r"v(?P<version>\d+)(-a(?P<attempt>\d+))?(-(?P<again>\d+))?")


class CheckpointError(RuntimeError):
    """Checkpoints were expected and none is good."""


class Superseded(UsageError):
    """A newer attempt at the same run has begun: this one may not save any more."""

    exit_code = 1  # neither done nor to be resumed: the run goes on elsewhere


@dataclass(frozen=True)
class Checkpoint:
    """What was read: groups of arrays by file stem, and the JSON record."""

    path: Path
    arrays: dict[str, Arrays]
    record: dict[str, Any]
    skipped: tuple[str, ...] = ()  # newer ones that were damaged, with the reason


@dataclass(frozen=True)
class Attempt:
    """One controller's work on a run. Whatever two of them could write is written in the name of one.

    folder: of the run's checkpoints, which holds `attempts/`.
    number: from `begin_attempt`.
    """

    folder: Path
    number: int

    @staticmethod
    def begin(folder: Path) -> Attempt:
        """Take the next number, see `begin_attempt`."""
        return Attempt(folder, begin_attempt(folder))

    @property
    def suffix(self) -> str:
        """What tells the names of its files from those of other attempts."""
        return f"-a{self.number:04d}"

    @property
    def is_newest(self) -> bool:
        """Whether no newer one has begun."""
        return newest_attempt(self.folder) <= self.number

    def assert_newest(self) -> None:
        """See whether it may still write.

        Raises:
            Superseded: a newer one has begun.
        """
        assert_newest(self.folder, self.number)


def replace_file(path: Path, content: bytes, attempt: Attempt | None = None) -> None:
    """Write a file so that a reader sees the old or the new content, never a part.

    attempt: in whose name; None where only one process could write the file.

    Raises:
        Superseded: a newer attempt has begun. The file is as it was.
    """
    # Drawn: on a shared disk, processes of two containers may have the same number, and even the same host name.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        if attempt is not None:
            attempt.assert_newest()
    except Superseded:
        temporary.unlink()
        raise
    temporary.rename(path)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def begin_attempt(folder: Path) -> int:
    """Take the next number for a controller that begins to work on a run. Returns it; the first is 1.

    From here on lower numbers cannot save: look for the checkpoint to resume from after this, not before.
    """
    attempts = folder / ATTEMPTS
    attempts.mkdir(parents=True, exist_ok=True)
    number = newest_attempt(folder)
    while True:
        number += 1
        try:
            handle = os.open(attempts / f"{number:08d}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            break
        except FileExistsError:  # another took it in the same moment
            continue
    with open(handle, "w", encoding="utf-8") as file:
        json.dump({"host": platform.node(), "pid": os.getpid(), "began": time.time()}, file)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(attempts)
    return number


def newest_attempt(folder: Path) -> int:
    """The highest number that was taken; 0 if none was."""
    return max((int(path.name) for path in (folder / ATTEMPTS).glob("[0-9]*")), default=0)


def assert_newest(folder: Path, attempt: int) -> None:
    """See whether an attempt may still save.

    Raises:
        Superseded: a newer one has begun.
    """
    newest = newest_attempt(folder)
    if newest > attempt:
        raise Superseded(
            f"attempt {attempt} at {folder.parent.name!r} ends without saving, because attempt {newest} has begun and "
            f"continues the run; {folder / ATTEMPTS / f'{newest:08d}'} says where"
        )


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
    attempt = int(record.get("attempt", 0))
    folder.mkdir(parents=True, exist_ok=True)
    assert_newest(folder, attempt)
    for leftover in folder.glob(".v*"):  # of a save that was killed, or of an older attempt that is at it just now
        if _order(leftover.name[1:])[0] <= attempt:
            shutil.rmtree(leftover, ignore_errors=True)
    name = _free_name(folder, version, attempt)
    temporary, final = folder / f".{name}", folder / name
    try:
        temporary.mkdir()
        for stem, group in arrays.items():
            content = {key: np.asarray(value, order="C") for key, value in group.items()}
            _write(temporary / f"{stem}.safetensors", safetensors.numpy.save(content))
        _write(temporary / "record.json", json.dumps(record, indent=1).encode())
        hashes = {file.name: _sha256(file) for file in sorted(temporary.iterdir())}
        _write(temporary / "manifest.json", json.dumps({"format": FORMAT, "sha256": hashes}, indent=1).encode())
        sync_folder(temporary)
        assert_newest(folder, attempt)  # to write may have taken minutes
        temporary.rename(final)
    except (FileNotFoundError, Superseded):
        shutil.rmtree(temporary, ignore_errors=True)
        assert_newest(folder, attempt)  # a newer attempt clears away what it finds half written
        raise
    sync_folder(folder)
    assert_newest(folder, attempt)  # a newer attempt may be reading what would be pruned
    replace_file(folder / "LATEST", name.encode())
    for old in _names(folder)[:-keep]:
        with contextlib.suppress(FileNotFoundError):  # a newer attempt may prune at the same time
            shutil.rmtree(folder / old)
    return final


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
            if _sha256(path / name) != expected:
                raise CheckpointError(f"{path / name} is damaged: its hash differs from the manifest")
        arrays = {
            Path(name).stem: safetensors.numpy.load_file(path / name)
            for name in manifest["sha256"]
            if name.endswith(".safetensors")
        }
        return Checkpoint(path, arrays, json.loads((path / "record.json").read_bytes()))
    except (OSError, ValueError, KeyError) as error:
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


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def part_of(arrays: Arrays, prefix: str) -> Arrays:
    """Those arrays whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
