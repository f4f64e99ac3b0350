"""How fast arms learnt, beside the first: numbers by hand, and where there is nothing to tell."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.metrics.statistics import mean_over, welch
from cluster.report.panels import pace
from cluster.runs.run_data import Run

STEPS = [100, 200, 300, 400]


def run(*success: float, seed: int = 1, **results: Any) -> Run:
    rows = [{"env_steps": step, "success_rate": rate} for step, rate in zip(STEPS, success, strict=False)]
    held_out = {"success": {"rate": 0.5, "low": 0.4, "high": 0.6, "n": 64}} | results
    return Run(Path("run"), {"seed": seed}, {}, {}, [], rows, held_out)


def rows(page: str) -> list[list[str]]:
    plain = unescape(page.replace("\N{NO-BREAK SPACE}", " "))
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", plain, re.DOTALL)][
        1:
    ]


def told(page: str) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in rows(page)}


SCORE = "achievements unlocked"
PLAIN = [run(0.1, 0.2, 0.5, 0.8), run(0.2, 0.3, 0.4, 0.6)]
QUICK = [run(0.5, 0.8, 0.7, 0.9), run(0.4, 0.9, 0.9, 1.0)]


def test_a_difference_is_welchs_of_the_seeds() -> None:
    found = told(pace.panel([*PLAIN, *QUICK], {"plain": PLAIN, "quick": QUICK}))
    means = [
        [mean_over(np.array(STEPS), np.array([r["success_rate"] for r in one.evaluations]), 400) for one in arm]
        for arm in (PLAIN, QUICK)
    ]
    gap = welch(*means)
    assert found["plain"][:2] == [f"{50 * sum(means[0]):.1f} %", "–"]
    assert found["quick"][1] == f"{100 * gap.value:+.1f} % [{100 * gap.low:+.1f} %, {100 * gap.high:+.1f} %]"
    assert found["quick"][2] == "200"
    steps = welch([400, 400], [200, 200])
    assert found["quick"][3].startswith(f"{steps.value:+,.0f} [")


def test_who_never_learnt_counts_with_its_last_step_and_is_told() -> None:
    found = told(pace.panel([*PLAIN, *QUICK], {"plain": PLAIN, "quick": QUICK}))
    assert (found["plain"][2], found["plain"][4], found["quick"][4]) == ("> 400", "1 of 2", "2 of 2")


def test_of_one_seed_no_difference_is_told() -> None:
    found = told(pace.panel([PLAIN[0], QUICK[0]], {"plain": PLAIN[:1], "quick": QUICK[:1]}))
    assert found["quick"][1] == found["quick"][3] == "–"


def test_where_nobody_learnt_no_steps_are_told() -> None:
    slow = [run(0.1, 0.2), run(0.2, 0.3)]
    found = told(pace.panel([*PLAIN[1:] * 2, *slow], {"plain": PLAIN[1:] * 2, "slow": slow}))
    assert found["slow"][2] == found["slow"][3] == "–"
    assert found["slow"][1] != "–"


def test_arms_are_compared_within_their_world() -> None:
    elsewhere = [run(0.9, 1.0, 1.0, 1.0, env="large"), run(0.9, 1.0, 1.0, 1.0, env="large")]
    groups = {"plain": PLAIN, "quick": QUICK, "plain, large": elsewhere, "quick, large": elsewhere}
    found = told(pace.panel([one for group in groups.values() for one in group], groups))
    assert found["quick, large"][1] == "+0.0 % [+0.0 %, +0.0 %]"
    assert found["plain, large"][1] == "–"


@pytest.mark.parametrize(
    "groups",
    [
        {"plain": PLAIN},
        {"plain": PLAIN, "never validated": [run()]},
        {"plain": PLAIN, "not through": [run(0.5, success=None)]},
        {"plain": PLAIN, "elsewhere": [run(0.5, env="large")]},
        {"plain": [run(0.5, score=SCORE)], "other": [run(0.9, score=SCORE)]},
    ],
    ids=["one arm", "one that was validated", "one that is through", "two worlds", "another measure"],
)
def test_nothing_to_compare(groups: dict[str, list[Run]]) -> None:
    assert pace.panel([one for group in groups.values() for one in group], groups) == ""
