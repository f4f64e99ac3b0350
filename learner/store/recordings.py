"""Histories recorded elsewhere: a task's transitions in a NumPy file (.npz), read, checked and cut into episodes.

    observations, next_observations [S, D]; actions, rewards, dones [S] ──> Recording: whole episodes, in order

This is the published format of Schmied et al. 2024 (arXiv 2410.07071). An episode ends with a step that is done; steps
after the last such step are dropped. An additional axis of one env, [S, 1, D], is allowed. Pickled data is never read,
because it could run any program.

Limit: the whole file is held in memory.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec, Field
from learner.store.pieces import Steps
from llm_service.errors import UsageError

COLUMNS = ("observations", "next_observations", "actions", "rewards", "dones")
CLOSE = 1e-5
"""Numbers that differ by less count as equal."""


class RecordingError(UsageError):
    """A file is not a recording of this world. The message is one sentence that says what to do."""


@dataclass(frozen=True)
class Recording:
    """Complete episodes of one task, in the order in which they were played."""

    path: Path
    steps: Steps  # [S, ...]
    length: NDArray[np.int64]  # [E]

    def episode(self, number: int) -> Steps:
        """The steps of one episode."""
        stop = int(self.length[: number + 1].sum())
        own = slice(stop - int(self.length[number]), stop)
        obs = {name: column[own] for name, column in self.steps.obs.items()}
        return Steps(obs, self.steps.action[own], self.steps.reward[own])


def read(path: Path, spec: EnvSpec, fields: Mapping[str, Field]) -> Recording:
    """Read the recording of one task.

    fields: names of the observation's fields, concatenated in this order.

    Raises:
        RecordingError: the file cannot be read, or belongs to another world.
    """
    found = _columns(path)
    lengths = {name: len(column) for name, column in found.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise RecordingError(f"{path}: its columns have not equally many steps ({told}): record it again")
    width = sum(math.prod(field.shape) for field in fields.values())
    widths = dict.fromkeys(COLUMNS, 1) | dict.fromkeys(COLUMNS[:2], width)
    for name, column in found.items():
        if (there := math.prod(column.shape[1:])) != widths[name]:
            of = f" ({', '.join(fields)})" if name in COLUMNS[:2] else ""
            raise RecordingError(
                f"{path}: {name} has {there} numbers a step, but {spec.id} has {widths[name]}{of}: name its env"
            )
        found[name] = column.reshape(len(column), widths[name])
    (ends,) = found["dones"][:, 0].nonzero()
    if not len(ends):
        raise RecordingError(f"{path}: no step is done, so that nothing tells where episodes end: record it with dones")
    whole = {name: column[: ends[-1] + 1] for name, column in found.items()}
    seen, after = whole["observations"], whole["next_observations"]
    broken = np.abs(after[:-1].astype(np.float64) - seen[1:]).max(1, initial=0) > CLOSE
    broken[ends[:-1]] = False
    if broken.any():
        step = int(broken.argmax())
        raise RecordingError(
            f"{path}: next_observations of step {step} is not what step {step + 1} observes: its steps are not in order"
        )
    obs, begin = {}, 0
    for name, field in fields.items():
        part = seen[:, begin : begin + math.prod(field.shape)].reshape(len(seen), *field.shape)
        obs[name] = _numbers(path, name, part, field.size) if field.kind == "category" else part.astype(np.float32)
        begin += math.prod(field.shape)
    action = _numbers(path, "actions", whole["actions"][:, 0], len(spec.action_names))
    steps = Steps(obs, action, whole["rewards"][:, 0].astype(np.float32))
    return Recording(path, steps, np.diff(ends, prepend=-1))


def _columns(path: Path) -> dict[str, NDArray[Any]]:
    """The columns of a file; all numbers are finite."""
    if path.suffix in (".pkl", ".pickle"):
        raise RecordingError(
            f"{path} is a pickle, and reading one runs whatever program was put into it: take the .npz of the same "
            "data, or save its columns by numpy.savez"
        )
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise RecordingError(f"{path} is a single array, not an .npz with columns {', '.join(COLUMNS)}")
        with file:
            if missing := [name for name in COLUMNS if name not in file.files]:
                raise RecordingError(f"{path} has no column {missing[0]}: a recording has {', '.join(COLUMNS)}")
            found = {name: file[name] for name in COLUMNS}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error):
            raise RecordingError(
                f"{path} holds Python objects, and reading them runs whatever program was put into it: save its "
                "columns as numbers"
            ) from None
        raise RecordingError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    for name, column in found.items():
        if not column.ndim or column.dtype.kind not in "biuf" or not np.isfinite(column).all():
            raise RecordingError(f"{path}: {name} are not all finite numbers, one row a step: record it again")
    return found


def _numbers(path: Path, name: str, column: NDArray[Any], size: int) -> NDArray[np.int64]:
    """A column of whole numbers below `size`."""
    numbers = column.astype(np.int64)
    if (wrong := (numbers != column) | (numbers < 0) | (numbers >= size)).any():
        raise RecordingError(
            f"{path}: {name} has {column[wrong][0]} in step {int(wrong.argmax())}, but this world's are 0 to {size - 1}"
        )
    return numbers
