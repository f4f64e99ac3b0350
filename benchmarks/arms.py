"""Arms of an experiment side by side: what each seed came to, the mean of an arm, and the first arm less each other.

    python -m benchmarks.arms ellm='runs/ellm_s*' noveld='runs/noveld_s*' [--json benchmarks/results/ellm_learning.json]

An arm is a name and a pattern of run folders, whose runs were evaluated. Compared is what they came to on held-out
episodes or, with `--metric NAME`, the last of a number that training reported (`--metric crafter/score`). With --json
the arms named are written into the file, where others stay, with their commands and a curve of training, a point every
CURVE env steps. Printed is a table: intervals of means are Student's over seeds, of differences Welch's, all of 95 %.
"""

from __future__ import annotations

import argparse
import glob
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from cluster.metrics.statistics import CONFIDENCE, Estimate, welch
from cluster.runs.run_data import Run, load, part, series
from llm_service.errors import UsageError

CURVE = 20_000
"""Env steps between two points of a curve in the file, at least."""

PLACE = re.compile(r" run\.(name|folder)=\S+")
SEED = re.compile(r"\bseed=\d+")

Entry = dict[str, Any]


def main(words: Sequence[str]) -> int:
    """The command. Exit codes: 0 done, 2 an arm has no runs, one of them has no results, or the file is no JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arms", description=__doc__.partition("\n")[0])
    parser.add_argument("arms", nargs="+", metavar="NAME=FOLDERS")
    parser.add_argument("--metric", default="", help="compare this number of training instead of held-out results")
    parser.add_argument("--json", type=Path, help="write the arms into this file")
    given = parser.parse_args(words)
    try:
        runs = dict(find(word) for word in given.arms)
        arms = {name: [entry(run, given.metric) for run in own] for name, own in runs.items()}
        content = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    except ValueError as error:
        print(f"error: {given.json} is not JSON: {error}; name another file", file=sys.stderr)
        return 2
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.json:
        content["commands"] = content.get("commands", {}) | {name: command(own[0]) for name, own in runs.items()}
        content["arms"] = content.get("arms", {}) | arms
        given.json.write_text(readable(content))
    print(table(arms))
    return 0


def find(word: str) -> tuple[str, list[Run]]:
    """Name and runs of an arm, by seed.

    Raises:
        UsageError: there are none.
    """
    name, equals, pattern = word.partition("=")
    if not equals:
        raise UsageError(f"{word!r} is no arm: write NAME=FOLDERS, such as ellm='runs/ellm_s*'")
    folders = [Path(path) for path in sorted(glob.glob(pattern)) if Path(path).is_dir()]
    if not folders:
        raise UsageError(f"arm {name}: no folder is called {pattern}")
    return name, sorted(map(load, folders), key=lambda run: int(run.config.get("seed") or 0))


def entry(run: Run, metric: str = "") -> Entry:
    """What a run came to: its measure, or the last of `metric`; rates of what can be unlocked in held-out episodes; and
    its curve: the metric, or the means of its training episodes.

    Raises:
        UsageError: it was not evaluated, or never reported the metric.
    """
    found = run.mean_return if run.score else run.success
    if found is None:
        raise UsageError(f"run {run.name} has no results of held-out episodes: continue it with `launch.py resume`")
    measure = run.score.partition(" ")[0] or "success"
    told = {"mean": found.value, "low": found.low, "high": found.high}
    rates = {name: round(rate["rate"], 3) for name, rate in part(run.results, "achievements", "rates").items()}
    steps, means = series(run.train, metric or ("charts/episodic_return" if run.score else "charts/success_rate"))
    if metric:
        if not len(means):
            raise UsageError(f"run {run.name} reports no {metric}: metrics.jsonl in its folder has what it does report")
        measure, told = metric, {"mean": round(float(means[-1]), 3)}
    curve: list[list[float]] = []
    for step, mean in zip(steps, means, strict=True):
        if not curve or step - curve[-1][0] >= CURVE:
            curve.append([int(step), round(float(mean), 3)])
    return {
        "seed": int(run.config.get("seed") or 0),
        measure: told,
        "episodes": run.results.get("episodes"),
        **({"rates": rates} if rates else {}),
        "training": curve,
        "commit": run.manifest.get("commit"),
    }


def command(run: Run) -> str:
    """How its arm was run: without a place, and SEED for the seed."""
    return SEED.sub("seed=SEED", PLACE.sub("", str(run.manifest.get("command", "")).removeprefix("python launch.py ")))


def readable(content: Mapping[str, Any]) -> str:
    """JSON with a line for each entry, so that a change shows what changed."""
    parts = []
    for key, own in content.items():
        if isinstance(own, dict):
            cells = [f"  {json.dumps(name)}: {_lines(cell)}" for name, cell in own.items()]
            parts.append(f" {json.dumps(key)}: {{\n" + ",\n".join(cells) + "\n }")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(own)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(cell: object) -> str:
    if not isinstance(cell, list):
        return json.dumps(cell)
    return "[\n" + ",\n".join(f"   {json.dumps(entry)}" for entry in cell) + "\n  ]"


def table(arms: Mapping[str, Sequence[Entry]]) -> str:
    """Markdown: a line for each arm."""
    lines, first = ["| arm | seeds | mean | the first less this |", "|---|---|---|---|"], next(iter(arms))
    for name, own in arms.items():
        values = [value(found) for found in own]
        less = ""
        if name != first and min(len(values), len(arms[first])) > 1:
            less = told(welch(values, [value(found) for found in arms[first]]), "+")
        lines.append(f"| {name} | {', '.join(f'{v:.2f}' for v in values)} | {told(over(values))} | {less} |")
    return "\n".join(lines)


def value(found: Entry) -> float:
    """The measure of an entry."""
    return next(float(cell["mean"]) for name, cell in found.items() if name != "rates" and isinstance(cell, dict))


def over(values: Sequence[float]) -> Estimate:
    """The mean over seeds with Student's interval; of one seed, a value without one."""
    mean = float(np.mean(values))
    if len(values) < 2 or np.ptp(values) == 0:
        return Estimate(mean, mean, mean, len(values))
    reach = scipy.stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * scipy.stats.sem(values)
    return Estimate(mean, mean - reach, mean + reach, len(values))


def told(found: Estimate, sign: str = "") -> str:
    """4.84 (4.46 to 5.21)."""
    if found.low == found.high:
        return f"{found.value:{sign}.2f}"
    return f"{found.value:{sign}.2f} ({found.low:{sign}.2f} to {found.high:{sign}.2f})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
