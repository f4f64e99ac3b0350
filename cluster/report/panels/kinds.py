"""Held-out success by kind of task."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.metrics.statistics import spread_name
from cluster.report.outcome import Arms, by_kind, kinds_figure, kinds_of, largest, overall
from cluster.report.page import count, rate, section, table, text
from cluster.runs.run_data import Run, seeds

SUBJECT, ORDER = "agents", 50


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """The section, as HTML; "" where no evaluate stage is finished, and of worlds with a score and one kind."""
    found = {arm: by_kind(group) for arm, group in groups.items()}
    kinds = kinds_of(found)
    if not kinds:
        return ""
    rows = []
    for kind in kinds:
        for arm, entries in found.items():
            total = overall(entries.get(kind, []))
            rows.append((kind, *([arm] if len(groups) > 1 else []), rate(total), count(total.n if total else None)))
    head = ["task kind", *(["settings"] if len(groups) > 1 else []), "success", "episodes"]
    words = f"Whiskers and brackets: {spread_name(seeds(largest(groups)))}."
    return section("Success by task kind", kinds_figure(found), table(head, rows), text(words))
