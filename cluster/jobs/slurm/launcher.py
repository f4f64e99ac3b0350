"""Runs as jobs of SLURM: handed over, looked up, stopped.

    submit ──> checks ──> sbatch --test-only ──> runs/<name>/{config.yaml, job.sh, slurm.json} ──> sbatch ──> job id
                            nothing is written before                 job, output                      │
    status, stop, logs <── squeue ────────────────────────────────────────────────────────────────────┘

The run folder must be on a file system that the nodes share.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cluster.config import tree as configuration
from cluster.config.tree import Config
from cluster.jobs import Queued
from cluster.jobs.slurm import batch_script
from cluster.jobs.slurm.array import ArrayOfRuns
from cluster.jobs.slurm.batch_script import Job
from cluster.jobs.slurm.commands import RECORD, SlurmError, last_state, look_up, read_record, record, sbatch, scancel
from cluster.jobs.slurm.preparation import check, folder_of, prepare
from cluster.runs.folder import RunError, RunFolder
from learner.files import replace_file

array, status = ArrayOfRuns, look_up

# ---- handing over ---------------------------------------------------------------------------------------------------


def render(config: Config) -> str:
    """The script of a new run."""
    config = configuration.named(config)
    return batch_script.render(config, _job(folder_of(config)))


def submit(config: Config) -> int:
    """Make the run folder and queue the job. Returns 0.

    Raises:
        UsageError: nothing was queued and nothing written.
    """
    check(config)
    path = folder_of(config)
    script = batch_script.render(config, _job(path))
    sbatch(script, "--test-only")
    prepare(config)
    try:
        _queue(path, script)
    except SlurmError:
        shutil.rmtree(path)  # as if nothing had been asked
        raise
    return 0


def resume(path: Path, words: list[str], allow_change: bool) -> int:
    """Queue a job that continues a run. Returns 0.

    Raises:
        UsageError: it is in the queue already, or cannot go on as asked. Nothing was queued.
    """
    before = configuration.load(path / "config.yaml")
    config = configuration.update(before, words)
    changed = [key for key, _, _ in configuration.difference(before, config) if configuration.alters_meaning(key)]
    if changed and not allow_change:
        raise RunError(f"{', '.join(changed)} would make {path.name!r} another experiment; add --allow-change if meant")
    path = path.resolve()
    forget(path)
    check(config)
    words = [*words, "--allow-change"] if allow_change else words
    script = batch_script.render(config, _job(path, words))
    sbatch(script, "--test-only")
    RunFolder(path).write_status(state="queued", reason="")
    _queue(path, script)
    return 0


def _job(path: Path, words: Sequence[str] = ()) -> Job:
    return Job(f"cairn-{path.name}", [path], path / "job-%j.txt", words)


def _queue(path: Path, script: str) -> None:
    replace_file(path / "job.sh", script.encode())
    job = sbatch(script, "--parsable").partition(";")[0]
    record(path, job, str(path / f"job-{job}.txt"))
    print(f"submitted {path.name} as job {job}; see: python launch.py status {path.name}, logs {path.name} -f")


# ---- looking up -----------------------------------------------------------------------------------------------------


def cancel(path: Path, queued: Queued) -> str:
    """Stop a job that is in the queue; what was done, in a line."""
    if queued.waits:
        scancel(queued.job)
        RunFolder(path).write_status(state="stopped", phase="", reason="taken out of the queue")
        return f"took job {queued.job} out of the queue; continue with: python launch.py resume {path.name}"
    (path / "STOP").touch()
    if RunFolder(path).read_status().get("state") != "running":
        scancel("--signal=TERM", "--batch", queued.job)  # it starts, and would not see the file: its script repeats it
    return f"asked {path.name}, job {queued.job}, to stop: it saves first; see 'python launch.py status {path.name}'"


def logs(path: Path) -> Path:
    """The file that has what the job of a run has printed."""
    return Path(read_record(path)["output"])


def about(path: Path, there: bool) -> str:
    """Job and output of a run in a line, and how the job ended if it is not there any more."""
    found = read_record(path)
    state = "" if there else last_state(found["job"])
    return f"{found['job']}{f' ({state})' if state else ''}, output {found['output']}"


def forget(path: Path) -> None:
    """The run goes on without SLURM. Raises `RunError` if its job is still in the queue."""
    queued = status([path]).get(path)
    if queued:
        raise RunError(f"run {path.name!r} is job {queued.job}, {queued.state}: stop that first")
    (path / RECORD).unlink(missing_ok=True)
