"""Held-out success by kind of task; and of a language policy in other words and worlds, a row a case in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.metrics.statistics import Estimate, spread_name
from cluster.report.compare import shown
from cluster.report.outcome import FEW_ARMS, Arms, by_kind, kinds_figure, kinds_of, largest, measure, overall
from cluster.report.page import count, join, percent, rate, section, subtitle, table, text
from cluster.runs.run_data import Row, Run, between, estimate, part, seeds

SUBJECT, ORDER = "agents", 50


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """The sections, as HTML; "" where neither an evaluate nor a generalise stage is finished."""
    return join(_task_kinds(groups), _cases(groups))


def _task_kinds(groups: Arms) -> str:
    """Success by kind; "" where no evaluate stage is finished, and of worlds with a score and one kind."""
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


def _cases(groups: Arms) -> str:
    """Success by case; "" where there was no generalise stage. Of many arms, only what counts is shown."""
    given = {arm: played for arm, group in groups.items() if (played := [run for run in group if run.cases])}
    if not given:
        return ""
    if len(given) <= FEW_ARMS:
        return section("In other words and worlds", *(_arm(arm, runs) for arm, runs in given.items()))
    names = list(dict.fromkeys(name for runs in given.values() for run in runs for name in run.cases))
    judge = measure([run for runs in given.values() for run in runs])
    what = "return" if judge.score else "success"
    rows = [(arm, *(judge.cell(_mean(runs, name, what)) for name in names)) for arm, runs in given.items()]
    return section("In other words and worlds", table(["settings", *names], rows, dense=True))


def _arm(label: str, runs: Sequence[Run]) -> str:
    cases = runs[0].cases
    judge = measure(runs)
    what = "return" if judge.score else "success"
    played = {name: row for name, row in cases.items() if _mean(runs, name, what)}
    rows = [
        (
            f"{name}: {row.get('about', '')}",
            judge.cell(_mean(runs, name, what)),
            shown(change, judge.score) if (change := _mean(runs, name, "difference")) else "–",
            judge.cell(_mean(runs, name, "random")),
        )
        for name, row in played.items()
    ]
    interval = "95 % bootstrap intervals" if judge.score else "95 % intervals, Wilson's of rates"
    words = "The finished policy on held-out episodes; differences are to the first row. "
    words += f"Brackets: {spread_name(seeds(runs), interval)}."
    parts: list[str] = [subtitle(label), text(words)]
    parts.append(table(["case", judge.name, "difference", "at random"], rows))
    parts.append("" if judge.score else _kinds(runs, played))
    left = [f"{name} ({row['reason']})" for name, row in cases.items() if row.get("reason")]
    return join(*parts, text(f"Not played: {'; '.join(left)}.") if left else "")


def _kinds(runs: Sequence[Run], played: Mapping[str, Row]) -> str:
    """Success by kind of task, if any case has several."""
    of = {name: row["by_kind"] for name, row in played.items() if isinstance(row.get("by_kind"), Mapping)}
    if not any(len(kinds) > 1 for kinds in of.values()):
        return ""
    names = list(dict.fromkeys(kind for kinds in of.values() for kind in kinds))
    rows = []
    for case in of:
        found = [_mean(runs, case, "by_kind", kind) for kind in names]
        rows.append((case, *(percent(share.value) if share else "–" for share in found)))
    return table(["case", *names], rows, dense=True)


def _mean(runs: Sequence[Run], case: str, *keys: str) -> Estimate | None:
    """A number of a case over some runs; None where none has it."""
    found = []
    for run in runs:
        entry = part(run.cases, case, *keys)
        value = between(entry) if keys == ("difference",) else estimate(entry)
        found += [value] if value else []
    return overall(found)
