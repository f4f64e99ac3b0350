"""Do robots follow texts about routes? The table of some runs of `lgqd`, arms and seeds together.

    python -m benchmarks.lgqd RUN ... [--json benchmarks/results/lgqd.json]

Each RUN is a folder with a finished stage deploy. Runs of one seed are arms of the same trials (`from=` of one run),
which are compared trial by trial. The file is a list of {arm, trials, metric, value, low, high, seeds, n}; measures and
intervals are those of `cluster/metrics/following.py`. What is printed is its table for the page of the method.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.numpy

from cluster.metrics import following
from cluster.metrics.following import CASES, METRICS, Played, Seed
from cluster.report.deployed import find_stage
from cluster.runs.run_data import Run, load, read_mapping
from learner.behaviours import trials
from learner.behaviours.baselines import BASELINES
from learner.behaviours.trials import Trial
from llm_service.errors import UsageError

ARMS = (*following.ARMS.values(), *BASELINES)


def main(words: Sequence[str]) -> int:
    """The command. Exit codes: 0 done, 2 a run cannot be read or does not fit the others."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lgqd", description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    given = parser.parse_args(words)
    try:
        rows = following.rows(collect([load(folder) for folder in given.runs]))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.json:
        given.json.write_text("[\n" + ",\n".join(json.dumps(rounded(row)) for row in rows) + "\n]\n")
    print(table(rows))
    return 0


def collect(runs: Sequence[Run]) -> list[Seed]:
    """The runs by their seeds.

    Raises:
        UsageError: a run has no trials that were played, is one arm twice, or has other trials than its seed's arms.
    """
    asked: dict[int, list[Trial]] = {}
    arms: dict[int, dict[str, Played]] = {}
    for run in runs:
        split, deploy, seed = find_stage(run, "split"), find_stage(run, "deploy"), int(run.config.get("seed") or 0)
        if split is None or deploy is None:
            raise UsageError(f"run {run.name!r} has no finished stage deploy: name runs that were tried on trials")
        own, results = trials.load(split), read_mapping(deploy / "results.json")
        if asked.setdefault(seed, own) != own:
            raise UsageError(f"run {run.name!r} has other trials than another run of seed {seed}: take `from=` of one")
        arm = str(results.get("arm"))
        if arm in arms.setdefault(seed, {}):
            raise UsageError(f"run {run.name!r} is the second of arm {arm} and seed {seed}: name one of them")
        path = deploy / "episodes.safetensors"
        try:
            arrays, diagonal = safetensors.numpy.load_file(path), float(results["diagonal"])
            arms[seed][arm] = following.played(arrays, diagonal)
            for name in BASELINES:
                arms[seed].setdefault(name, following.played(arrays, diagonal, name))
        except (OSError, KeyError, safetensors.SafetensorError) as error:
            raise UsageError(f"{path} cannot be read: {error}; run the stage deploy again") from None
    return [Seed(seed, asked[seed], arms[seed]) for seed in sorted(asked)]


def rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with four digits after the point."""
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a line for each set of trials and arm, a column for each measure."""
    cells = {(row["trials"], row["arm"], row["metric"]): row for row in rows}
    arms = [arm for arm in (*ARMS, *(f"text - {arm}" for arm in ARMS)) if any(row["arm"] == arm for row in rows)]
    lines = [f"| trials | arm | {' | '.join(METRICS)} |", "|---" * (2 + len(METRICS)) + "|"]
    for case, *_ in CASES:
        for arm in arms:
            own = [cells.get((case, arm, metric)) for metric in METRICS]
            if any(own):
                told = [f"{row['value']:.3f} ({row['low']:.3f} to {row['high']:.3f})" if row else "" for row in own]
                lines.append(f"| {case} | {arm} | {' | '.join(told)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
