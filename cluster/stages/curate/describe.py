"""Texts of each behaviour, by a language model, in three styles. Those that say what was not done are left out.

Descriptions are paid for once: the service's journal has those that a killed stage had asked for.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from cluster.runs.folder import RunError
from cluster.runs.stage import Outcome
from cluster.stages._shared.asking import ask
from cluster.stages._shared.lgqd import ANNOTATIONS, TEXTS, BehaviourStage, read_lines
from learner.behaviours import words
from learner.hashing import uniform
from llm_service.records import Answer

STYLES = ("request", "narrative", "instruction")


def run(work: BehaviourStage) -> Outcome | None:
    """Describe.

    Raises:
        RunError: nothing could be.
        BudgetExhausted, AwayTooLong: as `ask`.
    """
    settings = work.method.describe
    annotations = list(read_lines(work.given.artifact("annotate") / ANNOTATIONS))
    questions = [(line, n) for line in annotations for n in range(settings.texts)]
    texts: list[dict[str, Any]] = []
    failed = untrue = 0
    for begin in range(0, len(questions), settings.batch):
        part = questions[begin : begin + settings.batch]
        for answer, (line, n), style in zip(*_describe(work, part), strict=True):
            failed += not answer.ok
            if not answer.ok:
                continue
            text = answer.value["caption"]
            true = words.is_true(work.scene, text, line["route"])
            untrue += not true
            texts.append({"id": line["id"], "n": n, "style": style, "text": text, "true": true})
        work.progress.line(f"describe  texts {begin + len(part):,}/{len(questions):,}  failed {failed:,}")
        work.given.look_after()
        if work.stop.reason:
            return None
    if len(texts) == untrue:
        raise RunError("no behaviour could be described: see 'launch.py llm cost', or choose another model")
    work.folder.write(work.place / TEXTS, "".join(f"{json.dumps(text)}\n" for text in texts))
    told = f"describe: {len(texts):,} texts of {len(annotations):,} behaviours, {failed:,} failed, "
    told += f"{untrue:,} say what was not done and are left out"
    return Outcome({"texts": len(texts), "failed": failed, "untrue": untrue}, lines=(told,))


def _describe(
    work: BehaviourStage, part: list[tuple[dict[str, Any], int]]
) -> tuple[list[Answer], list[tuple[dict[str, Any], int]], list[str]]:
    """Answers, questions and styles, those of one sample after the other."""
    settings = work.method.describe
    asked: list[tuple[dict[str, Any], int]] = []
    answers: list[Answer] = []
    styles: list[str] = []
    for n in range(settings.texts):
        own = [question for question in part if question[1] == n]
        if not own:
            continue
        draw = uniform(np.array([line["id"] for line, _ in own]) * 16 + n)
        bounds = [settings.request, settings.request + settings.narrative]
        chosen = [STYLES[i] for i in np.searchsorted(bounds, draw, side="right")]
        items = [
            {"observations": line["told"], "actions": [words.DRIVE] * (len(line["told"]) - 1), "style": style}
            for (line, _), style in zip(own, chosen, strict=True)
        ]
        answers += ask(work.given, "caption_trajectory", items, sample=n)
        asked, styles = asked + own, styles + chosen
    return answers, asked, styles
