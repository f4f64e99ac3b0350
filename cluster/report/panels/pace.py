"""How fast several arms learnt, each beside the first: by the mean of the curve, and by the steps to enough success."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cluster.metrics.statistics import Curve, mean_over, spread_name, welch
from cluster.report.outcome import Arms, largest, measure, overall
from cluster.report.page import rate, section, table, text
from cluster.runs.run_data import Run, seeds, series

SUBJECT, ORDER = "agents", 45
ENOUGH = 0.8
"""Validation success at which a task counts as learnt."""


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """A table of arms whose success was validated while they trained, as HTML; "" where fewer than two have it."""
    if measure(runs).score:
        return ""
    found = {arm: part for arm, group in groups.items() if (part := [run for run in group if len(_curve(run)[0])])}
    if len(found) < 2:
        return ""
    end = min(_curve(run)[0][-1] for part in found.values() for run in part)
    first, *_ = found
    rows = []
    for arm, part in found.items():
        row = [arm]
        for of, show in ((_mean_to(end), _percent), (_steps, _count)):
            values, reference = ([of(run) for run in group] for group in (part, found[first]))
            several = min(len(values), len(reference)) > 1 and arm != first
            row += [show(float(np.mean(values)), ""), "–"]
            if several:
                gap = welch(reference, values)
                row[-1] = f"{show(gap.value, '+')} [{show(gap.low, '+')}, {show(gap.high, '+')}]"
        late = sum(_curve(run)[1].max() < ENOUGH for run in part)
        rows.append((*row, f"{len(part) - late} of {len(part)}", rate(overall(measure(runs).each(part)))))
    enough = f"{100 * ENOUGH:.0f} %"
    head = ["arm", "mean success", "more than the first", f"env steps to {enough}", "more than the first",
            f"reached {enough}", "success at the end"]  # fmt: skip
    words = f"Validation success while training: its mean up to step {end:,.0f}, and the step at which it was first "
    words += f"{enough} or more. A run that never was counts with its last step, so that slow arms look faster than "
    words += "they are. Differences: Welch's 95 % interval over seeds. Success at the end: of held-out episodes, "
    return section("Pace", table(head, rows), text(words + spread_name(seeds(largest(found))) + "."))


def _curve(run: Run) -> Curve:
    return series(run.evaluations, "success_rate")


def _mean_to(end: float) -> Callable[[Run], float]:
    return lambda run: mean_over(*_curve(run), end)


def _steps(run: Run) -> float:
    """To enough success; where that was never reached, to the end."""
    steps, success = _curve(run)
    return float(steps[np.argmax(success >= ENOUGH)] if success.max() >= ENOUGH else steps[-1])


def _percent(value: float, sign: str) -> str:
    return f"{100 * value:{sign}.1f} %"


def _count(value: float, sign: str) -> str:
    return f"{value:{sign},.0f}"
