"""Success of runs, over training and by task kind: the numbers and the figures that report and comparison share.

An arm is a label and its runs, seeds of one setting, which are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cluster import plots
from cluster.page import figure, grid
from cluster.run_data import Run, estimate, series
from cluster.statistics import Estimate, band, binned, over_seeds

FEW_ARMS = 3
"""Up to so many arms, the curves of training are drawn too."""

Arms = Mapping[str, Sequence[Run]]
Kinds = dict[str, list[Estimate]]
"""Held-out success by task kind: an estimate for each seed."""


def successes(runs: Sequence[Run]) -> list[Estimate]:
    """Held-out success of each evaluated run."""
    return [found for run in runs if (found := run.success)]


def overall(found: Sequence[Estimate]) -> Estimate | None:
    """One estimate from one per seed; None from none."""
    return over_seeds(found) if found else None


def by_kind(runs: Sequence[Run]) -> Kinds:
    """Held-out success of each task kind in each run that has it."""
    found: Kinds = {}
    for run in runs:
        kinds = run.results.get("by_kind")
        for kind, entry in kinds.items() if isinstance(kinds, Mapping) else ():
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
    """Validation and training success against env steps and against minutes; "" when none was recorded."""
    drawn = []
    for x, label in (("env_steps", "env steps"), ("wall_seconds", "minutes")):
        lines = [line for i, (arm, runs) in enumerate(arms.items()) for line in _lines(arm, runs, x, i, len(arms) == 1)]
        if len(arms) > FEW_ARMS:
            lines = [line for line in lines if not line.label.endswith(": training")] or lines
        if not lines:
            return ""
        every = [run for runs in arms.values() for run in runs]
        if len(every) == 1:
            lines += _held_out(every[0], x)
        svg = plots.curves(f"success-{x}", lines, title=f"Success rate over {label}", x_label=label, percent=True)
        drawn.append(figure(svg, f"Success rate against {label}."))
    return grid("plots", drawn)


def _lines(label: str, runs: Sequence[Run], x: str, colour: int, alone: bool) -> list[plots.Line]:
    """Lines of one arm. Two kinds of success get a colour each where it is alone, else the dash tells them apart."""
    prefix = f"{label}: " if label else ""
    validated = [(r, curve) for r in runs if len((curve := series(r.evaluations, "success_rate", x))[0])]
    validation = [curve for _, curve in validated]
    training = [binned(*curve) for r in runs if len((curve := series(r.train, "charts/success_rate", x))[0])]
    lines: list[plots.Line] = []
    if len(validation) == 1:
        ends = _intervals(validated[0][0], x)
        lines.append(plots.Line(f"{prefix}validation", *validation[0], *ends, colour=colour, marker="o"))
    elif validation:
        lines.append(plots.Line(f"{prefix}validation", *band(validation), colour=colour))
        lines += [plots.Line("", *curve, colour=colour, faint=True) for curve in validation]
    if len(training) == 1:
        lines.append(plots.Line(f"{prefix}training", *training[0], colour=colour + alone, dash=1))
    elif training:
        lines.append(plots.Line(f"{prefix}training", *band(training), colour=colour + alone, dash=1))
    return lines


def _intervals(run: Run, x: str) -> tuple[plots.Array, plots.Array]:
    """Lower and upper ends around the validation curve; Wilson's where the rows have none."""
    rows = []
    for row in run.evaluations:
        found = estimate({
            "n": row.get("episodes"), "rate": row.get("success_rate"),
            "low": row.get("success_low"), "high": row.get("success_high"),
        })  # fmt: skip
        rows.append({x: row.get(x), "low": found.low, "high": found.high} if found else {})
    return series(rows, "low", x)[1], series(rows, "high", x)[1]


def _held_out(run: Run, x: str) -> list[plots.Line]:
    """The held-out result at the end of the curve, with its interval."""
    end = run.env_steps if x == "env_steps" else run.minutes
    if not (found := run.success) or end is None:
        return []
    place, value, low, high = (np.array([v]) for v in (end, found.value, found.low, found.high))
    return [plots.Line("held-out", place, value, low, high, colour=2, marker="D")]
