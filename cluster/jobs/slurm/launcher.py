"""Runs as SLURM jobs: submitted, looked up, stopped.

    submit ──> checks ──> sbatch --test-only ──> runs/<name>/{config.yaml, job.sh, slurm.json} ──> sbatch ──> job id
                            nothing is written before                 job, output                      │
    status, stop, logs <── squeue ────────────────────────────────────────────────────────────────────┘

The run folder must be on a file system that the nodes share. A sweep is one job array, with a limit of tasks at once:

    runs/<name>/sweep.json, array.sh, job-<array>_<task>.txt        runs/<member>/{config.yaml, slurm.json, status.json}

Running the sweep again under the same name reads from the members' folders how they ended, and queues members that are
neither done nor in the queue. On one machine it is the same, except that here nothing waits for them.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from cluster.config import tree as configuration
from cluster.config.members import CRASHED, DONE, STOPPED, Member
from cluster.config.overrides import ConfigError
from cluster.config.tree import Config
from cluster.jobs import Queued
from cluster.jobs.slurm import batch_script, requeue
from cluster.jobs.slurm.batch_script import Job
from cluster.jobs.slurm.commands import RECORD, SlurmError, last_state, look_up, read_record, record, sbatch, scancel
from cluster.roles.placement import assert_placed
from cluster.runs.folder import RunError, RunFolder, manifest
from cluster.topology import asks_a_language_model
from learner.files import replace_file
from llm_service.server.guard import loopback

ENDED = {"done": DONE, "stopped": STOPPED, "crashed": CRASHED}

# ---- submitting -----------------------------------------------------------------------------------------------------


def check(config: Config) -> None:
    """Raise `UsageError` for errors that can be found before a job starts."""
    if shutil.which("sbatch") is None:
        raise SlurmError("there is no sbatch on PATH: run this on a login node, or print the script with --dry-run")
    llm = config.llm
    alone = config.cluster.slurm.all_nodes == 1 or not asks_a_language_model(config)
    if not alone and not llm.address and loopback(llm.server.listen):
        raise SlurmError(
            f"actors on other nodes cannot reach an LLM service on {llm.server.listen}: start one "
            "separately and set llm.address, set llm.server.listen, or use one node"
        )
    assert_placed(config)
    from cluster.runs.supply import assert_supplied, initial_weights  # both import PyTorch
    from cluster.runs.weights import assert_model, guide_weights

    assert_model(config)
    guide_weights(config)
    assert_supplied(config, initial_weights(config))


def prepare(config: Config) -> None:
    """Create the folder of a run that a job will start."""
    about = manifest(["python", "launch.py", *sys.argv[1:]])
    files = {"config.yaml": configuration.as_yaml(config), "manifest.json": about}
    folder = RunFolder.create(folder_of(config), files)
    folder.write_status(state="queued", phase="", reason="")


def folder_of(config: Config) -> Path:
    """The absolute path of a run's folder: the job starts elsewhere."""
    return (Path(config.run.folder) / config.run.name).resolve()


def render(config: Config) -> str:
    """The script of a new run."""
    config = configuration.named(config)
    return batch_script.render(config, _job(folder_of(config)))


def submit(config: Config) -> int:
    """Create the run folder and queue the job; returns 0. A `UsageError`: nothing was queued or written."""
    check(config)
    path = folder_of(config)
    script = batch_script.render(config, _job(path))
    sbatch(script, "--test-only")
    prepare(config)
    try:
        _queue(path, script)
    except SlurmError:
        shutil.rmtree(path)  # as if nothing had been requested
        raise
    return 0


def resume(path: Path, words: list[str], allow_change: bool) -> int:
    """Queue a job that continues a run; returns 0. A `UsageError` (it runs, or cannot continue): nothing was queued."""
    before = configuration.load(path / "config.yaml")
    config = configuration.update(before, words)
    changed = [key for key, _, _ in configuration.difference(before, config) if configuration.alters_meaning(key)]
    if changed and not allow_change:
        raise RunError(
            f"{', '.join(changed)} would make {path.name!r} another experiment; add --allow-change if you want that"
        )
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


# ---- a sweep --------------------------------------------------------------------------------------------------------


@dataclass
class ArrayOfRuns:
    """The members of a sweep, and their jobs in SLURM."""

    config: Config  # of the first member, with the sweep's name
    fixed: list[str]  # words of all members
    members: list[Member]
    at_once: int  # members that may run at once; 0: all

    def __post_init__(self) -> None:
        self._runs = Path(self.config.run.folder).resolve()
        self._folder = self._runs / self.config.run.name

    def script(self, members: Sequence[Member]) -> str:
        """The script of the array with these members as tasks 0, 1, ..."""
        runs = [self._runs / member.name for member in members]
        output = self._folder / "job-%A_%a.txt"
        job = Job(f"cairn-{self._folder.name}", runs, output, (), self.at_once, array=True)
        return batch_script.render(self.config, job)

    def submit(self, console: Console) -> int:
        """Queue what is left; returns how many members. A `UsageError`: nothing was queued or written."""
        queued = look_up([self._runs / member.name for member in self.members])
        for member in self.members:
            status = RunFolder(self._runs / member.name).read_status()
            member.exit_code = None if self._runs / member.name in queued else ENDED.get(status.get("state", ""))
            member.seconds = float(status.get("wall_seconds", 0.0))
        left = [m for m in self.members if m.exit_code != DONE and self._runs / m.name not in queued]
        if queued:
            console.print(f"{len(queued)} of {len(self.members)} members are in the queue", highlight=False)
        if not left:
            return 0
        configs = [configuration.compose([*self.fixed, *member.words, f"run.name={member.name}"]) for member in left]
        for config in configs:
            self._assert_fits(config)
            check(config)
        script = self.script(left)
        sbatch(script, "--test-only")
        new = [config for config in configs if not (self._runs / config.run.name).exists()]
        self._folder.mkdir(parents=True, exist_ok=True)
        for config in new:
            prepare(config)
        replace_file(self._folder / "array.sh", script.encode())
        try:
            array = sbatch(script, "--parsable").partition(";")[0]
        except SlurmError:
            for config in new:
                shutil.rmtree(self._runs / config.run.name)
            raise
        for task, member in enumerate(left):
            job = f"{array}_{task}"
            record(self._runs / member.name, job, str(self._folder / f"job-{job}.txt"))
        cap = f", {self.at_once} at once" if self.at_once else ""
        console.print(f"submitted {len(left)} members as array {array}{cap}", highlight=False, soft_wrap=True)
        return len(left)

    def _assert_fits(self, config: Config) -> None:
        """Check that all members request the same resources: an array has one request for all its tasks."""
        for key, _, _ in configuration.difference(self.config, config):
            if key.startswith("cluster."):
                raise ConfigError(f"{key} cannot vary within a sweep on SLURM, which is one array: make it two sweeps")
        if batch_script.cores(config) != batch_script.cores(self.config) and not config.cluster.slurm.cpus:
            raise ConfigError(
                "members of this sweep need different numbers of CPUs, but one array has the same number for all: set "
                "cluster.slurm.cpus"
            )


array, status = ArrayOfRuns, look_up

# ---- looking up -----------------------------------------------------------------------------------------------------


def cancel(path: Path, queued: Queued) -> str:
    """Stop a job that is in the queue; returns a line about what was done."""
    if queued.waits:
        scancel(queued.job)
        RunFolder(path).write_status(state="stopped", phase="", reason="taken out of the queue")
        return f"took job {queued.job} out of the queue; continue with: python launch.py resume {path.name}"
    (path / "STOP").touch()
    if RunFolder(path).read_status().get("state") != "running":
        scancel("--signal=TERM", "--batch", queued.job)  # while it starts it would miss the file; its script repeats it
    return f"asked {path.name}, job {queued.job}, to stop: it saves first; see 'python launch.py status {path.name}'"


def logs(path: Path) -> Path:
    """The file with the output of a run's job."""
    return Path(read_record(path)["output"])


def about(path: Path, there: bool) -> str:
    """A line with the job and output of a run, and how the job ended if it is gone.

    A second line says why it was queued again, or why not."""
    found = read_record(path)
    state = "" if there else last_state(found["job"])
    reason = requeue.read(path)["reason"] if RunFolder(path).read_status().get("state") != "done" else ""
    line = f"{found['job']}{f' ({state})' if state else ''}, output {found['output']}"
    return f"{line}\nrequeue: {reason}" if reason else line


def forget(path: Path) -> None:
    """The run continues without SLURM. Raises `RunError` if its job is still in the queue."""
    if queued := status([path]).get(path):
        raise RunError(f"run {path.name!r} is job {queued.job}, {queued.state}: stop that first")
    (path / RECORD).unlink(missing_ok=True)
