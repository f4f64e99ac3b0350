"""Runs as jobs of SLURM: handed over, looked up, stopped.

    submit ──> checks ──> sbatch --test-only ──> runs/<name>/{config.yaml, job.sh, slurm.json} ──> sbatch ──> job id
                            nothing is written before                 job, output                      │
    status, stop, logs <── squeue ────────────────────────────────────────────────────────────────────┘

The run folder must be on a file system that the nodes share. What is asked of SLURM is asked by its own commands, and
their errors are passed on in their words.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import config as configuration
from cluster import slurm_script
from cluster.config import Config
from cluster.folder import RunError, RunFolder, write_json
from cluster.slurm_script import Job
from cluster.topology import asks_a_language_model
from learner.files import replace_file
from llm_service.errors import UsageError
from llm_service.server.guard import loopback

RECORD = "slurm.json"


class SlurmError(UsageError):
    """SLURM is not there, or refuses. One sentence, with its own words where it has some."""


@dataclass(frozen=True)
class Queued:
    """A job as the queue has it: PENDING, RUNNING, COMPLETING and so on, and why it waits."""

    job: str
    state: str
    reason: str

    @property
    def waits(self) -> bool:
        return self.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")


# ---- handing over ---------------------------------------------------------------------------------------------------


def render(config: Config) -> str:
    """The script of a new run."""
    config = configuration.named(config)
    return slurm_script.render(config, _job(_folder(config)))


def submit(config: Config) -> int:
    """Make the run folder and queue the job. Returns 0.

    Raises:
        UsageError: nothing was queued and nothing written.
    """
    check(config)
    path = _folder(config)
    script = slurm_script.render(config, _job(path))
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
    script = slurm_script.render(config, _job(path, words))
    sbatch(script, "--test-only")
    RunFolder(path).write_status(state="queued", reason="")
    _queue(path, script)
    return 0


def check(config: Config) -> None:
    """Raise `UsageError` for what can be known before a job begins."""
    if shutil.which("sbatch") is None:
        raise SlurmError(
            "there is no sbatch on PATH: run this where jobs are submitted, or print the script with --dry-run"
        )
    llm = config.llm
    alone = config.cluster.slurm.all_nodes == 1 or not asks_a_language_model(config)
    if not alone and not llm.address and loopback(llm.server.listen):
        raise SlurmError(
            f"actors on other nodes cannot reach a language model's service on {llm.server.listen}: start one "
            "beside the run and set llm.address, set llm.server.listen, or use one node"
        )
    from cluster.supply import assert_supplied, initial_weights  # both import PyTorch
    from cluster.weights import assert_model, guide_weights

    assert_model(config)
    guide_weights(config)
    assert_supplied(config, initial_weights(config))


def prepare(config: Config) -> Path:
    """Make the folder of a run that a job will begin; its path."""
    folder = RunFolder.create(_folder(config))
    configuration.save(config, folder.path / "config.yaml")
    folder.write_manifest(["python", "launch.py", *sys.argv[1:]])
    folder.write_status(state="queued", phase="", reason="")
    return folder.path


def sbatch(script: str, *options: str) -> str:
    """Hand a script to sbatch; what it prints.

    Raises:
        SlurmError: it is refused.
    """
    try:
        done = subprocess.run(["sbatch", *options], input=script, capture_output=True, text=True)
    except OSError as error:
        raise SlurmError(f"cannot run sbatch: {error.strerror}") from None
    if done.returncode:
        raise SlurmError(f"SLURM refuses the job: {_sentence(done.stderr)}")
    return done.stdout.strip()


def record(path: Path, job: str, output: str) -> None:
    """Note in a run folder which job it is."""
    write_json(path / RECORD, {"job": job, "output": output})


def _job(path: Path, words: Sequence[str] = ()) -> Job:
    return Job(f"cairn-{path.name}", [path], path / "job-%j.txt", words)


def _folder(config: Config) -> Path:
    return (Path(config.run.folder) / config.run.name).resolve()


def _queue(path: Path, script: str) -> None:
    replace_file(path / "job.sh", script.encode())
    job = sbatch(script, "--parsable").partition(";")[0]
    record(path, job, str(path / f"job-{job}.txt"))
    print(f"submitted {path.name} as job {job}; see: python launch.py status {path.name}, logs {path.name} -f")


def _sentence(stderr: str) -> str:
    """What a command of SLURM complains about, in a line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    told = [re.sub(r"^\w+: (error|fatal): ", "", line) for line in lines if re.match(r"\w+: (error|fatal): ", line)]
    return "; ".join(dict.fromkeys(told or lines)) or "it does not say why"


# ---- looking up -----------------------------------------------------------------------------------------------------


def read_record(path: Path) -> dict[str, Any] | None:
    """The job and the output of a run; None if it is no job."""
    try:
        found: dict[str, Any] = json.loads((path / RECORD).read_bytes())
        return found
    except FileNotFoundError:
        return None


def look_up(paths: Sequence[Path]) -> dict[Path, Queued]:
    """Those of the runs that are in the queue, by one question to SLURM.

    Raises:
        SlurmError: SLURM does not answer.
    """
    jobs = {found["job"]: path for path in paths if (found := read_record(path))}
    if not jobs:
        return {}
    try:
        # All of a user's jobs: of a job that is gone, squeue would say that its id is invalid.
        words = ["squeue", "--me", "--array", "--noheader", "--format=%i|%T|%r"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        raise SlurmError("there is no squeue on PATH: ask where jobs are submitted") from None
    except subprocess.TimeoutExpired:
        raise SlurmError("squeue does not answer: try again later") from None
    if done.returncode:
        raise SlurmError(f"SLURM does not say: {_sentence(done.stderr)}")
    queued = {}
    for line in done.stdout.splitlines():
        job, state, reason = line.split("|", 2)
        leader, _, part = job.partition("+")  # 12+0, 12+1: parts of a heterogeneous job
        if leader in jobs and part in ("", "0"):
            queued[jobs[leader]] = Queued(leader, state, "" if reason == "None" else reason)
    return queued


def last_state(job: str) -> str:
    """What SLURM's accounting says of a job that is gone, as OUT_OF_MEMORY; "" where it is not kept."""
    try:
        words = ["sacct", "--jobs", job, "--allocations", "--noheader", "--parsable2", "--format=State"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().partition("\n")[0] if done.returncode == 0 else ""


def stop(path: Path, queued: Queued) -> str:
    """Stop a job that is in the queue; what was done, in a line."""
    if queued.waits:
        _scancel(queued.job)
        RunFolder(path).write_status(state="stopped", phase="", reason="taken out of the queue")
        return f"took job {queued.job} out of the queue; continue with: python launch.py resume {path.name}"
    (path / "STOP").touch()
    if RunFolder(path).read_status().get("state") != "running":
        _scancel("--signal=TERM", "--batch", queued.job)  # it starts, and would not see the file: its script repeats it
    return f"asked {path.name}, job {queued.job}, to stop: it saves first; see 'python launch.py status {path.name}'"


def forget(path: Path) -> None:
    """The run goes on without SLURM. Raises `RunError` if its job is still in the queue."""
    queued = look_up([path]).get(path)
    if queued:
        raise RunError(f"run {path.name!r} is job {queued.job}, {queued.state}: stop that first")
    (path / RECORD).unlink(missing_ok=True)


def _scancel(*words: str) -> None:
    done = subprocess.run(["scancel", *words], capture_output=True, text=True)
    if done.returncode:
        raise SlurmError(f"SLURM does not cancel the job: {_sentence(done.stderr)}")
