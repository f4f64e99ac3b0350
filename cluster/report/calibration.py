"""How far a language model's answers agree with people's, beside answers that need no model, and whether it is as sure
as it is right.

    stages/calibrate/results.json     of each run that asked; groups and the picture are those of the first
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster.metrics.answers import MEASURES
from cluster.report import plots
from cluster.report.page import count, decimal, figure, percent, section, subtitle, table, text
from cluster.runs.run_data import Row, Run, between, number, part, read_mapping


def calibration_section(runs: Sequence[Run]) -> str:
    """The section, as HTML; "" where no run has asked what people were asked."""
    asked = [(run, found) for run in runs if (found := comparison(run))]
    if not asked:
        return ""
    run, found = asked[0]
    rows = [row for one, results in asked for row in _models(one.name if len(asked) > 1 else "", results)]
    rows += [(name, *_plain(part(found, "controls", name))) for name in part(found, "controls")]
    parts: list[str] = [
        text(_sentences(found)),
        table(["answers", *MEASURES], rows),
        text(_beside(found)),
        text(_fitted(found)),
    ]
    if len(asked) > 1:
        parts.append(
            text(f"All below, and answers without a model, are of {run.name}, the first of {len(asked)} runs.")
        )
    parts.append(_picture(found))
    for group, words in part(found, "groups").items():
        head = [group, "questions", "people say yes", *MEASURES]
        lines = [
            (word, *(count(number(entry.get(key))) for key in ("questions", "people_say_yes")), *_plain(entry))
            for word, entry in words.items()
        ]
        parts += [subtitle(f"By {group}"), table(head, lines, dense=True)]
    return section("Agreement with people", *parts)


def comparison(run: Run) -> Row:
    """What a run found out about a model's answers; empty if it did not ask."""
    return read_mapping(run.folder / "stages" / "calibrate" / "results.json")


def _models(name: str, found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    told = part(found, "told_by")
    model = " ".join(str(told[key]) for key in ("backend", "model") if told.get(key))
    label = f"{name}: {model}" if name else model
    return [(label, *(decimal(between(part(found, "agreement", measure)), 3) for measure in MEASURES))]


def _plain(entry: Mapping[str, Any]) -> list[str]:
    return ["–" if (value := number(entry.get(name))) is None else f"{value:.3f}" for name in MEASURES]


def _sentences(found: Mapping[str, Any]) -> str:
    questions, about = part(found, "questions"), part(found, "about")
    counts = [count(number(questions.get(key))) for key in ("answered", "asked", "all")]
    said = [
        f"{counts[0]} of {counts[1]} questions that were asked have an answer, of {counts[2]} that there are in "
        f"{found.get('env')}. People are {found.get('labels')}.",
    ]
    people, model, level = (number(found.get(key)) for key in ("people_say_yes", "says_yes", "probability"))
    if people is not None and model is not None and level is not None:
        said.append(f"They say yes to {percent(people)}, the model to {percent(model)}, above {level:g}.")
    said.append(
        f"Brackets: 95 % bootstrap intervals over {count(number(about.get('count')))} {about.get('what')}s, each with "
        "all questions about it. Shuffled answers are those of the model, to other questions: the mean over all orders."
    )
    return " ".join(said)


def _beside(found: Mapping[str, Any]) -> str:
    """How far above the best answers that need no model."""
    said = []
    for measure, entry in part(found, "above_best").items():
        if value := between(entry):
            name = measure[0].upper() + measure[1:]
            said.append(f"{name} less that of {entry.get('control')}, the best at it without a model: ")
            said[-1] += f"{decimal(value, 3, '+')}."
    if (area := number(part(found, "agreement").get("area"))) is not None:
        said.append(f"Area under the curve, whatever the threshold: {area:.3f} (chance 0.500).")
    return " ".join(said)


def _fitted(found: Mapping[str, Any]) -> str:
    """The threshold that was chosen, and what it came to elsewhere."""
    fit = part(found, "threshold")
    level, fixed = number(fit.get("probability")), number(found.get("probability"))
    values = [between(part(fit, name, "F1")) for name in ("chosen", "fixed")]
    if level is None or fixed is None or None in values:
        return ""
    what = part(found, "about").get("what")
    here, there = (count(number(part(fit, name).get("count"))) for name in ("chosen_on", "told_of"))
    said = f"On {here} {what}s (split: {fit.get('split')}) the best F1 is had above {level:.3f}. "
    said += f"On the other {there} that gives F1 {decimal(values[0], 3)}, and "
    said += f"{fixed:g} gives {decimal(values[1], 3)}"
    if apart := between(part(fit, "chosen_above_fixed", "F1")):
        said += f"; difference {decimal(apart, 3, '+')}"
    return f"{said}."


def _picture(found: Mapping[str, Any]) -> str:
    """Said and come true, with how many answers each point has; "" without."""
    bins = part(found, "reliability").get("bins")
    keys = ("from", "to", "count", "said", "came")
    rows = [[number(part(b).get(key)) for key in keys] for b in bins] if isinstance(bins, list) else []
    if not rows or any(None in row[:3] for row in rows):
        return ""
    low, high, counts, said, came = np.array(rows, np.float64).T
    words = "How often people say yes, over how likely the model calls it; numbers count answers"
    labels = {"x_label": "the model: probability of yes", "y_label": "people: share of yes"}
    svg = plots.reliability("reliability", np.append(low, high[-1]), counts, said, came, title=words, **labels)
    error = number(part(found, "reliability").get("error"))
    told = "" if error is None else f" Expected calibration error: {error:.3f}."
    return figure(svg, f"{words}.{told}")
