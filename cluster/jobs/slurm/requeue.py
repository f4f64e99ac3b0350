"""Should a job be queued again? The batch script asks after the run was asked to save (3) or was interrupted (5).

    python -m cluster.jobs.slurm.requeue RUN CODE IDLE INTERRUPTED BACKOFF_S
           ──> exit code 0: yes, with the seconds to wait on stdout; 1: no; and a line on stderr that says why
    python -m cluster.jobs.slurm.requeue RUN failed      scontrol has not done it
           RUN/requeues.json: {"requeues", "idle", "interrupted", "start", "progress", "reason"}

Yes, once per start of the job, while the run makes progress and is not interrupted all the time: a job may have IDLE
requeues in a row without progress, and INTERRUPTED in a row after an interruption. A new job counts from zero. Progress
is a new version in a checkpoint, a new file of a stage, or an answer of a language model in the journal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.runs.folder import RunFolder, write_json
from llm_service.errors import INTERRUPTED

NAME = "requeues.json"
LONGEST_S = 3600
"""Longest wait in the queue after an interruption."""


def read(path: Path) -> dict[str, Any]:
    """Counts of a run's requeues; `reason` says why its last job was queued again, or why not."""
    none = {"requeues": 0, "idle": 0, "interrupted": 0, "start": [], "reason": ""}
    counted: dict[str, Any] = {**none, "progress": {"version": 0, "files": 0, "journal": 0}}
    return counted | (json.loads((path / NAME).read_bytes()) if (path / NAME).exists() else {})


def allowed(
    path: Path, limit: int, environment: Mapping[str, str], interruptions: int | None = None, backoff_s: int = 0
) -> tuple[bool, str]:
    """Whether the job may be queued again, and why. Both are on disk when this returns, and a requeue is counted.

    Args:
        path: the run folder.
        limit: how many requeues in a row without progress are allowed.
        environment: SLURM's variables of this job.
        interruptions: how many requeues in a row after an interruption are allowed; None: this one was not interrupted.
        backoff_s: seconds to wait after the first interruption.
    """
    folder, before = RunFolder(path), read(path)
    start = [environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_RESTART_COUNT", "0")]
    job = f"job {start[0]}"
    if before["start"] == start:
        return False, f"run {folder.name} was queued again already in this start of {job}"
    counted = before if before["start"][:1] == start[:1] else before | {"idle": 0, "interrupted": 0}
    now = progress(folder)
    idle = 0 if now != before["progress"] else counted["idle"] + 1
    interrupted = 0 if interruptions is None else counted["interrupted"] + 1
    requeues = before["requeues"] + 1
    hint = "is signal_s or time too short?" if interruptions is None else "fix what interrupted it"
    if idle > limit:
        yes, why = False, f"made no progress in {_times(idle, 'start')}: {job} is not queued again; {hint}"
    elif interruptions is not None and interrupted > interruptions:
        yes, why = False, f"was interrupted in {_times(interrupted, 'start')}: {job} is not queued again; {hint}"
    elif interruptions is not None:
        wait = f"and waits for {delay(interrupted, backoff_s)} s at least"
        yes, why = True, f"was interrupted; {job} is queued again, requeue {requeues}, {wait}"
    else:
        yes, why = True, f"is saved; {job} is queued again, requeue {requeues}"
    why = f"run {folder.name} {why}"
    if yes:
        counted = {"requeues": requeues, "idle": idle, "interrupted": interrupted, "start": start, "progress": now}
    write_json(path / NAME, counted | {"reason": why})
    return yes, why


def delay(interrupted: int, backoff_s: int) -> int:
    """Seconds to wait after this many interruptions in a row: twice as long each time; 0 after none."""
    return min(LONGEST_S, backoff_s * 2 ** min(interrupted - 1, 16)) if interrupted else 0


def note_failure(path: Path, environment: Mapping[str, str]) -> str:
    """Record that SLURM has refused the requeue; returns the message."""
    job = environment.get("SLURM_JOB_ID", "")
    why = f"SLURM has refused to queue job {job} again: see the job's output; continue with launch.py resume"
    write_json(path / NAME, read(path) | {"reason": why})
    return why


def progress(folder: RunFolder) -> dict[str, int]:
    """Numbers that change when a run makes progress. A checkpoint that is only saved again keeps its version."""
    places = [folder.checkpoints, *(folder.path / "stages").glob("*/checkpoints-*")]  # of a search, one each
    versions = [[int(p.name.partition("-")[0].removeprefix("v")) for p in place.glob("v*")] for place in places]
    journal = folder.path / "llm" / "journal.jsonl"
    return {
        "version": sum(max(found, default=0) for found in versions),
        "files": sum(path.is_file() for path in (folder.path / "stages").glob("*/*")),
        "journal": journal.stat().st_size if journal.exists() else 0,
    }


def _times(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s in a row"


def main(run: Path, *words: str) -> int:
    """The exit code for the batch script."""
    if words == ("failed",):
        print(note_failure(run, os.environ), file=sys.stderr)
        return 0
    code, idle, interruptions, backoff_s = map(int, words)
    yes, why = allowed(run, idle, os.environ, interruptions if code == INTERRUPTED else None, backoff_s)
    print(why, file=sys.stderr)
    if yes:
        print(delay(read(run)["interrupted"], backoff_s))
    return 0 if yes else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
