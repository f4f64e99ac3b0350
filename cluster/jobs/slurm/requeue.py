"""Shall a job be queued again? The batch script asks, after the run was told to save (3) or was interrupted (5).

    python -m cluster.jobs.slurm.requeue RUN LIMIT ──> exit code 0: yes, 1: no, and a line that says why
           RUN/requeues.json: {"requeues", "idle", "start", "progress"}

Yes once a start of the job, and while the run gets on: after LIMIT requeues in a row without progress, no. Progress
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

NAME = "requeues.json"


def allowed(path: Path, limit: int, environment: Mapping[str, str]) -> tuple[bool, str]:
    """Whether the job may be queued again, and why. A yes is counted, on disk, when this returns.

    Args:
        path: the run folder.
        limit: requeues in a row without progress that are allowed.
        environment: SLURM's variables of this job.
    """
    folder = RunFolder(path)
    before: Any = {"requeues": 0, "idle": 0, "start": [], "progress": {"version": 0, "files": 0, "journal": 0}}
    if (path / NAME).exists():
        before = json.loads((path / NAME).read_bytes())
    start = [environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_RESTART_COUNT", "0")]
    if before["start"] == start:
        return False, f"run {folder.name} was queued again already in this start of job {start[0]}"
    now = progress(folder)
    idle = 0 if now != before["progress"] else before["idle"] + 1
    if idle > limit:
        times = "1 start" if idle == 1 else f"{idle} starts in a row"
        return False, f"run {folder.name} got no further in {times}: not queued again; is signal_s or time too small?"
    requeues = before["requeues"] + 1
    write_json(path / NAME, {"requeues": requeues, "idle": idle, "start": start, "progress": now})
    return True, f"run {folder.name} is saved; job {start[0]} is queued again, requeue {requeues}"


def progress(folder: RunFolder) -> dict[str, int]:
    """Numbers that change when a run gets on. A checkpoint that is only saved again has the version that it had."""
    places = [folder.checkpoints, *(folder.path / "stages").glob("*/checkpoints-*")]  # of a search, one each
    versions = [[int(p.name.partition("-")[0].removeprefix("v")) for p in place.glob("v*")] for place in places]
    journal = folder.path / "llm" / "journal.jsonl"
    return {
        "version": sum(max(found, default=0) for found in versions),
        "files": sum(path.is_file() for path in (folder.path / "stages").glob("*/*")),
        "journal": journal.stat().st_size if journal.exists() else 0,
    }


if __name__ == "__main__":
    yes, why = allowed(Path(sys.argv[1]), int(sys.argv[2]), os.environ)
    print(why)
    sys.exit(0 if yes else 1)
