"""Calls of SLURM's own commands, whose errors are passed on verbatim, and the record of which run is which job.

sbatch <── a script      squeue, sacct ──> where jobs are      scancel      runs/<name>/slurm.json: job, output
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.jobs import Queued
from cluster.runs.folder import write_json
from llm_service.errors import UsageError

RECORD = "slurm.json"
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
"""States of a job that has not started."""


class SlurmError(UsageError):
    """SLURM is not available, or refuses. One sentence, with SLURM's own message if there is one."""


def sbatch(script: str, *options: str) -> str:
    """Pass a script to sbatch. Returns its output; raises `SlurmError` if it is refused."""
    try:
        return _said("SLURM refuses the job", ["sbatch", *options], input=script).strip()
    except OSError as error:
        raise SlurmError(f"cannot run sbatch: {error.strerror}") from None


def record(path: Path, job: str, output: str) -> None:
    """Record the job in the run folder."""
    write_json(path / RECORD, {"job": job, "output": output})


def read_record(path: Path) -> dict[str, str]:
    """The job id and the output path of a run that is a job."""
    found: dict[str, str] = json.loads((path / RECORD).read_bytes())
    return found


def look_up(paths: Sequence[Path]) -> dict[Path, Queued]:
    """The runs that are in the queue, with one query to SLURM; a `SlurmError` if it does not answer."""
    jobs = {read_record(path)["job"]: path for path in paths if (path / RECORD).exists()}
    if not jobs:
        return {}
    try:
        # All of a user's jobs: for a job that is gone, squeue would report an invalid id.
        words = ["squeue", "--me", "--array", "--noheader", "--format=%i|%T|%r"]
        lines = _said("SLURM does not answer", words, timeout=60).splitlines()
    except FileNotFoundError:
        raise SlurmError("there is no squeue on PATH: run this on a login node") from None
    except subprocess.TimeoutExpired:
        raise SlurmError("squeue does not answer: try again later") from None
    queued = {}
    for line in lines:
        job, state, reason = line.split("|", 2)
        leader, _, part = job.partition("+")  # 12+0, 12+1: parts of a heterogeneous job
        if leader in jobs and part in ("", "0"):
            queued[jobs[leader]] = Queued(leader, state, "" if reason == "None" else reason, state in WAITING)
    return queued


def last_state(job: str) -> str:
    """The state of a job that is gone in SLURM's accounting, such as OUT_OF_MEMORY; "" if there is no accounting."""
    try:
        words = ["sacct", "--jobs", job, "--allocations", "--noheader", "--parsable2", "--format=State"]
        return _said("SLURM keeps no accounts", words, timeout=60).strip().partition("\n")[0]
    except (FileNotFoundError, subprocess.TimeoutExpired, SlurmError):
        return ""


def scancel(*words: str) -> None:
    """Cancel or signal jobs, or raise `SlurmError`."""
    _said("SLURM does not cancel the job", ["scancel", *words])


def _said(trouble: str, words: list[str], **how: Any) -> str:
    """The output of a command; if it fails, a `SlurmError` with `trouble` and the command's own message."""
    done = subprocess.run(words, capture_output=True, text=True, **how)
    if done.returncode == 0:
        return str(done.stdout)
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    told = [re.sub(r"^\w+: (error|fatal): ", "", line) for line in lines if re.match(r"\w+: (error|fatal): ", line)]
    raise SlurmError(f"{trouble}: {'; '.join(dict.fromkeys(told or lines)) or 'it does not say why'}")
