"""What came out in the end, of each setting: held-out success or score, or the returns of the first and last trial.

Runs that neither train an agent nor judge one have no headline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cluster.report.calibration import comparison
from cluster.report.outcome import FEW_ARMS, Arms, largest, measure, overall
from cluster.report.page import count, headline, join, section, span, subtitle, table, text, tiles
from cluster.report.panels.knowledge import extraction
from cluster.report.panels.trials import BAND, own
from cluster.runs.run_data import Run, seeds

SUBJECT, ORDER = "agents", 10
MEMORIES = {"own": "a memory of its own", "others": "memories of others", "none": "no memory"}
"""What `method.trials.memory` is, in words."""
SHOWN = "a memory that holds its planner's episode"
"""The same of the arm that is shown one."""


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """The headlines of a few settings, a table of many, as HTML; "" where there is nothing that could have one."""
    # No task was told, or none was played, so that none was solved.
    if all((extraction(run.folder) or comparison(run)) and not run.results for run in runs):
        return ""
    if len(groups) <= FEW_ARMS:
        return section("", *(_headline(arm, group) for arm, group in groups.items()))
    judge = measure(runs)
    if not judge.each(runs):
        return ""
    rows = [
        (arm, judge.cell(overall(judge.each(group))), len(group), span(r.env_steps for r in group))
        for arm, group in groups.items()
    ]
    head = ["settings", judge.name, "runs", "env steps a run"]
    words = f"Brackets: {judge.spread(largest(groups))}."
    return section(f"Held-out {judge.name}", table(head, rows), text(words))


def _headline(label: str, runs: Sequence[Run]) -> str:
    judge = measure(runs)
    found = judge.each(runs)
    parts: list[str] = [subtitle(label)]
    total, facts = overall(found), dict[str, str]()
    if total:
        what = f"{judge.score} in a held-out episode" if judge.score else "of held-out episodes solved"
        parts.append(headline(judge.number(total.value)))
        evaluated = [run for run in runs if judge.of(run)]
        parts.append(text(f"{what}, {judge.spread(evaluated)} {judge.range(total)}{_acting(runs)}."))
        if len(found) < len(runs):
            parts.append(text(f"{len(found)} of {len(runs)} runs are evaluated."))
    elif played := own(runs):
        parts.append(_played(judge.score or "return", *played))
        facts = {name: count(played[0].get(name)) for name in ("trials", "tasks")}
    elif any(run.train for run in runs):
        parts.append(text(f"There is no finished evaluate stage, and so no held-out {judge.name}."))
    each = " a run" if len(runs) > 1 else ""
    different = len(set(seeds(runs)))
    facts |= {
        "held-out episodes": count(total.n if total else None),
        f"env steps{each}": span(r.env_steps for r in runs),
        f"wall minutes{each}": span((r.minutes for r in runs), ",.1f"),
        **({"runs": str(len(runs))} if different < len(runs) else {}),
        "training seeds": str(different),
    }
    return join(*parts, tiles({name: value for name, value in facts.items() if value != "–"}))


def _played(what: str, told: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    """Of trials: the first and the last."""
    first, last = (figures[name] for name in ("first", "last"))
    before, after = (f"{at['mean']:.2f} ({at['low']:.2f} to {at['high']:.2f})" for at in (first, last))
    words = f"{what} in an episode: {before} in the first trial, {after} in trial {len(figures['curve']['mean'])}, "
    words += "without a change of weights. "
    shown = told["arm"] == "oracle_chunk" and told["memory"] == "own"
    words += f"Arm {told['arm']}, {SHOWN if shown else MEMORIES[told['memory']]}. Intervals: {BAND}."
    return join(headline(f"{first['mean']:.2f} → {last['mean']:.2f}"), text(words))


def _acting(runs: Sequence[Run]) -> str:
    players = {str(r.results.get("player") or "policy") for r in runs}
    if players != {"policy"}:
        return f", played by {' and '.join(sorted(players))}"
    greedy = {r.results.get("greedy") for r in runs} - {None}
    if len(greedy) != 1:
        return ""
    return ", taking the most likely action" if greedy.pop() else ", actions drawn from the policy"
