"""How fast arms learnt, each beside the first of its world: by the mean of the curve, and by the steps to success."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cluster.metrics.statistics import Curve, Estimate, mean_over, spread_name, welch
from cluster.report.outcome import Arms, largest, measure, overall
from cluster.report.page import rate, section, table, text
from cluster.runs.run_data import Run, seeds, series

SUBJECT, ORDER = "agents", 45
ENOUGH = 0.8
"""Validation success at which a task counts as learnt."""
ENOUGH_SAID = f"{100 * ENOUGH:.0f} %"


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """A table for each world in which several arms are through and their success was validated; "" where none is."""
    if measure(runs).score:
        return ""
    worlds: dict[str, dict[str, list[Run]]] = {}
    for arm, group in groups.items():
        through = [run for run in group if run.success and len(_curve(run)[0])]
        if through:
            worlds.setdefault(through[0].world, {})[arm] = through
    tables = [_table(world, arms) for world, arms in worlds.items() if len(arms) > 1]
    if not tables:
        return ""
    most = largest({arm: group for arms in worlds.values() for arm, group in arms.items()})
    words = (
        f"Validation success while training: its mean, and the step at which it was first {ENOUGH_SAID} or more. A run "
    )
    words += 'that never was counts with its last step, so that an arm with ">" looks faster than it is. Differences: '
    words += "Welch's 95 % interval over seeds. Success at the end: of held-out episodes, "
    return section("Pace", *tables, text(words + spread_name(seeds(most)) + "."))


def _table(world: str, arms: Arms) -> str:
    end = min(_curve(run)[0][-1] for group in arms.values() for run in group)
    first = next(iter(arms))
    rows = []
    for arm, group in arms.items():
        values, reference = ([_mean_to(end, run) for run in part] for part in (group, arms[first]))
        steps, early = ([_steps(run) for run in part] for part in (group, arms[first]))
        late, late_too = (sum(not _reached(run) for run in part) for part in (group, arms[first]))
        never, neither = late == len(group), late + late_too == len(group) + len(arms[first])
        several = arm != first and min(len(group), len(arms[first])) > 1
        rows.append((
            arm,
            _percent(float(np.mean(values))),
            _gap(welch(reference, values), _percent) if several else "–",
            "–" if never else f"{'> ' if late else ''}{_count(float(np.mean(steps)))}",
            _gap(welch(early, steps), _count) if several and not neither else "–",
            f"{len(group) - late} of {len(group)}",
            rate(overall(measure(group).each(group))),
        ))  # fmt: skip
    head = [f"{world}, up to step {end:,.0f}", "mean success", "more than the first", f"env steps to {ENOUGH_SAID}",
            "more than the first", f"reached {ENOUGH_SAID}", "success at the end"]  # fmt: skip
    return table(head, rows)


def _gap(gap: Estimate, show: Callable[[float, str], str]) -> str:
    return f"{show(gap.value, '+')} [{show(gap.low, '+')}, {show(gap.high, '+')}]"


def _curve(run: Run) -> Curve:
    return series(run.evaluations, "success_rate")


def _mean_to(end: float, run: Run) -> float:
    return mean_over(*_curve(run), end)


def _reached(run: Run) -> bool:
    return bool(_curve(run)[1].max() >= ENOUGH)


def _steps(run: Run) -> float:
    """To enough success; where that was never reached, to the end."""
    steps, success = _curve(run)
    return float(steps[np.argmax(success >= ENOUGH)] if _reached(run) else steps[-1])


def _percent(value: float, sign: str = "") -> str:
    return f"{100 * value:{sign}.1f} %"


def _count(value: float, sign: str = "") -> str:
    return f"{value:{sign},.0f}"
