"""Jobs: runs that a queue starts elsewhere. One launcher per kind of queue, found by the name of `cluster`.

    launch.py run, resume ──> launcher(cluster.name) ──> sbatch, kubectl ──> a job: launch.py
    status, stop, logs ─────> launcher_of(run) ──> the queue's answer

`<name>/launcher.py` publishes

    render(config)                    the text that `--dry-run` prints
    submit(config)                    submit a new run; an exit code
    resume(path, words, allow_change) submit a job that continues a run; an exit code

A launcher that leaves `<name>.json` in the folders of its runs also publishes

    status(paths)                     its runs that are in the queue, as `Queued`
    cancel(path, queued)              stop one of these; one line about what was done
    logs(path)                        the file with the output of a run's job
    about(path, there)                a line with job and output, and how the job ended if it is gone; a second line
                                      says why it was queued again or why not
    forget(path)                      the run continues without the queue

and optionally `array(config, fixed, members, at_once)`, a sweep as one job, and `demand(config, role)`, the Ray
resources of a role without a GPU.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.config import Part
from learner.room import Room


@dataclass(frozen=True)
class Queued:
    """A job in its queue: its state, in the queue's words, and why it waits."""

    job: str
    state: str
    reason: str
    waits: bool = False


names = Room[Any](__name__).names


def launcher(name: str) -> Any:
    """The launcher that submits runs to a kind of cluster; None if they start here."""
    return importlib.import_module(f"{__name__}.{name}.launcher") if name in names() else None


def launcher_of(path: Path) -> Any:
    """The launcher that submitted the run of this folder; None if it is not a job."""
    return next((launcher(name) for name in names() if (path / f"{name}.json").exists()), None)


def status(paths: Sequence[Path]) -> dict[Path, Queued]:
    """The runs that are in a queue, with one query per queue; a `UsageError` if a queue does not answer."""
    found: dict[Path, Queued] = {}
    for name in names():
        if own := [path for path in paths if (path / f"{name}.json").exists()]:
            found |= launcher(name).status(own)
    return found


def assert_form(
    part: Part, kind: str, names: Sequence[str], form: str, expected: str, optional: Sequence[str] = ()
) -> None:
    """Raise `ValueError` unless the texts, or lists of texts, at these keys of `cluster.<kind>` match `form`.

    form: pattern of what is `expected`.
    optional: names whose text may be empty.
    """
    for name in names:
        value = getattr(part, name)
        for text in value if isinstance(value, list) else [value]:
            if not re.fullmatch(form, text) and (text or name not in optional):
                raise ValueError(f"cluster.{kind}.{name}: expected {expected}, got {text!r}")
