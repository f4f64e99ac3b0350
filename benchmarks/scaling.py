"""scaling: many actors on one machine, each with one env whose step takes 20 ms, while the learner learns.

    1, 8, 16, 32, 64       env steps learned from a second, as a share of actors x 50
    llm                    64 actors that each ask a language model before every step: its service, its batches
    8_killed, 32_killed    a quarter of the actors is killed with SIGKILL during the run: the rate afterwards

The env sleeps, so all cost is ours: acting, moving chunks and weights, learning, and supervision. Limit: processor
time. A step of an actor takes 0.07 ms besides its sleep, or 0.4 to 0.5 ms after one (docs/scaling.md).
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from benchmarks.measure import (
    OWN,
    Case,
    Options,
    OursFailed,
    OutOfTime,
    PeerFailed,
    Report,
    Run,
    Skip,
    compare,
    run_peer,
)
from benchmarks.train import Launched, Rows, better_of, launched, rows_of

SIZES = (1, 8, 16, 32, 64)
KILLED = {"8_killed": (8, 5.0), "32_killed": (32, 20.0)}
"""Case -> actors, and seconds after the kill until the rate must have recovered."""
CASES = (*map(str, SIZES), "llm", *KILLED)
HEADLINES = ("32", "64")
QUICK_CASES = ("8", "llm", "8_killed")
QUICK_SECONDS = 210.0
QUICK_ROUNDS = 1
ROUNDS = 3  # at most: each starts dozens of processes
EXPERIMENT = "experiment=bench_scaling"
STEP_S = 0.02
WARM_UP_S = 5.0  # after all actors are alive
START_S = 600.0  # until all actors are alive, on a busy machine
ASKING, LATENCY_S, PER_ITEM_S = 64, 0.05, 0.002
RLLIB_SIZES = (8, 32, 64)
ALGORITHMS = ("appo", "impala", "ppo")
RUNNER_GB = 0.45
"""Memory that one env runner of RLlib takes: it imports PyTorch and RLlib."""

COUNTERS = ("env_steps", "version", "episodes", "chunks", "dropped_chunks", "restarts", "resumes", "wall_seconds")


@dataclass
class Training:
    """A run of ours in a process of its own."""

    child: Launched
    actors: int
    deadline: float  # `time.monotonic()`
    rows: Rows
    _zero: float = float("inf")  # best estimate of `time.monotonic()` when the run's own clock was 0

    def wait(self, until: float | None = None) -> None:
        """Return once the run's clock reaches `until`; without `until`, once all actors are alive.

        Raises:
            OursFailed: the run ended by itself.
            OutOfTime: the deadline came first.
        """
        while True:
            self.rows = rows_of(self.child.folder / "metrics.jsonl")
            if self.rows:
                self._zero = min(self._zero, time.monotonic() - self.rows[-1]["wall_seconds"])
                if self.rows[-1]["wall_seconds"] >= until if until is not None else self._all_alive():
                    return
            self.child.assert_running()
            if time.monotonic() > self.deadline:
                raise OutOfTime(f"{self.actors} actors gave no answer in time")
            time.sleep(0.5)  # reading all rows takes processor time from the run

    @property
    def clock(self) -> float:
        """The run's clock now, in seconds, as in `wall_seconds`."""
        return time.monotonic() - self._zero

    def rate(self, begin: float, seconds: float) -> float:
        """Env steps learned from a second, from the first update after `begin` for at least `seconds`."""
        self.wait(begin + seconds + 3.0)
        return rate(self.rows, begin, seconds)

    def kill(self, share: float) -> int:
        """Send SIGKILL to a share of its actors, only to processes that this run started. Returns their number."""
        status = json.loads((self.child.folder / "status.json").read_bytes())
        beats = {name: beat for name, beat in status["heartbeats"].items() if name.startswith("actor-")}
        chosen = [int(beat["pid"]) for _, beat in sorted(beats.items())][: max(1, round(share * self.actors))]
        for pid in chosen:
            if not descends(pid, self.child.process.pid):
                raise OursFailed(f"process {pid} is no child of this run's: nothing was killed")
            os.kill(pid, signal.SIGKILL)
        return len(chosen)

    def _all_alive(self) -> bool:
        return bool(self.rows[-1]["actors_alive"] == self.actors)


def rate(rows: Rows, begin: float, seconds: float) -> float:
    """Env steps a second between the first update at or after `begin` and the first at least `seconds` later.

    Raises:
        OursFailed: there are no two such updates.
    """
    first = next((row for row in rows if row["wall_seconds"] >= begin), None)
    last = first and next((row for row in rows if row["wall_seconds"] >= first["wall_seconds"] + seconds), None)
    if first is None or last is None:
        raise OursFailed(f"no update in {seconds:.0f} s from {begin:.0f} s on")
    return float((last["env_steps"] - first["env_steps"]) / (last["wall_seconds"] - first["wall_seconds"]))


def assert_nothing_lost(rows: Rows) -> None:
    """Every update must follow the one before, and no counter may go back.

    Raises:
        OursFailed: with the update or counter.
    """
    for before, after in pairwise(rows):
        if after["version"] != before["version"] + 1:
            raise OursFailed(f"update {before['version']} is followed by {after['version']}")
        for name in COUNTERS:
            if after[name] < before[name]:
                raise OursFailed(f"{name} went back from {before[name]} to {after[name]} in update {after['version']}")
    if rows[-1]["learner_restarts"]:
        raise OursFailed("the learner was restarted, though only actors were killed")


def descends(pid: int, ancestor: int) -> bool:
    """Whether a process is a descendant of another."""
    while pid > 1 and pid != ancestor:
        try:
            # The name in brackets may hold any characters; the parent is the second field after it.
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except FileNotFoundError:
            return False
    return pid == ancestor


@contextmanager
def training(actors: int, options: Options, *words: str) -> Iterator[Training]:
    """A run with this many actors."""
    deadline = time.monotonic() + min(START_S, options.seconds_left)
    with launched(EXPERIMENT, f"actors.n={actors}", *words) as child:
        yield Training(child, actors, deadline, [])


def efficiency(actors: int, seconds: float, options: Options) -> float:
    """Env steps as a share of those that the actors could make if only their envs took time."""
    with training(actors, options) as run:
        run.wait()
        return run.rate(run.clock + WARM_UP_S, seconds) * STEP_S / actors


def rllib(actors: int, seconds: float, options: Options, note: list[str]) -> Run:
    """The same share for RLlib, with one env runner of one env for each actor, or as many as memory allows."""

    def share(algorithm: str) -> float:
        runners = min(actors, int(available_gb() / RUNNER_GB) - 2)
        words = ["--runners", str(runners), "--algorithm", algorithm, "--seconds", str(seconds)]
        answer = run_peer("rllib", "scaling_rllib", words, min(START_S, options.seconds_left))
        note[:] = [f"{algorithm.upper()}, {runners} env runners of one env"]
        if runners < actors:
            note.append(f"there is no memory for {actors}; its share is of {runners} x 50 steps a second")
        return float(answer["steps_per_second"]) * STEP_S / runners

    def once(algorithm: str) -> Run:
        return lambda: share(algorithm)

    chosen = ALGORITHMS[:1] if options.quick else ALGORITHMS
    return better_of({name: once(name) for name in chosen}, lambda best: None)


def available_gb() -> float:
    """Memory that is still available to processes, in GB."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 1e6


def scale(actors: int, options: Options, seconds: float) -> Report:
    case = Case("scaling", str(actors), "efficiency", frozenset({"ideal", "rllib"} if str(actors) in HEADLINES else ()))
    note: list[str] = []
    peers: dict[str, Run] = {"ideal": lambda: 1.0}
    if actors in RLLIB_SIZES:
        peers["rllib"] = rllib(actors, seconds, options, note)
    report = compare(case, lambda: efficiency(actors, seconds, options), peers, options)
    told = {"ideal": f"{actors / STEP_S:,.0f} env steps a second", "rllib": "; ".join(note)}
    return Report([replace(row, note=told[row.peer]) for row in report.rows], report.skips)


def ask(options: Options, seconds: float) -> Report:
    """Every actor asks once a step and waits: steps a second, against full batches without a pause."""
    actors = ASKING // 4 if options.quick else ASKING
    ideal = actors / (LATENCY_S + PER_ITEM_S * actors)

    def ours() -> float:
        words = [str(actors), str(seconds), str(LATENCY_S), str(PER_ITEM_S)]
        try:
            return float(run_peer(OWN, "scaling_llm", words, min(START_S, options.seconds_left))["steps_per_second"])
        except PeerFailed as reason:
            raise OursFailed(str(reason)) from None

    note = f"{actors} actors; a batch of n takes {LATENCY_S * 1e3:.0f} + {PER_ITEM_S * 1e3:.0f} n ms, one at a time"
    case = Case("scaling", "llm", "env_steps", frozenset({"ideal"}), notes={"ideal": note})
    return compare(case, ours, {"ideal": lambda: ideal}, options)


def kill(name: str, options: Options, seconds: float) -> Report:
    """The rate after a quarter of the actors was killed, against the rate before, in one run."""
    actors, settle = KILLED[name]
    before: list[float] = []

    def ours() -> float:
        with training(actors, options) as run:
            run.wait()
            before.append(run.rate(run.clock + WARM_UP_S, seconds))
            killed, at = run.kill(0.25), run.clock
            after = run.rate(at + settle, seconds)
            assert_nothing_lost(run.rows)
            if run.rows[-1]["restarts"] < killed:
                raise OursFailed(f"{killed} actors were killed, and {run.rows[-1]['restarts']} restarted")
            return after

    note = f"from {settle:.0f} s after SIGKILL of a quarter of {actors} actors; no update lost, counters monotone"
    case = Case("scaling", name, "env_steps", frozenset({"before"}), notes={"before": note})
    return compare(case, ours, {"before": lambda: before[-1]}, options)


def left_out(names: Sequence[str]) -> list[Skip]:
    return [Skip("scaling", name, "all", "all", "left out of --quick: name it to run it") for name in names]


def run(options: Options) -> Report:
    report = Report()
    options = replace(options, rounds=min(options.rounds, ROUNDS))
    seconds = 8.0 if options.quick else 30.0
    cases = [name for name in CASES if options.wants(name)]
    if options.quick and not options.cases:
        report.skips += left_out([name for name in cases if name not in QUICK_CASES])
        cases = [name for name in cases if name in QUICK_CASES]
    for name in cases:
        if name == "llm":
            report.add(ask(options, seconds))
        elif name in KILLED:
            report.add(kill(name, options, seconds))
        else:
            report.add(scale(int(name), options, seconds))
    return report
