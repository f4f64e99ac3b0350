"""A sweep: every combination of the values that words list, each a run of its own.

    learner.learning_rate=1e-4,3e-4 seed=0..4        10 members
        ──> runs/<name>/sweep.json, runs/<name>-0-..., runs/<name>-1-..., ...

Every member is `python launch.py run` in a process of its own, or with `cluster=slurm` a task of one array. Using a
sweep's name again does what is left: members that are done are skipped, members that stopped are resumed, new
combinations are added.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from cluster import limits
from cluster.config import Config, compose, named
from cluster.overrides import ROOT, ConfigError, parse, shown
from cluster.terminal import print_whole

if TYPE_CHECKING:
    from cluster.slurm_sweep import ArrayOfRuns

DONE, CRASHED, STOPPED = 0, 1, 3
STATES = {0: "done", 1: "crashed", 2: "refused", 3: "stopped", 4: "budget spent", 5: "interrupted"}
SEVERITY = [0, 3, 5, 4, 2, 1]  # of exit codes, mildest first


@dataclass
class Member:
    """One run of a sweep."""

    name: str
    words: list[str]  # what distinguishes it
    exit_code: int | None = None  # None: not ended yet
    seconds: float = 0.0


# ---- words to members -----------------------------------------------------------------------------------------------


def expand(words: list[str]) -> tuple[list[str], list[list[str]]]:
    """Words -> those with one value, and the combinations of those with several.

    Raises:
        ConfigError: a word cannot be read, or lists nothing.
    """
    fixed, axes = [], []
    for word in words:
        values = _values(word)
        if values is None:
            fixed.append(word)
        else:
            key = word.partition("=")[0]
            axes.append([f"{key}={value}" for value in values])
    return fixed, [list(combination) for combination in itertools.product(*axes)]


def _values(word: str) -> list[str] | None:
    """The values that a word lists, None if it sets one value."""
    span = re.fullmatch(r"[^=]+=(-?\d+)\.\.(-?\d+)", word)
    if span:
        values = [str(i) for i in range(int(span[1]), int(span[2]) + 1)]
    else:
        override = parse(word)
        if not override.is_sweep_override():
            return None
        if not override.is_discrete_sweep():
            raise ConfigError(f"cannot sweep {shown(word)}: list values, as in a=1,2 or a=range(0,5) or a=0..4")
        values = list(override.sweep_string_iterator())
    if not values:
        raise ConfigError(f"cannot sweep {shown(word)}: it lists no value")
    return values


def plan(words: list[str]) -> tuple[Config, list[str], list[Member]]:
    """The configuration of the first member (with the sweep's name), the common words, all members.

    Raises:
        ConfigError: a member's configuration is at fault, or the name belongs to another sweep.
    """
    fixed, combinations = expand(words)
    if any(word.startswith("run.name=") for word in combinations[0]):
        raise ConfigError("run.name: one name for the whole sweep: its members are numbered")
    configs = [compose(fixed + combination) for combination in combinations]  # all: a mistake shows before any begins
    for config in configs:
        limits.assert_fits(config)
    first = named(configs[0])
    fixed = [word for word in fixed if not word.startswith("run.name=")]
    path = Path(first.run.folder) / first.run.name / "sweep.json"
    members = _known_members(path, fixed)
    known = {tuple(member.words) for member in members}
    for combination in combinations:
        if tuple(combination) not in known:
            members.append(Member(f"{first.run.name}-{len(members)}{_label(combination)}", combination))
    if (path.parent / "config.yaml").exists():
        raise ConfigError(f"run.name: {first.run.name} is a run, not a sweep: choose another name")
    return first, fixed, members


def _known_members(path: Path, fixed: list[str]) -> list[Member]:
    if not path.exists():
        return []
    try:
        saved = json.loads(path.read_text())
        members = [Member(**member) for member in saved["members"]]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} is damaged: choose another run.name") from None
    if sorted(saved["words"]) != sorted(fixed):
        was = " ".join(saved["words"]) or "no common words"
        raise ConfigError(f"run.name: a sweep of this name has other common words ({was}): choose another name")
    return members


def _label(words: list[str]) -> str:
    parts = [f"-{word.partition('=')[0].rpartition('.')[2]}-{word.partition('=')[2]}" for word in words]
    return re.sub(r"[^\w.-]+", "-", "".join(parts))[:48].rstrip("-.")


# ---- members to results ---------------------------------------------------------------------------------------------


def sweep(words: list[str], jobs: int | None = None, dry_run: bool = False) -> int:
    """Run what is left of a sweep, or have it queued; returns the worst exit code of all members, 0 if some are queued.

    jobs: members that run at once; None is one on this machine, and all on SLURM.
    """
    config, fixed, members = plan(words)
    console = Console(highlight=False)
    runs, name = Path(config.run.folder), config.run.name
    if dry_run:
        for member in members:
            console.print(f"{member.name}  [dim]{' '.join(fixed + member.words)}[/]", soft_wrap=True)
        if config.cluster.name == "slurm":
            print(_array(config, fixed, members, jobs).script(members))
        return 0
    if config.cluster.name == "slurm":
        array = _array(config, fixed, members, jobs)
        queued = array.submit(console)
        Sweep(runs, name, fixed, members, console).save()
        _print_results(console, runs, members)
        return _worst(members) if not queued else DONE
    with _locked(runs / name):
        Sweep(runs, name, fixed, members, console).run(jobs or 1)
    _print_results(console, runs, members)
    return _worst(members)


def _worst(members: list[Member]) -> int:
    codes = [STOPPED if m.exit_code is None else m.exit_code for m in members]
    return max(codes, key=SEVERITY.index)


def _array(config: Config, fixed: list[str], members: list[Member], jobs: int | None) -> ArrayOfRuns:
    from cluster.slurm_sweep import ArrayOfRuns

    return ArrayOfRuns(config, fixed, members, jobs or 0)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"sweep {folder.name} is being run by another process: wait for it, or stop it") from None
        yield


class Sweep:
    """Members at work. A signal stops the running ones, resumable, and starts no more."""

    def __init__(self, runs: Path, name: str, fixed: list[str], members: list[Member], console: Console) -> None:
        self.runs = runs
        self.folder = runs / name
        self.fixed = fixed
        self.members = members
        self.console = console
        self.at_work: dict[str, tuple[Member, subprocess.Popen[bytes], float]] = {}
        self.stopping = False

    def run(self, jobs: int) -> None:
        """Returns when every member has ended, or was not begun because of a signal."""
        waiting = [m for m in self.members if not (m.exit_code == DONE and (self.runs / m.name).exists())]
        skipped = len(self.members) - len(waiting)
        if skipped:
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
        begun = (self.runs / member.name / "config.yaml").exists()
        command = [sys.executable, str(ROOT / "launch.py")]
        if begun:
            command += ["resume", str(self.runs / member.name)]
        else:
            command += ["run", *self.fixed, *member.words, f"run.name={member.name}"]
        member.exit_code = None
        self.save()
        with open(self.folder / f"{member.name}.txt", "ab") as output:
            # A session of its own: a Ctrl-C reaches the member once, through _stop.
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
        temporary = self.folder / ".sweep.json"
        temporary.write_text(json.dumps(tree, indent=1))
        temporary.replace(self.folder / "sweep.json")


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
    heads = [
        "result" if several else score or "success",
        "95 % interval",
        *(["return"] if not (score or several) else []),
    ]
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
    """What counts in a run's evaluation (named, where others count other things), its interval, and the return."""
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
