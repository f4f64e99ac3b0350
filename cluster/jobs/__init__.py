"""Jobs: runs that a queue begins elsewhere. A launcher a kind of queue, found by the name of `cluster`.

    launch.py run, resume ──> launcher(cluster.name) ──> sbatch, kubectl ──> a job: launch.py
    status, stop, logs ─────> launcher_of(run) ──> what its queue says

`<name>/launcher.py` publishes

    render(config)                    the text that `--dry-run` prints
    submit(config)                    hand a new run over; an exit code
    resume(path, words, allow_change) hand over a job that continues a run; an exit code

and one that leaves `<name>.json` in the folders of its runs, also

    status(paths)                     those of its runs that are in the queue, as `Queued`
    cancel(path, queued)              stop one of these; what was done, in a line
    logs(path)                        the file that has what a run's job has printed
    about(path, there)                job and output in a line, how the job ended if it is not there any more, and in
                                      a further line why it was queued again or was not
    forget(path)                      the run goes on without the queue

If it can, `array(config, fixed, members, at_once)`, a sweep as one job, and `demand(config, role)`, what Ray sets aside
for a role.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.config import Part


@dataclass(frozen=True)
class Queued:
    """A job as its queue has it: what it is at, in the queue's word, and why it waits."""

    job: str
    state: str
    reason: str
    waits: bool = False


def names() -> list[str]:
    """Every kind of queue, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def launcher(name: str) -> Any:
    """What hands over the runs of a kind of cluster; None where they begin here."""
    return importlib.import_module(f"{__name__}.{name}.launcher") if name in names() else None


def launcher_of(path: Path) -> Any:
    """What handed over the run of this folder; None if it is no job."""
    return next((launcher(name) for name in names() if (path / f"{name}.json").exists()), None)


def status(paths: Sequence[Path]) -> dict[Path, Queued]:
    """Those of the runs that are in a queue, by one question to each; a `UsageError` if one does not answer."""
    found: dict[Path, Queued] = {}
    for name in names():
        if own := [path for path in paths if (path / f"{name}.json").exists()]:
            found |= launcher(name).status(own)
    return found


def assert_form(
    part: Part, kind: str, names: Sequence[str], form: str, expected: str, optional: Sequence[str] = ()
) -> None:
    """Raise `ValueError` unless the texts, or lists of them, at these names of `cluster.<kind>` are as `expected`.

    form: pattern of what is expected.
    optional: names whose text may be empty.
    """
    for name in names:
        value = getattr(part, name)
        for text in value if isinstance(value, list) else [value]:
            if not re.fullmatch(form, text) and (text or name not in optional):
                raise ValueError(f"cluster.{kind}.{name}: expected {expected}, got {text!r}")
