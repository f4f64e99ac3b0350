"""A checkpoint is complete or absent.

    checkpoints/
      v00000120/  model.safetensors  optimiser.safetensors  actors.safetensors  record.json
                  manifest.json   sha256 of each
      LATEST      the name of the newest, written last

A checkpoint is written under a temporary name, every file is synced, then the folder is renamed and `LATEST` replaced.
Reading verifies the hashes; a damaged checkpoint falls back to the one before it; if none is good, that is an error.
Arrays are safetensors, the rest is JSON: nothing here can run code.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

FORMAT = 2


class CheckpointError(RuntimeError):
    """Checkpoints were expected and none is good."""


@dataclass(frozen=True)
class Checkpoint:
    """What was read: groups of arrays by file stem, and the JSON record."""

    path: Path
    arrays: dict[str, Arrays]
    record: dict[str, Any]
    skipped: tuple[str, ...] = ()  # newer ones that were damaged, with the reason


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old or the new content, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(folder: Path, version: int, arrays: Mapping[str, Arrays], record: dict[str, Any], keep: int = 3) -> Path:
    """Write checkpoint `version` into `folder` and prune all but the newest `keep`. Returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    again = len(list(folder.glob(f"v{version:08d}*")))  # the same version a second time: after a resume, say
    name = f"v{version:08d}" + (f"-{again:03d}" if again else "")
    for leftover in folder.glob(".v*"):  # of a save that was killed
        shutil.rmtree(leftover)
    temporary = folder / f".{name}"
    temporary.mkdir()
    for stem, group in arrays.items():
        content = {key: np.asarray(value, order="C") for key, value in group.items()}
        _write(temporary / f"{stem}.safetensors", safetensors.numpy.save(content))
    _write(temporary / "record.json", json.dumps(record, indent=1).encode())
    hashes = {file.name: _sha256(file) for file in sorted(temporary.iterdir())}
    _write(temporary / "manifest.json", json.dumps({"format": FORMAT, "sha256": hashes}, indent=1).encode())
    sync_folder(temporary)
    final = folder / name
    temporary.rename(final)
    sync_folder(folder)
    replace_file(folder / "LATEST", name.encode())
    for old in _names(folder)[:-keep]:
        shutil.rmtree(folder / old)
    return final


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
    return sorted(p.name for p in folder.glob("v*") if p.is_dir()) if folder.is_dir() else []


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
