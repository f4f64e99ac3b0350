"""A sweep: one run for every combination of the listed values.

    words ──> members (config/members.py) ──> runs/<name>/sweep.json, runs/<name>-0-..., runs/<name>-1-..., ...

Every member is a `python launch.py run` in its own process or, if the launcher supports arrays, a task of an array.
Running a sweep again under the same name does what is left: members that are done are skipped, members that stopped
are resumed, and new combinations are added.
"""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

from cluster.cli.terminal import print_whole
from cluster.config.members import CRASHED, DONE, STOPPED, Member, plan
from cluster.config.overrides import ROOT, ConfigError
from cluster.jobs import launcher
from cluster.runs.folder import write_json

STATES = {0: "done", 1: "crashed", 2: "refused", 3: "stopped", 4: "budget spent", 5: "interrupted"}
SEVERITY = [0, 3, 5, 4, 2, 1]  # of exit codes, mildest first


def sweep(words: list[str], jobs: int | None = None, dry_run: bool = False) -> int:
    """Run or queue what is left of a sweep. Returns the worst exit code of all members, 0 if some are queued.

    jobs: how many members run at once; None: one on this machine, all in an array.
    """
    config, fixed, members = plan(words)
    as_array = getattr(launcher(config.cluster.name), "array", None)  # all members as one job
    array = as_array(config, fixed, members, jobs or 0) if as_array else None
    console = Console(highlight=False)
    runs, name = Path(config.run.folder), config.run.name
    if dry_run:
        for member in members:
            console.print(f"{member.name}  [dim]{' '.join(fixed + member.words)}[/]", soft_wrap=True)
        if array:
            print(array.script(members))
        return 0
    here, queued = Sweep(runs / name, fixed, members, console), 0
    if array:
        queued = array.submit(console)
        here.save()
    else:
        with _locked(runs / name):
            here.run(jobs or 1)
    _print_results(console, runs, members)
    codes = [STOPPED if m.exit_code is None else m.exit_code for m in members]
    return DONE if queued else max(codes, key=SEVERITY.index)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"sweep {folder.name} is being run by another process: wait for it, or stop it") from None
        yield


@dataclass
class Sweep:
    """Running members. A signal stops them so that they can be resumed, and starts no more."""

    folder: Path
    fixed: list[str]
    members: list[Member]
    console: Console
    at_work: dict[str, tuple[Member, subprocess.Popen[bytes], float]] = field(default_factory=dict)
    stopping: bool = False

    def run(self, jobs: int) -> None:
        """Return when every member has ended, or was not started because of a signal."""
        waiting = [m for m in self.members if not (m.exit_code == DONE and (self.folder.parent / m.name).exists())]
        if skipped := len(self.members) - len(waiting):
            self.console.print(f"[dim]{skipped} of {len(self.members)} members are done already[/]")
        numbers = (signal.SIGINT, signal.SIGTERM)
        previous = [signal.signal(number, self._stop) for number in numbers]
        try:
            while self.at_work or (waiting and not self.stopping):
                while waiting and len(self.at_work) < jobs and not self.stopping:
                    self._start(waiting.pop(0))
                self._collect()
                time.sleep(0.1)
        finally:
            for number, handler in zip(numbers, previous, strict=True):
                signal.signal(number, handler)

    def _start(self, member: Member) -> None:
        run = self.folder.parent / member.name
        begun = (run / "config.yaml").exists()
        command = [sys.executable, str(ROOT / "launch.py")]
        if begun:
            command += ["resume", str(run)]
        else:
            command += ["run", *self.fixed, *member.words, f"run.name={member.name}"]
        member.exit_code = None
        self.save()
        with open(self.folder / f"{member.name}.txt", "ab") as output:
            # In its own session, so that Ctrl-C reaches the member once, through _stop.
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        self.at_work[member.name] = (member, process, time.monotonic())
        self.console.print(f"{'resumed' if begun else 'started'}  {member.name}", soft_wrap=True)

    def _collect(self) -> None:
        for member, process, start in list(self.at_work.values()):
            code = process.poll()
            if code is None:
                continue
            del self.at_work[member.name]
            member.exit_code = code if code in SEVERITY else CRASHED
            member.seconds += time.monotonic() - start
            self.save()
            self.console.print(f"{_state(member)}  {member.name}  [dim]{member.seconds:.0f} s[/]", soft_wrap=True)
            if member.exit_code not in (DONE, STOPPED):
                killed = f"killed by {signal.Signals(-code).name}; " if code < 0 else ""
                self.console.print(f"         [dim]{killed}see {self.folder / member.name}.txt[/]", soft_wrap=True)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        for _, process, _ in self.at_work.values():
            process.send_signal(signal.SIGKILL if self.stopping else signal.SIGTERM)
        self.stopping = True

    def save(self) -> None:
        """Write sweep.json."""
        tree = {"name": self.folder.name, "words": self.fixed, "members": [asdict(m) for m in self.members]}
        write_json(self.folder / "sweep.json", tree)


def _state(member: Member) -> str:
    colour = {None: "dim", DONE: "green", STOPPED: "yellow"}.get(member.exit_code, "red")
    text = "not begun" if member.exit_code is None else STATES[member.exit_code]
    return f"[{colour}]{text:<8}[/]"


def _print_results(console: Console, runs: Path, members: list[Member]) -> None:
    keys = list(dict.fromkeys(word.partition("=")[0] for member in members for word in member.words))
    found = [_results(runs / member.name) for member in members]
    scores = {str(results.get("score") or "") for results in found if results}
    several = len(scores) > 1
    score = "" if several or not scores else scores.pop()
    heads = ["result" if several else score or "success", "95 % interval"]
    heads += [] if score or several else ["return"]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("#", *(key.rpartition(".")[2] for key in keys), "state", *heads, "s"):
        table.add_column(heading, justify="left" if heading == "state" else "right")
    for i, (member, results) in enumerate(zip(members, found, strict=True)):
        value = {key: text for key, _, text in (word.partition("=") for word in member.words)}
        cells = _cells(results, several)[: len(heads)] if results else ["-"] * len(heads)
        table.add_row(str(i), *(value.get(key, "") for key in keys), _state(member), *cells, f"{member.seconds:.0f}")
    console.print()
    print_whole(console, table)


def _cells(results: dict[str, Any], named: bool) -> list[str]:
    """The main number of a run's evaluation (named if members differ in it), its interval, and the return."""
    success, total, score = results["success"], results["return"], results.get("score")
    if score:
        value, interval = f"{total['mean']:.2f}", f"{total['low']:.2f} - {total['high']:.2f}"
    else:
        value, interval = f"{success['rate']:.1%}", f"{success['low']:.1%} - {success['high']:.1%}"
    return [f"{score or 'success'} {value}" if named else value, interval, f"{total['mean']:.3f}"]


def _results(run: Path) -> dict[str, Any]:
    """What the run's evaluation found; empty if there is none."""
    try:
        results: dict[str, Any] = json.loads((run / "stages" / "evaluate" / "results.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return results if {"success", "return"} <= results.keys() else {}
