"""`launch.py status`, `stop` and `logs`: the state of runs, from their folders and from the job queues."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cluster import jobs
from cluster.cli.terminal import print_whole
from cluster.jobs import Queued
from cluster.metrics.alerts import QUIET_S
from cluster.runs.folder import RunError, RunFolder, find, is_running
from llm_service.errors import UsageError

DAY_S = 86_400.0


def print_status(runs: Path, name: str | None, check: bool = False) -> int:
    """Print one run's status, or a table of all. Returns 0.

    check: name only those that died or stalled within the last day; returns 1 if there are any: for cron.
    """
    console = Console()
    paths = [find(name, runs)] if name else sorted(p.parent for p in runs.glob("*/config.yaml"))
    if not paths:
        if not check:
            console.print(
                f"there are no runs in {runs}; start one with: python launch.py run experiment=babyai_gotolocal"
            )
        return 0
    try:
        queued = jobs.status(paths)
    except UsageError as error:
        console.print(f"[yellow]{error}[/]; the states below are from the run folders", highlight=False)
        queued = None
    if check:
        return _ill(paths, queued)
    heads = ("run", "state", "env steps", "in training", "actors", "restarts", "updated")
    table = Table(*heads, box=None, header_style="bold")
    for path in paths:
        status = RunFolder(path).read_status()
        age = time.time() - float(status.get("updated", 0.0))
        table.add_row(
            path.name,
            _state(path, status, queued),
            f"{status.get('env_steps', 0):,}",
            _training(status),
            f"{status.get('actors_alive', 0)}/{status.get('actors', 0)}",
            str(status.get("restarts", 0)),
            f"{age:.0f} s ago" if age < 3600 else f"{age / 3600:.1f} h ago",
        )
    print_whole(console, table)
    if name:
        if launcher := jobs.launcher_of(paths[0]):
            there = queued is not None and paths[0] in queued
            console.print(f"job: {launcher.about(paths[0], there)}", highlight=False, soft_wrap=True)
        links = ("dashboard", "metrics") if is_running(status) else ()  # they end with the run
        for key in ("phase", "reason", *links, "report"):
            if status.get(key):
                console.print(f"{key}: {status[key]}", highlight=False, soft_wrap=True)
    return 0


def _ill(paths: list[Path], queued: dict[Path, Queued] | None) -> int:
    """Name the runs that died, crashed or stalled within the last day. Returns 1 if there are any."""
    found = 0
    for path in paths:
        status = RunFolder(path).read_status()
        state = _state(path, status, queued)
        if state.startswith(("died", "crashed", "stalled")) and time.time() - status.get("updated", 0.0) < DAY_S:
            found = 1
            print(f"{path.name}: {state}")
    return found


def _training(status: dict[str, Any]) -> str:
    """The result of the latest training episodes, in the run's score."""
    score = status.get("score")
    value = status.get("episodic_return" if score else "success_rate")
    if value is None:
        return "-"
    return f"{score} {value:.2f}" if score else f"success {value:.1%}"


def _state(path: Path, status: dict[str, Any], queued: dict[Path, Queued] | None) -> str:
    """The state of a run. `queued`: the runs that are in a queue, None if the queue does not answer."""
    state = str(status.get("state", "unknown"))
    if queued is None and jobs.launcher_of(path):
        return state
    if job := (queued or {}).get(path):
        if job.waits:
            return f"queued ({job.reason})" if job.reason else "queued"
        return _stalled(status) if state == "running" else f"job {job.state.lower()}"
    if state == "queued" or (state == "running" and (jobs.launcher_of(path) or not is_running(status))):
        begun = state == "running"  # a job that never started has nothing to lose
        return "died (starts over)" if begun and not RunFolder(path).kept else "died (resumable)"
    return _stalled(status) if state == "running" else state


def _stalled(status: dict[str, Any]) -> str:
    """Of a run that is on."""
    last = status.get("last_update")
    quiet = 0.0 if last is None else time.time() - last
    return f"stalled ({quiet / 60:.0f} min)" if quiet > QUIET_S else "running"


def at_work(path: Path) -> bool:
    """Whether a run has a process on this machine, or a job in the queue."""
    if launcher := jobs.launcher_of(path):
        return path in launcher.status([path])
    return is_running(RunFolder(path).read_status())


def request_stop(path: Path) -> None:
    """Ask a run to save and stop; a job that has not started is removed from the queue."""
    if job := jobs.status([path]).get(path):
        return print(jobs.launcher_of(path).cancel(path, job))
    if not at_work(path):
        if RunFolder(path).read_status().get("state") == "done":
            raise RunError(f"run {path.name!r} is finished: there is nothing to stop")
        raise RunError(f"run {path.name!r} is not running; continue it with 'python launch.py resume {path.name}'")
    (path / "STOP").touch()
    print(f"asked {path.name} to stop: it saves after this update; see 'python launch.py status {path.name}'")


def print_logs(path: Path, follow: bool) -> None:
    """Print run.log; with `follow`, also new lines until the run ends."""
    log, launcher = path / "run.log", jobs.launcher_of(path)
    if launcher and not log.exists():  # it says why the run did not start
        log = launcher.logs(path)
    if not log.exists():
        raise RunError(f"run {path.name!r} has not written a log yet")
    with open(log) as file:
        while True:
            sys.stdout.write(file.read())
            sys.stdout.flush()
            if not follow or not at_work(path):
                return
            time.sleep(0.5)
