"""Learning curves."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.metrics.statistics import spread_name
from cluster.report.outcome import Arms, largest, learning_figures, measure
from cluster.report.page import section, text
from cluster.runs.run_data import Run, seeds

SUBJECT, ORDER = "agents", 40


def panel(runs: Sequence[Run], groups: Arms) -> str:
    figures, judge = learning_figures(groups), measure(runs)
    if not figures:
        return section("Learning curve", text(f"No {judge.score or 'success rate'} was recorded while training."))
    if len(most := largest(groups)) == 1:
        interval = judge.spread(most)
        words = f"The band around the validation curve and the whisker at its end: {interval}."
    else:
        words = f"Lines are means over runs, interpolated where all have data; bands: {spread_name(seeds(most))}."
        words += " Thin lines are single runs."
    return section("Learning curve", figures, text(words))
