"""What became of goals: counts by goal, from actors and evaluations, as shares and as a table.

Counts are those of `actors.wrappers.goals.COUNTS`. Suggestions are counted by steps: a goal that stands for ten
steps counts like ten that stand for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from actors.wrappers.goals import COUNTS

Counts = dict[str, list[int]]


def add(total: Counts, more: Mapping[str, Sequence[int]]) -> None:
    """Add `more` to `total`."""
    for goal, row in more.items():
        total[goal] = [a + b for a, b in zip(total.get(goal, [0] * len(COUNTS)), row, strict=True)]


def shares(counts: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Over all goals, each in [0, 1]; a share of nothing is left out.

    good, early, senseless: of the suggestions.
    achieved_if_told: of the goals told in an episode, those paid in it; P(achieved | suggested).
    told_if_possible: of the goals that made sense, those told; P(suggested | oracle).
    """
    rows = np.array(list(counts.values()), np.int64).reshape(-1, len(COUNTS))
    sums = dict(zip(COUNTS, rows.sum(0).tolist(), strict=True))
    told = sums["good"] + sums["early"] + sums["senseless"]
    of = {name: (sums[name], told) for name in ("good", "early", "senseless")}
    of["achieved_if_told"] = sums["episodes_paid"], sums["episodes_told"]
    of["told_if_possible"] = sums["possible_told"], sums["possible"]
    return {name: part / whole for name, (part, whole) in of.items() if whole}


def table(counts: Mapping[str, Sequence[int]]) -> list[dict[str, float | str]]:
    """One row a goal, what was paid most first: its counts by name."""
    paid = COUNTS.index("paid")
    order = sorted(counts, key=lambda goal: (-counts[goal][paid], -sum(counts[goal]), goal))
    return [{"goal": goal} | dict(zip(COUNTS, counts[goal], strict=True)) for goal in order]
