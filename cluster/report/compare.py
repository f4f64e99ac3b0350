"""Two runs, or two sweeps over seeds, side by side: what was set differently, what came out, and how sure that is.

Positive differences mean that B has more. The verdict is about held-out episodes: their success, or the score of worlds
whose return says more. With two or more seeds on both sides it rests on the spread between seeds; otherwise on
episodes, and then it is about the trained agents at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cluster.config.overrides import flatten
from cluster.metrics.statistics import Estimate, counted, difference, welch, wilson
from cluster.report import page
from cluster.report.outcome import Measure, by_kind, kinds_figure, kinds_of, learning_figures, measure, overall
from cluster.runs.run_data import Run, arms, expand, number, seeds, series
from llm_service.errors import UsageError

ENOUGH = 0.9
"""Validation success that counts as having learnt the task, for "how long did it take"."""

Cells = tuple[str, str, str, str]


@dataclass(frozen=True)
class Side:
    """The runs of one side: several are seeds of one setting."""

    name: str
    runs: list[Run]


@dataclass(frozen=True)
class Verdict:
    """One sentence, what it rests on, and the difference B - A where there is one."""

    sentence: str
    basis: str
    difference: Estimate | None = None


def compare(a: Path, b: Path) -> Path:
    """Print the comparison of two run (or sweep) folders; write it with curves to `<a>/compare-<a>-vs-<b>.html`.

    Raises:
        UsageError: a folder is not a run folder, or a sweep over more than seeds.
    """
    first, second = _side(a), _side(b)
    path = Path(a) / f"compare-{first.name}-vs-{second.name}.html"
    page.save(path, f"{first.name} vs {second.name}", _page(first, second))
    _print(first, second, path)
    return path


def _side(folder: Path) -> Side:
    folder = Path(folder)
    runs, _ = expand([folder])
    if len(found := arms(runs)) > 1:
        settings = "; ".join(found)
        raise UsageError(f"{folder} mixes settings ({settings}): compare two of its runs, or sweeps over seeds alone")
    return Side(folder.resolve().name, runs)


def changed(a: Run, b: Run) -> list[tuple[str, str, str]]:
    """Dotted keys with unequal values, and both values; "(absent)" where one has no such key."""
    before, after = flatten(a.config), flatten(b.config)
    keys = list(dict.fromkeys([*before, *after]))
    rows = [(key, _shown(before, key), _shown(after, key)) for key in keys if key != "run.name"]
    return [row for row in rows if row[1] != row[2]]


def _shown(config: dict[str, Any], key: str) -> str:
    return str(config[key]) if key in config else "(absent)"


def verdict(a: Side, b: Side) -> Verdict:
    """Which side does better in held-out episodes, in plain words."""
    judges = [measure(side.runs) for side in (a, b)]
    first, second = (judge.each(side.runs) for judge, side in zip(judges, (a, b), strict=True))
    if not first or not second:
        without = " and ".join(name for name, found in (("A", first), ("B", second)) if not found)
        return Verdict(f"no verdict: {without} has no held-out evaluation", "Run the evaluate stage first.")
    worlds = [", ".join(sorted({run.world for run in side.runs})) for side in (a, b)]
    if worlds[0] != worlds[1]:
        return Verdict(
            f"no verdict: A was evaluated on {worlds[0]}, B on {worlds[1]}", "Numbers of two worlds differ anyway."
        )
    if judges[0] != judges[1]:
        names = [judge.name for judge in judges]
        return Verdict(f"no verdict: A is judged by {names[0]}, B by {names[1]}", "Their tasks are not the same.")
    return _judge(judges[0], a, b)


def gap(judge: Measure, first: Sequence[Estimate], second: Sequence[Estimate]) -> Estimate:
    """`B - A`: Welch's interval where both sides have two seeds, else from pooled episodes; of rates, Newcombe's."""
    if min(len(first), len(second)) >= 2:
        over = welch([e.value for e in first], [e.value for e in second])
        # Seeds that agree to the last episode say nothing about their spread.
        if over.high > over.low:
            return over if judge.score else Estimate(over.value, max(-1.0, over.low), min(1.0, over.high))
    return difference(_pooled(judge, first), _pooled(judge, second))


def _pooled(judge: Measure, found: Sequence[Estimate]) -> Estimate:
    """All episodes of some runs as if they were one run's."""
    if len(found) == 1:
        return found[0]
    n, values = _n(found), np.array([e.value for e in found])
    weights = np.array([e.n for e in found]) / max(n, 1)
    value = float(weights @ values)
    if not judge.score:
        return Estimate(value, *wilson(min(value * n, n), n), n)
    below, above = values - [e.low for e in found], np.array([e.high for e in found]) - values
    return Estimate(
        value, value - float(np.hypot.reduce(weights * below)), value + float(np.hypot.reduce(weights * above)), n
    )


def _judge(judge: Measure, a: Side, b: Side) -> Verdict:
    first, second = judge.each(a.runs), judge.each(b.runs)
    between, several = gap(judge, first, second), min(len(first), len(second)) >= 2
    told = [counted(seeds([run for run in side.runs if judge.of(run)])) for side in (a, b)]
    kind = "bootstrap" if judge.score else "Newcombe"
    basis = (
        f"95 % Welch interval over {told[0]} and {told[1]} of training."
        if several
        else f"95 % {kind} interval over episodes. Another training seed may come out differently by more than that: "
        "for a statement about the settings, compare sweeps over seeds."
    )
    if between.low > 0:
        return Verdict(f"B is better: {_told(judge, between)}", basis, between)
    if between.high < 0:
        turned = Estimate(-between.value, -between.high, -between.low)
        return Verdict(f"A is better: {_told(judge, turned)}", basis, between)
    if several:
        rests = f"{told[0]} each" if told[0] == told[1] else f"{told[0]} against {told[1]}"
    else:
        rests = f"{_n(first)} episodes" + ("" if _n(first) == _n(second) else f" against {_n(second)}")
    return Verdict(f"no difference that {rests} can show: {_told(judge, between)}", basis, between)


def _n(found: Sequence[Estimate]) -> int:
    return sum(e.n for e in found)


def _told(judge: Measure, between: Estimate) -> str:
    return shown(between, judge.score, f" {judge.score}")


def shown(between: Estimate, score: str, words: str = "", sign: str = "") -> str:
    """Of rates, 0.041 in [0.010, 0.072] -> +4.1 points [1.0, 7.2]; of scores, +0.04 [0.01, 0.07], words in between.

    sign: "+" shows that of positive ends too.
    """
    value, low, high = between.value, between.low, between.high
    if score:
        return f"{value:+.2f}{words} [{low:{sign}.2f}, {high:{sign}.2f}]"
    return f"{100 * value:+.1f} points [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


def final(a: Side, b: Side) -> list[Cells]:
    """Rows (what, A, B, B - A): results with intervals, and what they cost."""
    judge = measure([*a.runs, *b.runs])
    rows = [_row(judge, f"held-out {judge.name}", judge.each(a.runs), judge.each(b.runs))]
    costs = dict(_COSTS)
    if judge.score:
        del costs[_TO_LEARN], costs[_EFFICIENCY]
    else:
        rows.append(_returns(a, b))
    return rows + [_cost(words, *(_mean(side, value) for side in (a, b))) for words, value in costs.items()]


def kinds(a: Side, b: Side) -> list[Cells]:
    """Rows (kind, A, B, B - A) of held-out success by task kind; empty without results."""
    found = _by_kind(a, b)
    return [_row(Measure(), kind, *(entries.get(kind, []) for entries in found.values())) for kind in kinds_of(found)]


def _by_kind(a: Side, b: Side) -> dict[str, dict[str, list[Estimate]]]:
    return {"A": by_kind(a.runs), "B": by_kind(b.runs)}


def _row(judge: Measure, words: str, first: Sequence[Estimate], second: Sequence[Estimate]) -> Cells:
    between = shown(gap(judge, first, second), judge.score) if first and second else "–"
    return words, judge.cell(overall(first)), judge.cell(overall(second)), between


def _returns(a: Side, b: Side) -> Cells:
    first, second = ([e for run in side.runs if (e := run.mean_return)] for side in (a, b))
    totals = overall(first), overall(second)
    between = None
    if min(len(first), len(second)) >= 2:
        between = welch([e.value for e in first], [e.value for e in second])
    elif totals[0] and totals[1]:
        between = difference(totals[0], totals[1])
    return "return", page.decimal(totals[0], 3), page.decimal(totals[1], 3), page.decimal(between, 3, "+")


def _learnt(run: Run) -> float | None:
    steps, success = series(run.evaluations, "success_rate")
    reached = np.flatnonzero(success >= ENOUGH)
    return float(steps[reached[0]]) if len(reached) else None


_TO_LEARN = f"env steps to {100 * ENOUGH:.0f} % validation success"
_EFFICIENCY = "mean success over training"
_COSTS: dict[str, Callable[[Run], float | None]] = {
    _EFFICIENCY: lambda run: number(run.results.get("sample_efficiency")),
    "env steps": lambda run: run.env_steps,
    _TO_LEARN: _learnt,
    "wall minutes": lambda run: run.minutes,
    "env steps a second": lambda run: run.speed,
}


def _mean(side: Side, value: Callable[[Run], float | None]) -> float | None:
    """Mean over the runs; None where a run has no such number, for a mean of the fast ones would flatter."""
    found = [v for run in side.runs if (v := value(run)) is not None]
    return float(np.mean(found)) if len(found) == len(side.runs) else None


def _cost(words: str, a: float | None, b: float | None) -> Cells:
    form = ".1%" if words == _EFFICIENCY else ",.1f" if "minutes" in words else ",.0f"
    shown = ["–" if v is None else format(v, form) for v in (a, b)]
    ratio = f"× {b / a:.2f}" if a and b else "–"
    return words, shown[0], shown[1], ratio


def _print(a: Side, b: Side, path: Path) -> None:
    console, outcome = Console(), verdict(a, b)
    console.print(f"A: [bold]{escape(a.name)}[/]   B: [bold]{escape(b.name)}[/]")
    if settings := changed(a.runs[0], b.runs[0]):
        _print_table(console, ["setting", "A", "B"], settings)
    else:
        console.print("The settings are equal.")
    _print_table(console, ["result", "A", "B", "B - A"], [*final(a, b), *kinds(a, b)])
    console.print(f"[bold]{escape(outcome.sentence)}[/]")
    console.print(escape(outcome.basis), style="dim")
    console.print(escape(str(path)), soft_wrap=True)


def _print_table(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*head)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def _page(a: Side, b: Side) -> Markup:
    outcome, columns = verdict(a, b), ["", "A", "B", "B − A"]
    judge = measure([*a.runs, *b.runs])
    spreads = ", ".join(dict.fromkeys(judge.spread(side.runs) for side in (a, b)))
    brackets = f"Brackets of A and B: {spreads}. Among twenty lines without a real difference, about one excludes 0."
    curves = learning_figures({"A": a.runs, "B": b.runs}) or page.text("Nothing was recorded while training.")
    parts = [
        page.header(f"{a.name} vs {b.name}", [_whose("A", a), _whose("B", b)]),
        page.verdict(outcome.sentence),
        page.text(outcome.basis),
        page.section("Results", page.table(columns, final(a, b)), page.text(brackets)),
        page.section("Curves", curves),
    ]
    if rows := kinds(a, b):
        parts.append(page.section("Success by task kind", kinds_figure(_by_kind(a, b)), page.table(columns, rows)))
    settings = changed(a.runs[0], b.runs[0])
    differing = page.table(["setting", "A", "B"], settings) if settings else page.text("The settings are equal.")
    return page.join(*parts, page.section("Settings that differ", differing))


def _whose(letter: str, side: Side) -> str:
    run = side.runs[0]
    of = counted(seeds(side.runs)) if len(side.runs) > 1 else f"seed {run.seed}"
    return f"{letter}: {side.name}, {run.method} on {run.world}, {of}"
