"""What a report says of those who played the same held-out episodes beside the agent: random actions, the expert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cluster.metrics.statistics import spread_name
from cluster.report.compare import shown
from cluster.report.outcome import Arms, largest, measure, overall
from cluster.report.page import section, table, text
from cluster.runs.run_data import Run, estimate, part, returned, seeds

SUBJECT, ORDER = "agents", 20
NAMES = {"random": "random actions", "expert": "the world's expert"}


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """A table of the agent and of who played beside it, as HTML; "" where nobody did."""
    players = sorted({player for run in runs for player in _beside(run)})
    if not players:
        return ""
    judge = measure(runs)
    rows: list[tuple[str, ...]] = []
    for arm, group in groups.items():
        rows.append((arm or "the agent", judge.cell(overall(judge.each(group))), "–"))
        for player in players:
            tables = [_beside(run)[player] for run in group if player in _beside(run)]
            found = [e for of in tables if (e := returned(of) if judge.score else estimate(of.get("success")))]
            gains = [e for of in tables if (e := estimate(of.get("difference")))]
            name = NAMES.get(player, player)
            gain = overall(gains)
            told = shown(gain, judge.score, sign="+") if gain else "–"
            rows.append((f"{arm}: {name}" if arm else name, judge.cell(overall(found)), told))
    most = largest(groups)
    words = f"All played the same episodes. Brackets: {judge.spread(most)}; of a difference: "
    words += f"{spread_name(seeds(most), '95 % bootstrap interval over episodes, paired')}."
    return section("Beside others", table(["who", judge.name, "the agent is better by"], rows), text(words))


def _beside(run: Run) -> Mapping[str, Mapping[str, Any]]:
    return part(run.results, "beside")
