"""What came out in the end: held-out success or score, of each setting."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from cluster.report.outcome import FEW_ARMS, Arms, largest, measure, overall
from cluster.report.page import count, section, span, table, text, tiles
from cluster.report.panels.knowledge import extraction
from cluster.runs.run_data import Run, seeds

SUBJECT, ORDER = "agents", 10


def panel(runs: Sequence[Run], groups: Arms) -> str:
    if all(extraction(run.folder) and not run.results for run in runs):  # no task was told, so that none was solved
        return ""
    if len(groups) <= FEW_ARMS:
        return f"<section>{''.join(_headline(arm, group) for arm, group in groups.items())}</section>"
    judge = measure(runs)
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
    parts = [f"<h3>{escape(label)}</h3>" if label else ""]
    if total := overall(found):
        what = f"{judge.score} in a held-out episode" if judge.score else "of held-out episodes solved"
        parts.append(f'<p class="headline">{judge.number(total.value)}</p>')
        evaluated = [run for run in runs if judge.of(run)]
        parts.append(text(f"{what}, {judge.spread(evaluated)} {judge.range(total)}{_acting(runs)}."))
        if len(found) < len(runs):
            parts.append(text(f"{len(found)} of {len(runs)} runs are evaluated."))
    else:
        parts.append(text(f"There is no finished evaluate stage, and so no held-out {judge.name}."))
    each = " a run" if len(runs) > 1 else ""
    different = len(set(seeds(runs)))
    facts = {
        "held-out episodes": count(total.n if total else None),
        f"env steps{each}": span(r.env_steps for r in runs),
        f"wall minutes{each}": span((r.minutes for r in runs), ",.1f"),
        **({"runs": str(len(runs))} if different < len(runs) else {}),
        "training seeds": str(different),
    }
    return "".join([*parts, tiles(facts)])


def _acting(runs: Sequence[Run]) -> str:
    players = {str(r.results.get("player") or "policy") for r in runs}
    if players != {"policy"}:
        return f", played by {' and '.join(sorted(players))}"
    greedy = {r.results.get("greedy") for r in runs} - {None}
    if len(greedy) != 1:
        return ""
    return ", taking the most likely action" if greedy.pop() else ", actions drawn from the policy"
