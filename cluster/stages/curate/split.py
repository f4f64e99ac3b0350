"""Splits groups into training and held-out ones, and freezes the trials on held-out behaviours."""

from __future__ import annotations

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from cluster.runs.folder import RunError
from cluster.runs.stage import Outcome
from cluster.stages._shared.lgqd import PARTS_FILE, BehaviourStage
from learner.behaviours import trials, words
from learner.behaviours.gather import nearby
from learner.behaviours.table import PARTS, Behaviours, split
from learner.behaviours.trials import Trial, reworded, rivals


def run(work: BehaviourStage) -> Outcome | None:
    """Split.

    Raises:
        RunError: no described behaviour is held out.
    """
    settings = work.method.split
    table = Behaviours.load(work.given.artifact("merge"))
    texts = work.texts()
    part = split(table.group, (1 - settings.validation - settings.test, settings.validation, settings.test))
    work.folder.write(work.place / PARTS_FILE, safetensors.numpy.save({"part": part}))
    frozen = _trials(work, table, np.flatnonzero(part == PARTS.index("test")), texts)
    trials.save(frozen, work.place, work.folder.attempt)
    counts = {name: int((part == number).sum()) for number, name in enumerate(PARTS)}
    told = f"split: {counts['train']:,} behaviours to learn from, {len(frozen):,} trials"
    return Outcome(counts | {"trials": len(frozen)}, lines=(told,))


def _trials(
    work: BehaviourStage, table: Behaviours, rows: NDArray[np.int64], texts: dict[int, list[str]]
) -> list[Trial]:
    settings, generator = work.method.split, np.random.default_rng([work.config.seed, 1])
    told = {row: texts[int(table.id[row])][0] for row in rows.tolist() if int(table.id[row]) in texts}
    rows = np.array([row for row in rows.tolist() if row in told], np.int64)
    if not len(rows):
        raise RunError("no described behaviour is held out: raise method.split.test, or search longer")
    wanted = [words.asked(work.scene, told[row]) for row in rows.tolist()]
    plain = generator.permutation(len(rows))[: settings.plain].tolist()
    pairs = rivals(table.descriptor[rows], wanted, table.group[rows], settings.near, settings.how, generator)
    chosen = [(i, i, "plain") for i in plain] + [(i, pair[0], "how") for pair in pairs for i in pair]
    ids = table.id[rows]
    starts = nearby(work.house, ids, work.config.seed + 1, settings.distance, settings.degrees)
    result = []
    for number, (own, end, kind) in enumerate(chosen):
        for wording in ("described", "reworded"):
            text = told[int(rows[own])] if wording == "described" else reworded(wanted[own], number)
            for begins, start in (("map", work.house.start), ("nearby", starts[own].tolist())):
                target = table.descriptor[rows[end]].tolist()
                result.append(Trial(text, wanted[own], target, list(start), int(ids[own]), kind, wording, begins))
    return result
