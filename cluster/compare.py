"""Two runs, or two sweeps over seeds, side by side: what was set differently, what came out, and how sure that is.

Positive differences mean that B has more. The verdict is about held-out success. With two or more seeds on both
sides it rests on the spread between seeds; otherwise on episodes, and then it is about the trained agents at hand.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cluster import plots, report
from cluster.overrides import UsageError
from cluster.report import Run
from cluster.statistics import Estimate, difference, over_seeds, spread_name, welch, wilson

ENOUGH = 0.9
"""Validation success that counts as having learnt the task, for "how long did it take"."""

Cells = tuple[str, str, str, str]


@dataclass(frozen=True)
class Side:
    """The runs of one side: several are seeds of one setting."""

    name: str
    runs: list[Run]

    def successes(self) -> list[Estimate]:
        """Held-out success of each evaluated run."""
        return [s for run in self.runs if (s := run.success())]


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
    sides = _side(a), _side(b)
    first, second = sides
    outcome = verdict(first, second)
    settings = changed(first.runs[0], second.runs[0])
    results = final(first, second)
    kinds = by_kind(first, second)
    path = Path(a) / f"compare-{first.name}-vs-{second.name}.html"
    path = report.save(path, f"{first.name} vs {second.name}", _page(sides, outcome, settings, results, kinds))
    _print(sides, outcome, settings, [*results, *kinds], path)
    return path


def _side(folder: Path) -> Side:
    folder = Path(folder)
    runs, _ = report.expand([folder])
    arms = report.arms(runs)
    if len(arms) > 1:
        settings = "; ".join(arms)
        raise UsageError(f"{folder} mixes settings ({settings}): compare two of its runs, or sweeps over seeds alone")
    return Side(folder.resolve().name, runs)


# ---- what differs ---------------------------------------------------------------------------------------------------


def changed(a: Run, b: Run) -> list[tuple[str, str, str]]:
    """Dotted keys with unequal values, and both values; "(absent)" where one has no such key."""
    before, after = report.flat(a.config), report.flat(b.config)
    keys = list(dict.fromkeys([*before, *after]))
    rows = [(key, _shown(before, key), _shown(after, key)) for key in keys if key != "run.name"]
    return [row for row in rows if row[1] != row[2]]


def _shown(config: dict[str, Any], key: str) -> str:
    return str(config[key]) if key in config else "(absent)"


def verdict(a: Side, b: Side) -> Verdict:
    """Which side solves more held-out episodes, in plain words."""
    first, second = a.successes(), b.successes()
    if not first or not second:
        without = " and ".join(name for name, found in (("A", first), ("B", second)) if not found)
        return Verdict(f"no verdict: {without} has no held-out evaluation", "Run the evaluate stage first.")
    worlds = [{report.world(run) for run in side.runs} for side in (a, b)]
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
    first, second = a.successes(), b.successes()
    gap = points(success_difference(first, second)) if first and second else "–"
    rows: list[Cells] = [("held-out success", _over(first), _over(second), gap), _returns(a, b)]
    return rows + [_cost(words, *(_mean(side, value) for side in (a, b))) for words, value in _COSTS.items()]


def _over(found: Sequence[Estimate]) -> str:
    return report.rate(over_seeds(found)) if found else "–"


def _returns(a: Side, b: Side) -> Cells:
    found = [[e for run in s.runs if (e := report.estimate(run.results.get("return")))] for s in (a, b)]
    if not all(found):
        return ("return", *(_interval(over_seeds(f)) if f else "–" for f in found), "–")  # type: ignore[return-value]
    if min(map(len, found)) >= 2:
        gap = welch([e.value for e in found[0]], [e.value for e in found[1]])
    else:
        gap = difference(over_seeds(found[0]), over_seeds(found[1]))
    return "return", _interval(over_seeds(found[0])), _interval(over_seeds(found[1])), _interval(gap, "+")


def _interval(e: Estimate, sign: str = "") -> str:
    return f"{e.value:{sign}.3f} [{e.low:.3f}, {e.high:.3f}]"


def _speed(run: Run) -> float | None:
    steps, seconds = run.total("env_steps"), run.total("wall_seconds")
    return steps / seconds if steps and seconds else None


def _learnt(run: Run) -> float | None:
    steps, success = report.series(run.evaluations, "success_rate")
    reached = np.flatnonzero(success >= ENOUGH)
    return float(steps[reached[0]]) if len(reached) else None


_COSTS = {
    "env steps": lambda run: run.total("env_steps"),
    f"env steps to {100 * ENOUGH:.0f} % validation success": _learnt,
    "wall minutes": report.minutes,
    "env steps a second": _speed,
}


def _mean(side: Side, value: Any) -> float | None:
    """Mean over the runs that have it; None where a run lacks it, for a mean of the fast ones would flatter."""
    found = [value(run) for run in side.runs]
    return None if any(v is None for v in found) else float(np.mean(found))


def _cost(words: str, a: float | None, b: float | None) -> Cells:
    form = ",.1f" if "minutes" in words else ",.0f"
    shown = ["–" if v is None else format(v, form) for v in (a, b)]
    ratio = f"× {b / a:.2f}" if a and b else "–"
    return words, shown[0], shown[1], ratio


def by_kind(a: Side, b: Side) -> list[Cells]:
    """Rows (kind, A, B, B - A) of held-out success by task kind; empty without results."""
    found = [_kinds(side) for side in (a, b)]
    rows: list[Cells] = []
    for kind in dict.fromkeys([*found[0], *found[1]]):
        first, second = found[0].get(kind, []), found[1].get(kind, [])
        gap = points(success_difference(first, second)) if first and second else "–"
        rows.append((kind, _over(first), _over(second), gap))
    return rows


def _kinds(side: Side) -> dict[str, list[Estimate]]:
    found: dict[str, list[Estimate]] = {}
    for run in side.runs:
        for kind, value in report.by_kind([run]).items():
            found.setdefault(kind, []).append(value)
    return found


# ---- terminal and page ----------------------------------------------------------------------------------------------


def _basis(sides: tuple[Side, Side]) -> str:
    names = dict.fromkeys(spread_name(len(side.runs)) for side in sides)
    return (
        f"Brackets of A and B: {', '.join(names)}. Among twenty lines without a real difference, about one excludes 0."
    )


def _print(
    sides: tuple[Side, Side],
    outcome: Verdict,
    settings: Sequence[tuple[str, str, str]],
    results: Sequence[Cells],
    path: Path,
) -> None:
    console = Console()
    console.print(f"A: [bold]{escape(sides[0].name)}[/]   B: [bold]{escape(sides[1].name)}[/]")
    _print_table(console, ["setting", "A", "B"], settings, "The settings are equal.")
    _print_table(console, ["result", "A", "B", "B - A"], results, "")
    console.print(f"[bold]{escape(outcome.sentence)}[/]")
    console.print(escape(outcome.basis), style="dim")
    console.print(escape(str(path)), soft_wrap=True)


def _print_table(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    if not rows:
        console.print(empty)
        return
    table = Table(*head)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def _page(
    sides: tuple[Side, Side],
    outcome: Verdict,
    settings: Sequence[tuple[str, str, str]],
    results: Sequence[Cells],
    kinds: Sequence[Cells],
) -> str:
    a, b = sides
    head = f"<header><h1>{html.escape(a.name)} vs {html.escape(b.name)}</h1>"
    head += f'<p class="quiet">{html.escape(_whose("A", a))}<br>{html.escape(_whose("B", b))}</p></header>'
    differing = report.table(["setting", "A", "B"], settings) if settings else report.text("The settings are equal.")
    columns = ["", "A", "B", "B − A"]
    parts = [
        head,
        f'<p class="verdict">{report.unbroken(html.escape(outcome.sentence))}</p>',
        report.text(outcome.basis),
        report.section("Results", report.table(columns, results), report.text(_basis(sides))),
        report.section("Curves", _curves(sides)),
    ]
    if kinds:
        parts.append(report.section("Success by task kind", _bars(sides, kinds), report.table(columns, kinds)))
    return "\n".join([*parts, report.section("Settings that differ", differing)])


def _whose(letter: str, side: Side) -> str:
    run = side.runs[0]
    seeds = f", {len(side.runs)} seeds" if len(side.runs) > 1 else f", seed {run.seed}"
    return f"{letter}: {side.name}, {report.method(run)} on {report.world(run)}{seeds}"


def _bars(sides: tuple[Side, Side], kinds: Sequence[Cells]) -> str:
    found = [report.by_kind(side.runs) for side in sides]
    names = [row[0] for row in kinds]
    groups = [(letter, [entries.get(n) for n in names]) for letter, entries in zip("AB", found, strict=True)]
    svg = plots.bars("kinds", names, groups, title="Success by task kind")
    return report.figure(svg, "Held-out success by task kind.")


def _curves(sides: tuple[Side, Side]) -> str:
    drawn = []
    for x, label in (("env_steps", "env steps"), ("wall_seconds", "minutes")):
        lines = [
            line
            for i, (letter, side) in enumerate(zip("AB", sides, strict=True))
            for line in report.success_lines(letter, side.runs, x, i, alone=False)
        ]
        if not lines:
            return report.text("No success rate was recorded while training.")
        svg = plots.curves(f"success-{x}", lines, title=f"Success rate over {label}", x_label=label, percent=True)
        drawn.append(report.figure(svg, f"Success rate against {label}."))
    return f'<div class="plots">{"".join(drawn)}</div>'
