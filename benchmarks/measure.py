"""Rounds, ratios and rows, shared by all benchmarks.

A case runs ours and its peers in turn (A B A B ...), takes the ratio ours / peer *within each round*, and reports the
median of the ratios with their range: background load that changes slowly affects both sides of a ratio alike.

Limit: on a shared machine load also changes within a round. The range shows how much; more rounds improve the median
only.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".bench"
PEERS = "benchmarks.peers"
OWN = ""
"""The family of peers that run in this project's own environment."""
ROUNDS = 5

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}
"""Set for every measured process. Two threads on two shared cores can make a system 27 times slower."""

Run = Callable[[], float]
"""One measurement of one system, in the unit of its metric."""


class DifferentOutputs(AssertionError):
    """Ours and a peer gave different answers to the same input: no ratio between them is valid."""


class PeerFailed(RuntimeError):
    """A peer cannot be measured here. It is skipped, and the message is printed."""


class OursFailed(RuntimeError):
    """Our side could not be measured: the benchmark fails."""


class OutOfTime(RuntimeError):
    """Our side had not finished by the deadline: the case is skipped."""


@dataclass(frozen=True)
class Row:
    """One comparison. Rates: higher is better. Times (`wall`): lower is better, and the ratio is inverted."""

    benchmark: str
    case: str
    metric: str
    ours: float  # median over rounds
    peer: str  # its id
    ratio: float  # median over rounds of ours / peer; larger is better for us
    ratio_min: float
    ratio_max: float
    headline: bool
    peer_value: float  # median over rounds
    rounds: int
    load: float  # one-minute load average before the rounds, median
    threads: int = 1  # of each process
    note: str = ""

    @property
    def id(self) -> str:
        return f"{self.benchmark}/{self.case}/{self.metric}/{self.peer}"


@dataclass(frozen=True)
class Skip:
    """A comparison that was left out, and why."""

    benchmark: str
    case: str
    metric: str
    peer: str
    reason: str

    @property
    def id(self) -> str:
        return f"{self.benchmark}/{self.case}/{self.metric}/{self.peer}"


@dataclass
class Report:
    """Results of a benchmark."""

    rows: list[Row] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.rows += other.rows
        self.skips += other.skips


@dataclass(frozen=True)
class Options:
    """How much to measure.

    Attributes:
        quick: fewer rounds, shorter windows, and a `deadline`.
        rounds: rounds of each case.
        deadline: `time.monotonic()` by which the benchmark should end; infinite unless quick.
        cases: names of the cases to run, empty for all.
    """

    quick: bool = False
    rounds: int = ROUNDS
    deadline: float = float("inf")
    cases: tuple[str, ...] = ()

    def wants(self, case: str) -> bool:
        return not self.cases or case in self.cases

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()


@dataclass(frozen=True)
class Case:
    """The subject of a comparison: `benchmark/case/metric`, the fixed part of a row's id.

    Attributes:
        headline: ids of the peers whose rows count.
        lower_is_better: the metric is a time, not a rate.
        notes: remarks on peers' rows, by peer id; a run may add to them.
    """

    benchmark: str
    case: str
    metric: str
    headline: frozenset[str] = frozenset()
    lower_is_better: bool = False
    notes: dict[str, str] = field(default_factory=dict)


def compare(case: Case, ours: Run, peers: Mapping[str, Run], options: Options) -> Report:
    """Run ours and all peers once a round, and make a row for each peer.

    A peer that fails is dropped with its reason; the others go on. A round does not start if it would pass the
    deadline, judged by the round before. In the first round, a side whose turn comes after the deadline is skipped.
    """
    report = Report()
    values: dict[str, list[float]] = {"ours": [], **{peer: [] for peer in peers}}
    loads = []
    longest = 0.0

    def skip(peer: str, reason: object) -> None:
        if values.pop(peer, None) is not None:
            report.skips.append(Skip(case.benchmark, case.case, case.metric, peer, str(reason)))

    for round_number in range(options.rounds):
        if round_number and longest > options.seconds_left:
            break
        begun = time.monotonic()
        loads.append(os.getloadavg()[0])
        try:
            if options.seconds_left <= 0:
                raise OutOfTime("no time was left for it")
            values["ours"].append(ours())
        except OutOfTime as reason:
            for peer in peers:
                skip(peer, reason)
            break
        for peer, run in peers.items():
            if peer in values:
                try:
                    if options.seconds_left <= 0:
                        raise PeerFailed("no time was left for it")
                    values[peer].append(run())
                except PeerFailed as reason:
                    skip(peer, reason)
        longest = max(longest, time.monotonic() - begun)
    report.rows = [make_row(case, peer, values["ours"], values[peer], loads) for peer in peers if peer in values]
    return report


def make_row(case: Case, peer: str, ours: Sequence[float], theirs: Sequence[float], loads: Sequence[float]) -> Row:
    """The row of one peer from both sides' values, round by round."""
    ratios = [b / a if case.lower_is_better else a / b for a, b in zip(ours, theirs, strict=True)]
    return Row(
        benchmark=case.benchmark,
        case=case.case,
        metric=case.metric,
        ours=statistics.median(ours),
        peer=peer,
        ratio=statistics.median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        headline=peer in case.headline,
        peer_value=statistics.median(theirs),
        rounds=len(ratios),
        load=statistics.median(loads),
        note=case.notes.get(peer, ""),
    )


def assert_equal(what: str, ours: Any, theirs: Any) -> None:
    """Both sides' outputs must be equal: arrays, or anything comparable.

    Raises:
        DifferentOutputs: they differ; it names the first difference.
    """
    if isinstance(ours, np.ndarray) or isinstance(theirs, np.ndarray):
        _assert_equal_arrays(what, np.asarray(ours), np.asarray(theirs))
    elif ours != theirs:
        raise DifferentOutputs(f"{what}: ours is {ours!r}, the peer's {theirs!r}")


def _assert_equal_arrays(what: str, ours: NDArray[Any], theirs: NDArray[Any]) -> None:
    if ours.shape != theirs.shape:
        raise DifferentOutputs(f"{what}: our shape is {ours.shape}, the peer's {theirs.shape}")
    different = np.argwhere(ours != theirs)
    if len(different):
        where = tuple(different[0].tolist())
        raise DifferentOutputs(f"{what}: at {where} ours is {ours[where]!r}, the peer's {theirs[where]!r}")


# ---- peers, each in its own environment ------------------------------------------------------------------------------


def peer_python(family: str) -> Path:
    """The interpreter of a peer family's environment.

    Raises:
        PeerFailed: the environment was not built.
    """
    if family == OWN:
        return Path(sys.executable)
    python = ENVIRONMENTS / family / "bin" / "python"
    if not python.exists():
        raise PeerFailed(f"no environment .bench/{family}: run make setup-bench")
    return python


def child_environment() -> dict[str, str]:
    """Environment variables of every measured process: one thread, no GPU, this checkout on its path."""
    return {**os.environ, **ONE_THREAD, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}


def run_peer(family: str, script: str, words: Sequence[str], timeout: float) -> dict[str, Any]:
    """Run the module `script` of `peers` in the family's environment; its last line of output is a JSON object.

    Raises:
        PeerFailed: no environment, an error, no answer in time.
    """
    command = [str(peer_python(family)), "-m", f"{PEERS}.{script}", *words]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"{script} gave no answer in {timeout:.0f} s") from None
        finally:
            end(process)
        output.seek(0)
        lines = [line for line in output.read().splitlines() if line.strip()]
    if process.returncode:
        raise PeerFailed(f"{script} ended with code {process.returncode}: {lines[-1] if lines else 'no output'}")
    try:
        answer: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise PeerFailed(f"{script} printed no result") from None
    return answer


def end(process: subprocess.Popen[Any], patience: float = 45.0) -> None:
    """End a child and everything that it started: signal the child, then kill its process group.

    The first signal goes only to the child: it saves and ends its own children. A signal to the group would kill them
    too early.
    """
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# ---- results on disk -------------------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """The facts about the machine that the numbers depend on."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2] for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].strip() if names else model
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "threads": 1,
        "load": os.getloadavg()[0],
    }


def save(path: Path, benchmark: str, report: Report) -> None:
    """Write a benchmark's results. Earlier rows that were not measured this time are kept."""
    measured = {row.id for row in report.rows} | {skip.id for skip in report.skips}
    old = json.loads(path.read_text()) if path.exists() else {"rows": [], "skips": []}

    def kept(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [e for e in entries if "/".join(e[k] for k in ("benchmark", "case", "metric", "peer")) not in measured]

    result = {
        "benchmark": benchmark,
        "machine": machine(),
        "rows": kept(old["rows"]) + [asdict(row) for row in report.rows],
        "skips": kept(old["skips"]) + [asdict(skip) for skip in report.skips],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
