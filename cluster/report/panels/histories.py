"""What a report says of learning histories: how much the learners of all tasks were paid in each part of them.

stages/histories/results.json ──> a row an arm
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
    found = {arm: [told for run in group if (told := _results(run))] for arm, group in groups.items()}
    found = {arm: tables for arm, tables in found.items() if tables}
    if not found:
        return ""
    parts = max(len(told["return"]) for tables in found.values() for told in tables)
    rows = []
    for arm, tables in found.items():
        alike = [told["return"] for told in tables if len(told["return"]) == parts]
        means = [f"{value:.2f}" for value in np.mean(alike, 0)] if alike else ["–"] * parts
        episodes = sum(told["episodes"] for told in tables)
        rows.append((arm or "all runs", tables[0]["learner"], count(episodes), *means))
    head = ["settings", "learner", "episodes", *(str(part + 1) for part in range(parts))]
    words = f"Mean return of an episode, over all tasks, in each of {parts} equal parts of their histories."
    return section("Learning histories", table(head, rows, dense=True), text(words))


def _results(run: Run) -> Mapping[str, Any]:
    return read_mapping(run.folder / "stages" / "histories" / "results.json")
