"""What a report says of goals in words: how sensible they were, and which of them were reached.

Counts and shares are those of `cluster/stages/_shared/tally.py`. Several seeds of one setting: counts are summed,
shares averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cluster.metrics.statistics import spread_name
from cluster.report.outcome import FEW_ARMS, Arms, metrics_figure, overall
from cluster.report.page import count, grid, join, percent, section, subtitle, table, text
from cluster.runs.run_data import Run, estimate, number, part, seeds, series

SUBJECT, ORDER = "agents", 70
MOST_GOALS = 30  # rows of a table of goals: a language model may have thought of hundreds

SENSE = {"good": "made sense", "early": "too early", "senseless": "senseless"}
SHARES = SENSE | {"achieved_if_told": "achieved if told", "told_if_possible": "told if sensible"}


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """The section, as HTML; "" where there were no goals."""
    given = {arm: group for arm, group in groups.items() if any(map(_shares, group))}
    if not given:
        return ""
    note = text("Steps are counted in samples; a goal that stands for ten steps counts like ten that stand for one.")
    if len(given) <= FEW_ARMS:
        return section("Goals", *(_arm(i, arm, runs) for i, (arm, runs) in enumerate(given.items())), note)
    rows = [(arm, *(_mean(runs, name) for name in SHARES)) for arm, runs in given.items()]
    return section("Goals", table(["settings", *SHARES.values()], rows), note)


def _arm(place: int, label: str, runs: Sequence[Run]) -> str:
    sense, said = {f"goals/{name}": told for name, told in SENSE.items()}, "What the suggestions were"
    reward, paid = {"rewards/goal": "reward for goals"}, "Reward for goals per step of training."
    drawn = [
        metrics_figure(runs, f"goals-{place}", sense, f"{said} since training began, by steps.", percent=True),
        metrics_figure(runs, f"goal-reward-{place}", reward, paid, zero=True),
    ]
    return join(subtitle(label), text(_sentences(runs)), grid("plots", drawn), _table(runs))


def _sentences(runs: Sequence[Run]) -> str:
    """The shares in plain words, as far as they are known."""
    good, early, senseless, achieved, told = (_mean(runs, name) for name in SHARES)
    found = []
    if good != "–":
        found.append(
            f"{good} of the suggestions made sense when they stood, {early} came too early, "
            f"and {senseless} are no goals of this world."
        )
    if achieved != "–":
        found.append(f"{achieved} of the goals told in an episode were achieved in it.")
    if told != "–":
        found.append(f"{told} of what made sense was suggested.")
    paid = [(run, reward) for run in runs if (reward := estimate(_results(run).get("reward")))]
    if total := overall([reward for _, reward in paid]):
        interval = spread_name(seeds([run for run, _ in paid]), "95 % bootstrap interval over episodes")
        found.append(
            f"The reward for goals is {total.value:.2f} an episode ({interval} {total.low:.2f} to {total.high:.2f})."
        )
    asking = any(part(run.config, "method", "goals").get("source") in ("model", "choice") for run in runs)
    away = [share for run in runs for share in series(run.train, "goals/away")[1].tolist()] if asking else []
    if away:
        lost = percent(sum(away) / len(away))
        found.append(f"While training, {lost} of the steps had no answer of the language model.")
    where = "In held-out episodes" if any(map(_results, runs)) else "While training"
    return f"{where}, {' '.join(found)}"


def _results(run: Run) -> Mapping[str, Any]:
    return part(run.results, "goals")


def _shares(run: Run) -> Mapping[str, Any]:
    """Of the evaluation; of a run without one, as training left them; empty without goals."""
    if isinstance(found := _results(run).get("shares"), Mapping):
        return found
    last = run.train[-1] if run.train else {}
    return {name: last[f"goals/{name}"] for name in SHARES if f"goals/{name}" in last}


def _mean(runs: Sequence[Run], name: str) -> str:
    """A share over some runs, those that are evaluated if any is, or a dash."""
    told = [run for run in runs if _results(run)] or runs
    found = [value for run in told if (value := number(_shares(run).get(name))) is not None]
    return percent(sum(found) / len(found)) if found else "–"


def _table(runs: Sequence[Run]) -> str:
    """What became of each goal, what was paid most first; "" without an evaluation."""
    sums: dict[str, dict[str, float]] = {}
    for run in runs:
        rows = _results(run).get("table")
        for row in rows if isinstance(rows, list) else []:
            total = sums.setdefault(str(row.get("goal")), {})
            for name, value in row.items():
                total[name] = total.get(name, 0.0) + (number(value) or 0.0)
    if not sums:
        return ""
    order = sorted(sums, key=lambda goal: (-sums[goal].get("paid", 0), -sum(sums[goal].values()), goal))
    rows = [(goal, *_cells(sums[goal])) for goal in order[:MOST_GOALS]]
    words = "By goal: steps in which it was told when it made sense, too early, or as no goal of this world; "
    words += "episodes in which it was achieved, of those in which it was told; payments."
    parts = [text(words), table(["goal", "sensible", "early", "senseless", "achieved", "paid"], rows, dense=True)]
    if left := len(order) - len(rows):
        paid = sum(sums[goal].get("paid", 0) for goal in order[MOST_GOALS:])
        parts.append(text(f"{left} more goals were suggested or possible, with {count(paid)} payments in all."))
    return join(*parts)


def _cells(counts: Mapping[str, float]) -> list[str]:
    told = counts.get("episodes_told", 0)
    achieved = f"{count(counts.get('episodes_paid', 0))} of {count(told)}" if told else "–"
    return [*(count(counts.get(name, 0)) for name in SENSE), achieved, count(counts.get("paid", 0))]
