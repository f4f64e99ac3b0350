"""Texts about each behaviour by a language model, in three styles. Untrue texts are left out.

Descriptions are paid for once: the service's journal has the answers that a killed stage had asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cluster.runs.folder import RunError
from cluster.runs.stage import Outcome
from cluster.stages._shared.asking import ask
from cluster.stages._shared.lgqd import ANNOTATIONS, TEXTS, BehaviourStage, read_lines
from learner.behaviours import words
from learner.behaviours.table import Behaviours
from learner.hashing import uniform
from llm_service.records import Answer

STYLES = ("request", "narrative", "instruction")
ORDERS = ("end first", "backwards", "forwards")
_SYNONYMS, _DIRECTIONS, _ORDER = 1 << 61, 1 << 62, 1 << 60
"""Bits of a description's number that make its draws independent of the draw of its style."""


def run(work: BehaviourStage) -> Outcome | None:
    """Describe.

    Raises:
        RunError: nothing could be described.
        BudgetExhausted, AwayTooLong: as `ask`.
    """
    settings = work.method.describe
    annotations = list(read_lines(work.given.artifact("annotate") / ANNOTATIONS))
    questions = [(line, n) for line in annotations for n in range(settings.texts)]
    ends = _ends(work) if settings.coordinates else {}
    texts: list[dict[str, Any]] = []
    failed, untrue, why = 0, 0, ""
    for begin in range(0, len(questions), settings.batch):
        part = questions[begin : begin + settings.batch]
        for answer, line, n, style, order in _describe(work, part):
            if not answer.ok:
                failed, why = failed + 1, answer.reason
                continue
            text = answer.value["caption"]
            true = words.is_true(words.asked(work.scene, text, order), line["route"], set(line["last"]))
            untrue += not true
            text = words.with_end(text, ends[line["id"]]) if ends else text
            texts.append({"id": line["id"], "n": n, "style": style, "order": order, "text": text, "true": true})
        work.progress.line(f"describe  texts {begin + len(part):,}/{len(questions):,}  failed {failed:,}")
        work.given.look_after()
        if work.stop.reason:
            return None
    if len(texts) == untrue:
        why = why or f"all {untrue:,} texts are untrue"
        raise RunError(f"no behaviour could be described: {why}; choose another model, or see 'launch.py llm cost'")
    work.write_lines(TEXTS, texts)
    told = f"describe: {len(texts):,} texts of {len(annotations):,} behaviours, {failed:,} failed, "
    told += f"{untrue:,} are not true and are left out"
    return Outcome({"texts": len(texts), "failed": failed, "untrue": untrue}, lines=(told,))


def _ends(work: BehaviourStage) -> dict[int, list[float]]:
    """Where each behaviour ends, world units, by its id."""
    table = Behaviours.load(work.given.artifact("merge"))
    return dict(zip(table.id.tolist(), table.descriptor.tolist(), strict=True))


def _describe(
    work: BehaviourStage, part: list[tuple[dict[str, Any], int]]
) -> Iterator[tuple[Answer, dict[str, Any], int, str, str]]:
    """Each answer with its annotation, sample, style and order, one sample after the other."""
    settings = work.method.describe
    bounds = [settings.request, settings.request + settings.narrative]
    turned = [settings.end_first, settings.end_first + settings.backwards]
    for n in sorted({sample for _, sample in part}):
        lines = [line for line, sample in part if sample == n]
        number = np.array([line["id"] for line in lines]) * 16 + n
        styles = [STYLES[i] for i in np.searchsorted(bounds, uniform(number), side="right")]
        synonyms = (uniform(number ^ _SYNONYMS) < settings.synonyms).tolist()
        directions = (uniform(number ^ _DIRECTIONS) < settings.directions).tolist()
        orders = [ORDERS[i] for i in np.searchsorted(turned, uniform(number ^ _ORDER), side="right")]
        items = [
            {
                "observations": line["told"],
                "actions": words.headed([moment["position"] for moment in line["moments"]])
                if turns
                else [words.DRIVE] * (len(line["told"]) - 1),
                "style": style,
                "synonyms": others,
                "order": order,
                "directions": turns,
            }
            for line, style, others, order, turns in zip(lines, styles, synonyms, orders, directions, strict=True)
        ]
        answers = ask(work.given, "caption_trajectory", items, sample=n)
        yield from zip(answers, lines, [n] * len(lines), styles, orders, strict=True)
