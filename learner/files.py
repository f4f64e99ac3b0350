"""Files that are complete or absent, and their owner: an older attempt at a run never overwrites the newest's files.

Two controllers may work on one run at once where a lock does not reach: on two hosts, while the cluster believes that
the first is gone. Each takes the next number by creating a file that must not exist yet, which is atomic on every file
system. An attempt that sees a higher number than its own may not save. If directories are cached, it may see the number
late. So the number is also part of file names, and a newer attempt's checkpoint always sorts after an older one's,
whatever the older one still writes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from llm_service.errors import UsageError
from llm_service.files import replacing

ATTEMPTS = "attempts"


class Superseded(UsageError):
    """A newer attempt at the same run has begun, so this one may no longer save."""

    exit_code = 1  # neither done nor to be resumed: the run continues elsewhere


@dataclass(frozen=True)
class Attempt:
    """One controller's work on a run. Every file that two controllers could write is written on behalf of one attempt.

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
        """The part of its file names that distinguishes them from other attempts' names."""
        return f"-a{self.number:04d}"

    @property
    def is_newest(self) -> bool:
        """Whether no newer attempt has begun."""
        return newest_attempt(self.folder) <= self.number

    def assert_newest(self) -> None:
        """Check whether it may still write.

        Raises:
            Superseded: a newer one has begun.
        """
        newest = newest_attempt(self.folder)
        if newest > self.number:
            raise Superseded(
                f"attempt {self.number} at {self.folder.parent.name!r} ends without saving, because attempt {newest} "
                f"has begun and continues the run; {self.folder / ATTEMPTS / f'{newest:08d}'} says where"
            )


def write_file(path: Path, content: bytes) -> None:
    """Write a file, and wait until its content is on disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a safetensors file, and wait until its content is on disk.

    Arrays are not copied, and other threads go on meanwhile: there may be gigabytes of them.

    Raises:
        OSError: the disk refuses it.
    """
    path.touch()
    mode = path.stat().st_mode  # as this process makes files; the library's are for its user alone
    try:
        safetensors.numpy.save_file({name: np.asarray(value, order="C") for name, value in arrays.items()}, path)
    except safetensors.SafetensorError as error:
        number = int(found[1]) if (found := re.search(r"os error (\d+)", str(error))) else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error
    with open(path, "rb+") as file:
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes, attempt: Attempt | None = None) -> None:
    """Write a file so that a reader sees the old or the new content, never a part of it.

    attempt: the attempt that writes; None if only one process can write the file.

    Raises:
        Superseded: a newer attempt has begun. The file is as it was.
        OSError: the disk refuses it. The file is as it was, and no temporary file is left.
    """
    with replacing(path) as temporary:
        write_file(temporary, content)
        if attempt is not None:
            attempt.assert_newest()


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_about(
    path: Path, what: str, forms: Sequence[int], keys: Sequence[str], error: type[UsageError]
) -> dict[str, Any]:
    """The metadata of a store of kind `what`: a JSON file in its folder with a format and these keys.

    Raises:
        error: one sentence: the file is missing, damaged, or has a format that is not in `forms`.
    """
    try:
        says: dict[str, Any] = json.loads(path.read_bytes())
        found, _ = says["format"], [says[key] for key in keys]
    except FileNotFoundError:
        raise error(f"{path.parent} is no {what}: it holds no {path.name}") from None
    except (OSError, ValueError, KeyError, TypeError) as reason:
        raise error(f"{path} is damaged: {reason}") from None
    if found not in forms:
        raise error(f"{path.parent} has format {found}, this version reads {' and '.join(map(str, forms))}")
    return says


def is_finished(stage: Path) -> bool:
    """Whether a stage is done: its manifest, which is written last, is in its folder, and can be read."""
    try:
        return isinstance(json.loads((stage / "manifest.json").read_bytes()), dict)
    except (OSError, ValueError):
        return False


def begin_attempt(folder: Path) -> int:
    """Take the next number for a controller that begins to work on a run, and return it; the first is 1.

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
        except FileExistsError:  # another took it at the same moment
            continue
    with open(handle, "w", encoding="utf-8") as file:
        json.dump({"host": platform.node(), "pid": os.getpid(), "began": time.time()}, file)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(attempts)
    return number


def newest_attempt(folder: Path) -> int:
    """The highest number taken so far; 0 if there is none."""
    return max((int(path.name) for path in (folder / ATTEMPTS).glob("[0-9]*")), default=0)
