"""What a report says of learning histories: how much the learners of all tasks were paid in each part of them.

stages/histories/results.json ──> a row an arm, and of an arm for each learner and number of parts that it has
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster.report.outcome import Arms
from cluster.report.page import count, section, table, text
from cluster.runs.run_data import Run, read_mapping

SUBJECT, ORDER = "agents", 25


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """Mean returns, as HTML; "" where there are no histories."""
    alike: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for arm, group in groups.items():
        for run in group:
            if told := _results(run):
                alike.setdefault((arm, told["learner"], len(told["return"])), []).append(told)
    if not alike:
        return ""
    most = max(parts for *_, parts in alike)
    rows = []
    for (arm, learner, parts), tables in alike.items():
        means = [f"{value:.2f}" for value in np.mean([told["return"] for told in tables], 0)]
        episodes = sum(told["episodes"] for told in tables)
        rows.append((arm or "all runs", learner, count(episodes), *means, *["–"] * (most - parts)))
    head = ["settings", "learner", "episodes", *(str(part + 1) for part in range(most))]
    words = (
        "Mean return of an episode, over all tasks, in each part of their histories, from the first on. Parts are as "
        "long as each other, or an episode longer; a history of few episodes has a part for each."
    )
    return section("Learning histories", table(head, rows, dense=True), text(words))


def _results(run: Run) -> Mapping[str, Any]:
    return read_mapping(run.folder / "stages" / "histories" / "results.json")
