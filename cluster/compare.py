"""Two runs, or two sweeps over seeds, side by side: what was set differently, what came out, and how sure that is.

Positive differences mean that B has more. The verdict is about held-out success. With two or more seeds on both
sides it rests on the spread between seeds; otherwise on episodes, and then it is about the trained agents at hand.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cluster import page
from cluster.overrides import UsageError, flatten
from cluster.run_data import Run, arms, estimate, expand, series
from cluster.statistics import Estimate, difference, spread_name, welch, wilson
from cluster.success import by_kind, kinds_figure, kinds_of, learning_figures, overall, successes

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
    """Print the comparison of two run (or sweep) folders and write it with curves into the folder `a`.

    Returns:
        Path of `compare-<a>-vs-<b>.html`.

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


# ---- what differs ---------------------------------------------------------------------------------------------------


def changed(a: Run, b: Run) -> list[tuple[str, str, str]]:
    """Dotted keys with unequal values, and both values; "(absent)" where one has no such key."""
    before, after = flatten(a.config), flatten(b.config)
    keys = list(dict.fromkeys([*before, *after]))
    rows = [(key, _shown(before, key), _shown(after, key)) for key in keys if key != "run.name"]
    return [row for row in rows if row[1] != row[2]]


def _shown(config: dict[str, Any], key: str) -> str:
    return str(config[key]) if key in config else "(absent)"


def verdict(a: Side, b: Side) -> Verdict:
    """Which side solves more held-out episodes, in plain words."""
    first, second = successes(a.runs), successes(b.runs)
    if not first or not second:
        without = " and ".join(name for name, found in (("A", first), ("B", second)) if not found)
        return Verdict(f"no verdict: {without} has no held-out evaluation", "Run the evaluate stage first.")
    worlds = [{run.world for run in side.runs} for side in (a, b)]
    if worlds[0] != worlds[1]:
        names = [", ".join(sorted(w)) for w in worlds]
        return Verdict(
            f"no verdict: A was evaluated on {names[0]}, B on {names[1]}", "Rates on two worlds differ anyway."
        )
    return _judge(success_difference(first, second), first, second)


def success_difference(first: Sequence[Estimate], second: Sequence[Estimate]) -> Estimate:
    """`B - A` in [-1, 1]: Welch's interval where both sides have two seeds, else Newcombe's over pooled episodes."""
    if min(len(first), len(second)) >= 2:
        over = welch([e.value for e in first], [e.value for e in second])
        # Seeds that agree to the last episode say nothing about their spread.
        if over.high > over.low:
            return Estimate(over.value, max(-1.0, over.low), min(1.0, over.high))
    return difference(_pooled(first), _pooled(second))


def _pooled(found: Sequence[Estimate]) -> Estimate:
    if len(found) == 1:
        return found[0]
    n = sum(e.n for e in found)
    successes = sum(e.value * e.n for e in found)
    return Estimate(successes / n if n else 0.0, *wilson(min(successes, n), n), n)


def _judge(gap: Estimate, first: Sequence[Estimate], second: Sequence[Estimate]) -> Verdict:
    seeds = min(len(first), len(second)) >= 2
    basis = (
        f"95 % Welch interval over {len(first)} and {len(second)} training seeds."
        if seeds
        else "95 % Newcombe interval over episodes. Another training seed may come out differently by more than that: "
        "for a statement about the settings, compare sweeps over seeds."
    )
    if gap.low > 0:
        return Verdict(f"B is better: {points(gap)}", basis, gap)
    if gap.high < 0:
        turned = Estimate(-gap.value, -gap.high, -gap.low)
        return Verdict(f"A is better: {points(turned)}", basis, gap)
    rests = _counts(len(first), len(second), "seeds") if seeds else _counts(_n(first), _n(second), "episodes")
    return Verdict(f"no difference that {rests} can show: {points(gap)}", basis, gap)


def _n(found: Sequence[Estimate]) -> int:
    return sum(e.n for e in found)


def _counts(a: int, b: int, what: str) -> str:
    return f"{a} {what}" + ("" if a == b else f" against {b}") + (" each" if a == b and what == "seeds" else "")


def points(gap: Estimate) -> str:
    """0.041 in [0.010, 0.072] -> +4.1 points [1.0, 7.2]."""
    return f"{100 * gap.value:+.1f} points [{100 * gap.low:.1f}, {100 * gap.high:.1f}]"


# ---- the tables -----------------------------------------------------------------------------------------------------


def final(a: Side, b: Side) -> list[Cells]:
    """Rows (what, A, B, B - A): results with intervals, and what they cost."""
    costs = [_cost(words, *(_mean(side, value) for side in (a, b))) for words, value in _COSTS.items()]
    return [_success("held-out success", successes(a.runs), successes(b.runs)), _returns(a, b), *costs]


def kinds(a: Side, b: Side) -> list[Cells]:
    """Rows (kind, A, B, B - A) of held-out success by task kind; empty without results."""
    found = _by_kind(a, b)
    return [_success(kind, *(entries.get(kind, []) for entries in found.values())) for kind in kinds_of(found)]


def _by_kind(a: Side, b: Side) -> dict[str, dict[str, list[Estimate]]]:
    return {"A": by_kind(a.runs), "B": by_kind(b.runs)}


def _success(words: str, first: Sequence[Estimate], second: Sequence[Estimate]) -> Cells:
    gap = points(success_difference(first, second)) if first and second else "–"
    return words, page.rate(overall(first)), page.rate(overall(second)), gap


def _returns(a: Side, b: Side) -> Cells:
    first, second = ([e for run in side.runs if (e := estimate(run.results.get("return")))] for side in (a, b))
    totals = overall(first), overall(second)
    gap = None
    if min(len(first), len(second)) >= 2:
        gap = welch([e.value for e in first], [e.value for e in second])
    elif totals[0] and totals[1]:
        gap = difference(totals[0], totals[1])
    return "return", _interval(totals[0]), _interval(totals[1]), _interval(gap, "+")


def _interval(e: Estimate | None, sign: str = "") -> str:
    return f"{e.value:{sign}.3f} [{e.low:.3f}, {e.high:.3f}]" if e else "–"


def _learnt(run: Run) -> float | None:
    steps, success = series(run.evaluations, "success_rate")
    reached = np.flatnonzero(success >= ENOUGH)
    return float(steps[reached[0]]) if len(reached) else None


_COSTS: dict[str, Callable[[Run], float | None]] = {
    "env steps": lambda run: run.env_steps,
    f"env steps to {100 * ENOUGH:.0f} % validation success": _learnt,
    "wall minutes": lambda run: run.minutes,
    "env steps a second": lambda run: run.speed,
}


def _mean(side: Side, value: Callable[[Run], float | None]) -> float | None:
    """Mean over the runs; None where a run has no such number, for a mean of the fast ones would flatter."""
    found = [v for run in side.runs if (v := value(run)) is not None]
    return float(np.mean(found)) if len(found) == len(side.runs) else None


def _cost(words: str, a: float | None, b: float | None) -> Cells:
    form = ",.1f" if "minutes" in words else ",.0f"
    shown = ["–" if v is None else format(v, form) for v in (a, b)]
    ratio = f"× {b / a:.2f}" if a and b else "–"
    return words, shown[0], shown[1], ratio


# ---- terminal and page ----------------------------------------------------------------------------------------------


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


def _page(a: Side, b: Side) -> str:
    outcome, columns = verdict(a, b), ["", "A", "B", "B − A"]
    spreads = ", ".join(dict.fromkeys(spread_name(len(side.runs)) for side in (a, b)))
    brackets = f"Brackets of A and B: {spreads}. Among twenty lines without a real difference, about one excludes 0."
    curves = learning_figures({"A": a.runs, "B": b.runs}) or page.text("No success rate was recorded while training.")
    parts = [
        page.header(f"{a.name} vs {b.name}", [_whose("A", a), _whose("B", b)]),
        f'<p class="verdict">{page.unbroken(html.escape(outcome.sentence))}</p>',
        page.text(outcome.basis),
        page.section("Results", page.table(columns, final(a, b)), page.text(brackets)),
        page.section("Curves", curves),
    ]
    if rows := kinds(a, b):
        parts.append(page.section("Success by task kind", kinds_figure(_by_kind(a, b)), page.table(columns, rows)))
    settings = changed(a.runs[0], b.runs[0])
    differing = page.table(["setting", "A", "B"], settings) if settings else page.text("The settings are equal.")
    return "\n".join([*parts, page.section("Settings that differ", differing)])


def _whose(letter: str, side: Side) -> str:
    run = side.runs[0]
    seeds = f", {len(side.runs)} seeds" if len(side.runs) > 1 else f", seed {run.seed}"
    return f"{letter}: {side.name}, {run.method} on {run.world}{seeds}"
