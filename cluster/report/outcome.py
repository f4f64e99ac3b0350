"""What came out of runs, over training, at the end and by task kind: what report and comparison share.

What counts is success, or the score of a world whose return says more (`Measure`). An arm is a label and its runs,
seeds of one setting, which are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.metrics.statistics import Estimate, band, binned, over_seeds, spread_name
from cluster.report import plots
from cluster.report.page import decimal, figure, grid, percent, rate
from cluster.runs.run_data import Run, estimate, part, seeds, series

FEW_ARMS = 3  # up to so many arms, the curves of training are drawn too

Arms = Mapping[str, Sequence[Run]]
Kinds = dict[str, list[Estimate]]
"""Held-out success by task kind: an estimate for each seed."""


@dataclass(frozen=True)
class Measure:
    """What runs are judged by.

    score: what an episode's return counts, such as "achievements unlocked"; "" where success is what counts.
    """

    score: str = ""

    @property
    def name(self) -> str:
        """At the head of a column."""
        return self.score or "success"

    def of(self, run: Run) -> Estimate | None:
        """Of the finished agent in held-out episodes: a rate in [0, 1], or a mean return."""
        return run.mean_return if self.score else run.success

    def each(self, runs: Sequence[Run]) -> list[Estimate]:
        """Of each evaluated run."""
        return [found for run in runs if (found := self.of(run))]

    def number(self, value: float) -> str:
        """97.3 %, or 2.22."""
        return f"{value:.2f}" if self.score else percent(value)

    def range(self, found: Estimate) -> str:
        """95.5 to 98.4 %, or 1.84 to 2.56."""
        low, high = found.low, found.high
        return f"{low:.2f} to {high:.2f}" if self.score else f"{100 * low:.1f} to {100 * high:.1f} %"

    def cell(self, found: Estimate | None) -> str:
        """97.3 % [95.5, 98.4], or 2.22 [1.84, 2.56], or a dash."""
        return decimal(found) if self.score else rate(found)

    def spread(self, runs: Sequence[Run]) -> str:
        """What the interval of an estimate over runs is, in words."""
        interval = "95 % bootstrap interval over episodes" if self.score else "95 % Wilson interval"
        return spread_name(seeds(runs), interval)


def measure(runs: Sequence[Run]) -> Measure:
    """What all these runs can be judged by: their score, where they have the same."""
    scores = {run.score for run in runs}
    return Measure(scores.pop() if len(scores) == 1 else "")


def overall(found: Sequence[Estimate]) -> Estimate | None:
    """One estimate from one per seed; None from none."""
    return over_seeds(found) if found else None


def largest(arms: Arms) -> Sequence[Run]:
    """The runs of the arm that has most."""
    return max(arms.values(), key=len)


def by_kind(runs: Sequence[Run]) -> Kinds:
    """Held-out success of each task kind in each run that has it; of a world with a score, if there are several."""
    found: Kinds = {}
    for run in runs:
        kinds = part(run.results, "by_kind")
        for kind, entry in kinds.items() if not run.score or len(kinds) > 1 else ():
            if value := estimate(entry):
                found.setdefault(str(kind), []).append(value)
    return found


def kinds_of(found: Mapping[str, Kinds]) -> list[str]:
    """All task kinds of some arms."""
    return list(dict.fromkeys(kind for kinds in found.values() for kind in kinds))


def kinds_figure(found: Mapping[str, Kinds]) -> str:
    """Bars of held-out success: a row for each task kind, a bar for each arm."""
    names = kinds_of(found)
    groups = [(arm, [overall(kinds.get(name, [])) for name in names]) for arm, kinds in found.items()]
    return figure(plots.bars("kinds", names, groups, title="Success by task kind"), "Held-out success by task kind.")


def learning_figures(arms: Arms) -> str:
    """Validation and training against env steps and against minutes; "" when nothing was recorded."""
    every = [run for runs in arms.values() for run in runs]
    judged, drawn = measure(every), []
    words = f"{judged.score.capitalize()} in an episode" if judged.score else "Success rate"
    for x, label in (("env_steps", "env steps"), ("wall_seconds", "minutes")):
        lines = [
            line
            for i, (arm, runs) in enumerate(arms.items())
            for line in _lines(judged, arm, runs, x, i, len(arms) == 1)
        ]
        if len(arms) > FEW_ARMS:
            lines = [line for line in lines if not line.label.endswith(": training")] or lines
        if not lines:
            return ""
        if len(every) == 1:
            lines += _held_out(judged, every[0], x)
        svg = plots.curves(
            f"outcome-{x}", lines, title=f"{words} over {label}", x_label=label,
            percent=not judged.score, zero=bool(judged.score),
        )  # fmt: skip
        drawn.append(figure(svg, f"{words} against {label}."))
    return grid("plots", drawn)


def metrics_figure(runs: Sequence[Run], name: str, keys: Mapping[str, str], caption: str, **style: Any) -> str:
    """Metrics of training over env steps, with bands over seeds; "" when no run has any of them.

    keys: labels by metric. style: as `plots.curves` takes it.
    """
    lines: list[plots.Line] = []
    for i, (key, label) in enumerate(keys.items()):
        curves = [series(run.train, key) for run in runs]
        found = [binned(*curve, largest=key.endswith("_max")) for curve in curves if len(curve[0])]
        if len(found) == 1:
            lines.append(plots.Line(label, *found[0], colour=i, dash=i))
        elif found:
            lines.append(plots.Line(label, *band(found), colour=i, dash=i))
    return figure(plots.curves(name, lines, title=caption, x_label="env steps", **style), caption) if lines else ""


def _lines(judged: Measure, label: str, runs: Sequence[Run], x: str, colour: int, alone: bool) -> list[plots.Line]:
    """Lines of one arm. Two kinds of episodes get a colour each where it is alone, else the dash tells them apart."""
    prefix = f"{label}: " if label else ""
    key = "episodic_return" if judged.score else "success_rate"
    validated = [(r, curve) for r in runs if len((curve := series(r.evaluations, key, x))[0])]
    validation = [curve for _, curve in validated]
    training = [binned(*curve) for r in runs if len((curve := series(r.train, f"charts/{key}", x))[0])]
    lines: list[plots.Line] = []
    if len(validation) == 1:
        low, high = _intervals(judged, validated[0][0], x)
        lines.append(plots.Line(f"{prefix}validation", *validation[0], low, high, colour=colour, marker="o"))
    elif validation:
        lines.append(plots.Line(f"{prefix}validation", *band(validation), colour=colour))
        lines += [plots.Line("", *curve, colour=colour, faint=True) for curve in validation]
    if len(training) == 1:
        lines.append(plots.Line(f"{prefix}training", *training[0], colour=colour + alone, dash=1))
    elif training:
        lines.append(plots.Line(f"{prefix}training", *band(training), colour=colour + alone, dash=1))
    return lines


def _intervals(judged: Measure, run: Run, x: str) -> tuple[plots.Array | None, plots.Array | None]:
    """Lower and upper ends around the validation curve; where the rows have none, Wilson's of a rate, else None."""
    if judged.score:
        if any("return_low" not in row for row in run.evaluations):
            return None, None
        return series(run.evaluations, "return_low", x)[1], series(run.evaluations, "return_high", x)[1]
    rows = []
    for row in run.evaluations:
        found = estimate({
            "n": row.get("episodes"), "rate": row.get("success_rate"),
            "low": row.get("success_low"), "high": row.get("success_high"),
        })  # fmt: skip
        rows.append({x: row.get(x), "low": found.low, "high": found.high} if found else {})
    return series(rows, "low", x)[1], series(rows, "high", x)[1]


def _held_out(judged: Measure, run: Run, x: str) -> list[plots.Line]:
    """The held-out result at the end of the curve, with its interval."""
    end = run.env_steps if x == "env_steps" else run.minutes
    if not (found := judged.of(run)) or end is None:
        return []
    place, value, low, high = (np.array([v]) for v in (end, found.value, found.low, found.high))
    return [plots.Line("held-out", place, value, low, high, colour=2, marker="D")]
