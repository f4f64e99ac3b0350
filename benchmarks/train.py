"""train: env steps per second with learning included, and the wall time to a success rate.

GoToLocal, CPU only, one torch thread a process, all cores available to each system. Each system is started for each
measurement and timed in its steady state, between the first and the last update after a warm-up.

    stock            each system with its own env: a user's view of either
    stock_4096       the same with minibatches of 4,096, where arithmetic counts for more and overhead for less
    our_env          peers on our env: the rest is the merit of the engine
    to_90_percent    our FiLM network in both; a clock from the start of the process to 90 % training success

Limit: four epochs of forward and backward through two 147-64-64 networks. Collection runs at the same time on another
core; with one core the two add up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import (
    ROOT,
    Case,
    Options,
    OursFailed,
    OutOfTime,
    Report,
    Run,
    Skip,
    child_environment,
    compare,
    end,
    run_peer,
)

CASES = ("stock", "stock_4096", "our_env", "to_90_percent")
EXPERIMENT = "experiment=bench_train"
QUICK_SECONDS = 210.0
QUICK_ROUNDS = 1
WARM_UP_UPDATES, LEAST_UPDATES = 3, 3  # as in peers/common.py
SUCCESS, WINDOW = 0.9, 256  # of the latest finished episodes; 256 is the window of our own metrics
CAP = 1200.0  # seconds after which a system counts as not having learned
PEERS = ("sb3", "rllib", "sample_factory")
LARGE_ENVS, LARGE_MINIBATCH = 64, 4096  # two minibatches an epoch
PATIENCE = 120.0  # seconds that a system may take besides its measured window
ROUNDS_TO_90_PERCENT = 3

Rows = list[dict[str, Any]]


def rows_of(metrics: Path, kind: str = "train") -> Rows:
    """The complete rows of a run so far: of its training, or of its evaluations (`evaluate`)."""
    if not metrics.exists():
        return []
    lines = metrics.read_text().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [row for row in rows if row["kind"] == kind]


def steady(rows: Rows, seconds: float) -> float | None:
    """Env steps per second after the warm-up; None until enough were measured."""
    if len(rows) <= WARM_UP_UPDATES + LEAST_UPDATES:
        return None
    first, last = rows[WARM_UP_UPDATES], rows[-1]
    elapsed = last["wall_seconds"] - first["wall_seconds"]
    return (last["env_steps"] - first["env_steps"]) / elapsed if elapsed >= seconds else None


def solved(rows: Rows) -> bool:
    """Whether the success rate was reached over a full window."""
    return bool(rows) and rows[-1]["episodes"] >= WINDOW and rows[-1]["charts/success_rate"] >= SUCCESS


@dataclass(frozen=True)
class Launched:
    """`launch.py run` in its own process, with its own temporary run folder."""

    process: subprocess.Popen[bytes]
    output: Any
    folder: Path

    def assert_running(self) -> None:
        """Raise `OursFailed` with the last lines of its output if it ended by itself."""
        if self.process.poll() is not None:
            self.output.seek(0)
            last = "\n".join(self.output.read().decode(errors="replace").splitlines()[-15:])
            raise OursFailed(f"launch.py ended with code {self.process.returncode}:\n{last}")


@contextmanager
def launched(*words: str) -> Iterator[Launched]:
    """A run with these arguments, ended when the block is left."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "launch.py"), "run", *words, f"run.folder={folder}", "run.name=bench"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            yield Launched(process, output, Path(folder) / "bench")
        finally:
            end(process)


def run_ours(words: list[str], watch: Callable[[Rows], float | None], timeout: float, kind: str = "train") -> float:
    """Train in a separate process until `watch` returns a number for its rows of a `kind`. Returns that number.

    Raises:
        OursFailed: the run ended by itself.
        OutOfTime: `watch` returned no number in time.
    """
    begun = time.monotonic()
    with launched(*words) as run:
        while (answer := watch(rows_of(run.folder / "metrics.jsonl", kind))) is None:
            run.assert_running()
            if time.monotonic() - begun > timeout:
                raise OutOfTime(f"ours gave no answer in {timeout:.0f} s")
            time.sleep(0.2)
        return answer


def speed_of_ours(seconds: float, options: Options, *words: str) -> Run:
    words = (EXPERIMENT, *words)
    return lambda: run_ours([*words], lambda rows: steady(rows, seconds), min(seconds + PATIENCE, options.seconds_left))


def speed_of_peer(family: str, env: str, seconds: float, options: Options, *words: str) -> Run:
    """The steady speed that `peers/train_<family>` reports."""

    def run() -> float:
        timeout = min(seconds + PATIENCE, options.seconds_left)
        words_ = ["--seconds", str(seconds), "--env", env, *words]
        return float(run_peer(family, f"train_{family}", words_, timeout)["steps_per_second"])

    return run


def better_of(runs: dict[str, Run], note: Callable[[str], None]) -> Run:
    """Measure all settings at first and continue with the best: a peer's best setting depends on the machine."""
    chosen: list[Run] = []

    def run() -> float:
        if chosen:
            return chosen[0]()
        values = {name: run() for name, run in runs.items()}
        best = max(values, key=lambda name: values[name])
        chosen.append(runs[best])
        note(best)
        return values[best]

    return run


def stock(options: Options, seconds: float) -> Report:
    case = Case(
        "train",
        "stock",
        "env_steps",
        headline=frozenset(PEERS),
        notes={
            "rllib": "PPO, 2 runners of 8 envs, learner in the driver",
            "rllib_impala": "one V-trace pass over each batch where the others make 4 epochs: less work a step",
            "sample_factory": "asynchronous PPO, 2 workers of 8 envs",
        },
    )
    vectors = {v: speed_of_peer("sb3", "stock", seconds, options, "--vector", v) for v in ("dummy", "subproc")}
    if options.quick:
        del vectors["subproc"]

    def note(vector: str) -> None:
        case.notes["sb3"] = f"PPO, vector env: {vector}" + ("" if options.quick else " (the better of both here)")

    peers = {
        "sb3": better_of(vectors, note),
        "rllib": speed_of_peer("rllib", "stock", seconds, options, "--algorithm", "ppo"),
        "sample_factory": speed_of_peer("sample_factory", "stock", seconds, options),
    }
    if not options.quick:
        peers["rllib_impala"] = speed_of_peer("rllib", "stock", seconds, options, "--algorithm", "impala")
    report = compare(case, speed_of_ours(seconds, options), peers, options)
    if options.quick:
        report.skips.append(Skip("train", "stock", "env_steps", "rllib_impala", "left out of --quick"))
    return report


def stock_4096(options: Options, seconds: float) -> Report:
    case = Case("train", "stock_4096", "env_steps")
    size = "--envs", str(LARGE_ENVS), "--minibatch", str(LARGE_MINIBATCH)
    peers = {peer: speed_of_peer(peer, "stock", seconds, options, *size) for peer in PEERS}
    words = f"actors.envs={LARGE_ENVS}", f"learner.minibatch={LARGE_MINIBATCH}"
    return compare(case, speed_of_ours(seconds, options, *words), peers, options)


def our_env(options: Options, seconds: float) -> Report:
    notes = {
        "sb3": "our batch of envs behind SB3's vector interface",
        "rllib": "one env class each: RLlib's loop wants next-step auto-reset, which a batch stepped together has not",
    }
    case = Case("train", "our_env", "env_steps", headline=frozenset({"sb3", "rllib"}), notes=notes)
    peers = {peer: speed_of_peer(peer, "ours", seconds, options) for peer in ("sb3", "rllib")}
    report = compare(case, speed_of_ours(seconds, options), peers, options)
    reason = "it needs gymnasium below 1.0, which has no same-step auto-reset: our env cannot be imported there"
    report.skips.append(Skip("train", "our_env", "env_steps", "sample_factory", reason))
    return report


def to_90_percent(options: Options) -> Report:
    """Each system once a round, both from the same seed. One that misses the success rate counts as `CAP`."""
    notes = {"sb3": "PPO on the stock env with our FiLM network and hyperparameters"}
    case = Case("train", "to_90_percent", "wall", frozenset({"sb3"}), lower_is_better=True, notes=notes)
    seed = 0

    def ours() -> float:
        nonlocal seed
        seed += 1
        words = [EXPERIMENT, f"seed={seed}", "policy.network=film", "policy.reads=[]"]
        words += ["policy.hidden=128", "learner.anneal=false"]
        begun = time.monotonic()
        try:
            return run_ours(words, lambda rows: time.monotonic() - begun if solved(rows) else None, CAP)
        except OutOfTime:
            notes["sb3"] += f"; ours did not get there in {CAP:.0f} s with seed {seed}"
            return CAP

    def sb3() -> float:
        words = ["--until", str(SUCCESS), "--window", str(WINDOW), "--cap", str(CAP), "--seed", str(seed)]
        answer = run_peer("sb3", "train_sb3", [*words, "--started", str(time.time())], CAP + PATIENCE)
        if not answer["reached"]:
            notes["sb3"] += f"; sb3 did not get there in {CAP:.0f} s with seed {seed}"
            return CAP
        return float(answer["seconds"])

    rounds = Options(options.quick, min(options.rounds, ROUNDS_TO_90_PERCENT), options.deadline, options.cases)
    return compare(case, ours, {"sb3": sb3}, rounds)


def run(options: Options) -> Report:
    seconds = 6.0 if options.quick else 15.0
    report = Report()
    if options.wants("stock"):
        report.add(stock(options, seconds))
    if options.wants("stock_4096"):
        if options.quick:
            report.skips += [Skip("train", "stock_4096", "env_steps", peer, "left out of --quick") for peer in PEERS]
        else:
            report.add(stock_4096(options, seconds))
    if options.wants("our_env"):
        report.add(our_env(options, seconds))
    if options.wants("to_90_percent"):
        if options.quick:
            report.skips.append(Skip("train", "to_90_percent", "wall", "sb3", "too long for --quick"))
        else:
            report.add(to_90_percent(options))
    return report
