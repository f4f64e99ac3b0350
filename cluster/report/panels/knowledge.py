"""What was asked about a world once, what it cost, and what came of it: preferences, programs, goals.

    stages/label/{results.json, programs.jsonl, goals.jsonl}    stages/prefer/calibration.json

Of the first run that has asked. Answers of a scripted model are rules that we wrote, which is said wherever they stand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster.report import plots
from cluster.report.outcome import Arms
from cluster.report.page import code, count, figure, join, percent, section, subtitle, table, text
from cluster.runs.run_data import Row, Run, number, part, read_mapping, read_rows

SUBJECT, ORDER = "agents", 15
ASKED = {
    "preferences": ("which of two segments is better", "label_preference"),
    "goals": ("what is sensible to do", "suggest_goals"),
    "programs": ("a program that judges", "write_potential"),
}
"""What a label stage asks: in words, and the task of the language model that its cost stands under."""
MOST_PROGRAMS, MOST_GOALS = 20, 15


def panel(runs: Sequence[Run], groups: Arms) -> str:
    asked = [run for run in runs if extraction(run.folder)]
    if not asked:
        return ""
    run, stages = asked[0], asked[0].folder / "stages"
    results = extraction(run.folder)
    parts = [text(_sentences(run, results)), _asked(results), _programs(stages / "label", results)]
    parts += [_preferences(results, read_mapping(stages / "prefer" / "calibration.json")), _goals(stages / "label")]
    if len(asked) > 1:
        parts.append(text(f"Shown for {run.name}, the first of {len(asked)} runs that asked."))
    return section("Background knowledge", *parts)


def extraction(folder: Path) -> Row:
    """What a run has asked about its world, as its label stage sums it up; empty without one."""
    return read_mapping(folder / "stages" / "label" / "results.json")


def is_scripted(config: Mapping[str, Any]) -> bool:
    """Whether the answers of a run were made by rules of ours."""
    return part(config, "llm").get("name") == "scripted" and not part(config, "llm").get("address")


def cost(results: Mapping[str, Any]) -> dict[str, float]:
    """Calls, tokens and dollars of an extraction in all."""
    found = part(results, "cost").values()
    sums = {name: sum(number(part(one).get(name)) or 0.0 for one in found) for name in ("calls", "dollars")}
    return sums | {"tokens": sum(_tokens(part(one)) for one in found)}


def _tokens(found: Mapping[str, Any]) -> float:
    return sum(number(found.get(f"{kind}_tokens")) or 0.0 for kind in ("prompt", "completion"))


def _sentences(run: Run, results: Mapping[str, Any]) -> str:
    segments, sums = part(results, "segments"), cost(results)
    found = [
        f"{count(number(segments.get('drawn')))} segments of {count(number(segments.get('of_steps')))} steps in "
        f"{run.world} were put into words and asked about, once."
    ]
    found.append(
        f"That took {count(sums['calls'])} calls, {count(sums['tokens'])} tokens, {sums['dollars']:.2f} dollars"
    )
    minutes = number(results.get("minutes"))
    found[-1] += f" and {minutes:.1f} minutes." if minutes is not None else "."
    if is_scripted(run.config):
        found.append(
            "The answers are rules that we wrote, not a language model's: they show that the machinery works, and "
            "nothing of what language models know."
        )
    return " ".join(found)


def _asked(results: Mapping[str, Any]) -> str:
    rows = []
    for name, (words, task) in ASKED.items():
        if not (found := part(results, name)):
            continue
        paid = part(results, "cost", task)
        counts = [count(number(found.get(key))) for key in ("asked", "answered", "failed", "distinct")]
        rows.append((words, *counts, count(number(paid.get("calls"))), count(_tokens(paid) if paid else None)))
    head = ["asked for", "questions", "answered", "failed", "distinct", "calls", "tokens"]
    return table(head, rows) if rows else ""


def _preferences(results: Mapping[str, Any], fitted: Mapping[str, Any]) -> str:
    """Labels in sentences; the model that was fitted to them, with a picture of its calibration."""
    found, said = part(results, "preferences"), []
    if (ties := number(found.get("ties"))) is not None:
        said.append(f"{count(ties)} of the pairs are ties.")
    if (depend := number(found.get("inconsistent"))) is not None:
        said.append(f"In {percent(depend)} the answer depended on the order in which the two were told.")
    if (agrees := number(found.get("agreement_with_return"))) is not None:
        said.append(f"The better segment has the higher return to come in {percent(agrees)} (chance 50 %).")
    if (accuracy := number(fitted.get("accuracy"))) is not None:
        unseen = f"{count(number(fitted.get('decided')))} pairs of segments that it had not seen"
        said.append(f"A model that was fitted to the answers is right on {percent(accuracy)} of {unseen}.")
    if (rank := number(fitted.get("agreement"))) is not None:
        said.append(f"What it says of all segments, and the return to come: Spearman's correlation {rank:.2f}.")
    if not said:
        return ""
    return join(subtitle("Preferences"), text(" ".join(said)), _calibration(fitted))


def _calibration(fitted: Mapping[str, Any]) -> str:
    """A picture of what the model says and what is so; "" without one."""
    bins = [[number(part(b).get(key)) for key in ("predicted", "first")] for b in _listed(fitted.get("calibration"))]
    points = np.array([b for b in bins if None not in b], np.float64).reshape(-1, 2)
    if not len(points):
        return ""
    words = "How often the first of a pair is better, over how likely the model calls that, %; unseen pairs"
    lines = [
        plots.Line("labels", 100 * points[:, 0], points[:, 1], marker="o"),
        plots.Line("if it were right", np.array([0.0, 100.0]), np.array([0.0, 1.0]), colour=6, dash=2),
    ]
    return figure(plots.curves("calibration", lines, title=words, x_label="the model, %", percent=True), f"{words}.")


def _programs(label: Path, results: Mapping[str, Any]) -> str:
    """Every candidate, the chosen one marked, and its text."""
    candidates, chosen = read_rows(label / "programs.jsonl"), part(results, "programs", "chosen")
    if not candidates:
        return ""
    said = []
    if chosen:
        own, others = _share(chosen.get("agreement_where_chosen")), count(number(chosen.get("pairs")))
        said.append(f"The chosen one agrees with {own} of the pairs that it was chosen by,")
        said.append(f"and with {_share(chosen.get('agreement'))} of {others} others (chance 50 %).")
    if (rank := number(chosen.get("spearman_with_return"))) is not None:
        said.append(f"Its values and the return to come: Spearman's correlation {rank:.2f}.")
    rows = []
    for row in candidates[:MOST_PROGRAMS]:
        is_it = bool(chosen) and all(row.get(key) == chosen.get(key) for key in ("round", "variant", "hash"))
        failed = sum(number(n) or 0.0 for n in part(row, "faults").values())
        state = "✓ chosen" if is_it else str(row.get("reason") or ("" if row.get("valid") else "not usable"))
        name = f"{row.get('variant')}, {(number(row.get('round')) or 0) + 1:.0f}"
        rows.append((name, _share(row.get("agreement")), count(failed), str(row.get("hash") or "–")[:8], state))
    head = ["variant, round", "agreement", "segments that failed", "hash", ""]
    parts = [text(" ".join(said)) if said else "", _rounds(candidates), table(head, rows, dense=True)]
    texts = [str(row.get("code")) for row in candidates if chosen and row.get("hash") == chosen.get("hash")]
    return join(subtitle("Programs"), *parts, *map(code, texts[:1]))


def _rounds(candidates: Sequence[Row]) -> str:
    """A picture of how programs became better, or not; "" where none has a value."""
    variants: dict[str, list[list[float]]] = {}
    for row in candidates:
        at, agreement = number(row.get("round")), number(row.get("agreement"))
        if at is not None and agreement is not None:
            variants.setdefault(str(row.get("variant")), []).append([at + 1, agreement])
    lines = []
    for i, (variant, points) in enumerate(variants.items()):
        x, y = np.array(points).T
        lines.append(plots.Line(f"variant {variant}", x, y, colour=i, dash=i, marker="o"))
    words = "Agreement with the preferences that programs are chosen by, over rounds of writing"
    svg = plots.curves("programs", lines, title=words, x_label="round", percent=True) if lines else ""
    return figure(svg, f"{words}.") if svg else ""


def _goals(label: Path) -> str:
    """The commonest goals."""
    lines = read_rows(label / "goals.jsonl")
    named = Counter(str(goal) for line in lines for goal in _listed(line.get("goals")))
    if not named:
        return ""
    rows = [(goal, count(n)) for goal, n in named.most_common(MOST_GOALS)]
    words = f"{count(len(named))} goals for {count(len(lines))} situations. "
    words += "The commonest, and for how many situations they were named:"
    return join(subtitle("Goals"), text(words), table(["goal", "situations"], rows, dense=True))


def _listed(value: object) -> list[Any]:
    """A list as it is; what is none is empty."""
    return value if isinstance(value, list) else []


def _share(value: object) -> str:
    found = number(value)
    return "–" if found is None else percent(found)
