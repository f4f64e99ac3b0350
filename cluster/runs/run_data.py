"""The content of a run folder, for the report and the comparison.

    run folders ── load ──> Run ── arms ──> runs with the same settings, which differ only in their seed
    a sweep     ── expand ──> its runs

Reading never fails on a run that is still running or was killed in the middle of a line: missing data is empty.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cluster.config.overrides import flatten
from cluster.metrics.statistics import Curve, Estimate, wilson
from cluster.runs.hidden import hide
from llm_service.errors import UsageError

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """The files of a run folder; missing ones are empty mappings and lists."""

    folder: Path
    config: Row
    manifest: Row
    status: Row
    train: list[Row]
    evaluations: list[Row]
    results: Row  # of the evaluate stage
    cases: dict[str, Row] = field(default_factory=dict)  # of the last generalise stage, by their names
    fits: dict[str, list[Row]] = field(default_factory=dict)  # rows of gradient steps, by name of the stage
    asked: Row = field(default_factory=dict)  # what language models were asked: the last columns `llm/`, without that

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def seed(self) -> str:
        return str(self.config.get("seed", "?"))

    @property
    def world(self) -> str:
        """Id of the environment, "an unnamed world" if unknown."""
        return str(self.results.get("env") or _named(self.config.get("env"), "id", "name") or "an unnamed world")

    @property
    def method(self) -> str:
        """Name of the method, "an agent" if unknown."""
        return _named(self.config.get("method"), "name", "id") or "an agent"

    @property
    def env_steps(self) -> float | None:
        return self.total("env_steps")

    @property
    def minutes(self) -> float | None:
        """Wall-clock time."""
        seconds = self.total("wall_seconds")
        return None if seconds is None else seconds / 60

    @property
    def speed(self) -> float | None:
        """Env steps per second over the whole run."""
        seconds = self.total("wall_seconds")
        return self.env_steps / seconds if self.env_steps and seconds else None

    @property
    def success(self) -> Estimate | None:
        """The finished agent's success rate in held-out episodes."""
        return estimate(self.results.get("success"))

    @property
    def score(self) -> str:
        """What an episode's return counts, "" if success says more."""
        return str(self.results.get("score", self.status.get("score")) or "")

    @property
    def mean_return(self) -> Estimate | None:
        """The finished agent's score in held-out episodes."""
        return returned(self.results)

    def total(self, key: str) -> float | None:
        """A counter at the end of the run: from the status, otherwise from the last row that has it."""
        for row in (self.status, *reversed(self.train)):
            if (value := number(row.get(key))) is not None:
                return value
        return None


def load(folder: Path) -> Run:
    """Read one run folder.

    Raises:
        UsageError: it is not a run folder.
    """
    folder = Path(folder)
    if not any((folder / name).is_file() for name in ("config.yaml", "status.json", "metrics.jsonl")):
        raise UsageError(f"{folder} is not a run folder: it holds no config.yaml, status.json or metrics.jsonl")
    rows = read_rows(folder / "metrics.jsonl")
    config, manifest = hide(
        read_mapping(folder / "config.yaml", yaml.safe_load), read_mapping(folder / "manifest.json")
    )
    return Run(
        folder=folder,
        config=config,
        manifest=manifest,
        status=read_mapping(folder / "status.json"),
        train=_unwound(row for row in rows if row.get("kind") == "train"),
        evaluations=_unwound(row for row in rows if row.get("kind") == "evaluate"),
        results=read_mapping(folder / "stages" / "evaluate" / "results.json"),
        cases=_cases(folder),
        fits=_fits(row for row in rows if row.get("kind") == "fit"),
        asked=_asked(rows),
    )


def expand(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The runs of the folders, where a sweep's folder stands for its members; and the names of members without a run.

    A run that is named twice appears once.
    """
    runs: list[Run] = []
    missing: list[str] = []
    for folder in map(Path, folders):
        if not (folder / "sweep.json").is_file():
            runs.append(load(folder))
            continue
        for entry in read_mapping(folder / "sweep.json").get("members") or []:
            member = _named(entry, "name")
            try:
                runs.append(load(folder.parent / member))
            except UsageError:  # not started yet
                missing.append(member)
    if not runs:
        raise UsageError(f"no run to report on in {', '.join(map(str, folders)) or 'an empty list'}")
    once: dict[Path, Run] = {}
    for run in runs:
        once.setdefault(run.folder.resolve(), run)
    return list(once.values()), missing


def number(value: object) -> float | None:
    """`value` if it is a finite number, else None."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def part(entry: object, *keys: str) -> Mapping[str, Any]:
    """The mapping below these keys, empty if there is none."""
    for key in keys:
        entry = entry.get(key) if isinstance(entry, Mapping) else None
    return entry if isinstance(entry, Mapping) else {}


def estimate(entry: object) -> Estimate | None:
    """A `{"n", "rate" or "mean", "low", "high"}` from results.json; a rate without an interval gets Wilson's."""
    found = part(entry)
    n = int(number(found.get("n")) or 0)
    rate, mean, low, high = (number(found.get(key)) for key in ("rate", "mean", "low", "high"))
    value = rate if rate is not None else mean
    if value is None:
        return None
    if low is None or high is None:
        low, high = wilson(rate * n, n) if rate is not None else (value, value)
    return Estimate(value, low, high, n)


def between(entry: object, n: int = 0) -> Estimate | None:
    """A `{"value", "low", "high"}` of results.json, of n."""
    value, low, high = (number(part(entry).get(key)) for key in ("value", "low", "high"))
    return None if value is None or low is None or high is None else Estimate(value, low, high, n)


def returned(table: Mapping[str, Any]) -> Estimate | None:
    """The mean return of an evaluation, over its episodes."""
    found = estimate(table.get("return"))
    return found and replace(found, n=int(number(table.get("episodes")) or 0))


def series(rows: Iterable[Row], key: str, x: str = "env_steps") -> Curve:
    """The rows that have both numbers, as arrays with increasing x."""
    pairs: list[tuple[float, float]] = []
    for row in rows:
        at, value = number(row.get(x)), number(row.get(key))
        if at is not None and value is not None and (not pairs or at > pairs[-1][0]):
            pairs.append((at, value))
    values = np.array(pairs, np.float64).reshape(-1, 2)
    return values[:, 0] / (60 if x == "wall_seconds" else 1), values[:, 1]


def arms(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs by the settings in which they differ: only seeds of one setting may be averaged.

    Seed, name and machines are not settings. The key is empty if all runs have the same settings. A setting that only
    some runs have, such as an option of one language model, is named if those runs differ in it, or if nothing else
    distinguishes the runs.
    """
    configs = [
        {k: v for k, v in flatten(r.config).items() if k != "seed" and not k.startswith(("run.", "cluster."))}
        for r in runs
    ]
    keys = sorted({k for config in configs for k in config if any(c.get(k) != config[k] for c in configs)})
    named = [", ".join(f"{_short(k, keys)}={config.get(k)}" for k in keys) for config in configs]
    telling = [k for k in keys if len({str(config[k]) for config in configs if k in config}) > 1]
    brief = [", ".join(f"{_short(k, telling)}={config[k]}" for k in telling if k in config) for config in configs]
    out: dict[str, list[Run]] = {}
    for run, label in zip(runs, brief if len(set(brief)) == len(set(named)) else named, strict=True):
        out.setdefault(label, []).append(run)
    return out


def seeds(runs: Sequence[Run]) -> list[str]:
    """The training seed of each."""
    return [run.seed for run in runs]


def stand_in(config: Mapping[str, Any]) -> str:
    """A note that a run's language model was scripted, and how to use a real one; "" if it was not."""
    llm = part(config, "llm")
    if llm.get("name") != "scripted" or llm.get("address"):
        return ""
    experiment = config.get("experiment")
    words = f"python launch.py run {f'experiment={experiment}' if experiment else '...'} llm=openai llm.model=NAME"
    return f"The language model was a scripted stand-in, without key or network. With a real one: {words}"


def _short(key: str, keys: Sequence[str]) -> str:
    """Last part of a dotted key, if that is enough to distinguish it from the others."""
    last = key.rpartition(".")[2]
    return last if sum(k.rpartition(".")[2] == last for k in keys) == 1 else key


def _named(part: object, *keys: str) -> str:
    if isinstance(part, Mapping):
        return str(next((part[key] for key in keys if part.get(key)), ""))
    return str(part or "")


def read_mapping(path: Path, parse: Callable[[str], object] = json.loads) -> Row:
    """The mapping in a file, empty if there is none."""
    try:
        value = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _cases(folder: Path) -> dict[str, Row]:
    """Results of `stages/generalise`, or of the last further one, `stages/generalise-<n>`."""
    found = {p.parent.name.partition("-")[2]: p for p in (folder / "stages").glob("generalise*/results.json")}
    last = max((n for n in found if n.isdecimal()), key=int, default="")
    rows = read_mapping(found[last]).get("cases") if last in found else []
    return {str(row.get("name")): row for row in rows if isinstance(row, dict)} if isinstance(rows, list) else {}


def _fits(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by the stage that wrote them; rows of older code do not name it and are left out."""
    found: dict[str, list[Row]] = {}
    for row in _unwound(rows):
        if "stage" in row:
            found.setdefault(str(row["stage"]), []).append(row)
    return found


def _asked(rows: Sequence[Row]) -> Row:
    last = next((row for row in reversed(rows) if "llm/questions" in row), {})
    return {key.removeprefix("llm/"): value for key, value in last.items() if key.startswith("llm/")}


def read_rows(path: Path) -> list[Row]:
    """All JSON lines with a mapping; a killed process leaves part of a line, and a resumed one appends to it."""
    rows = []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _unwound(rows: Iterable[Row]) -> list[Row]:
    """Rows in order of env steps: a run resumed from a checkpoint repeats some, and the later ones count."""
    kept: list[Row] = []
    for row in rows:
        steps = number(row.get("env_steps"))
        if steps is None:
            continue
        while kept and kept[-1]["env_steps"] >= steps:
            kept.pop()
        kept.append(row)
    return kept
