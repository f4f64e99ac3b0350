"""Freezes the trials, holds out what they ask for, and keeps what drives near to it out of the training."""

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
from learner.behaviours.trials import Route, Trial, paraphrased, reworded, rivals
from learner.behaviours.words import Description


def run(work: BehaviourStage) -> Outcome | None:
    """Split.

    Raises:
        RunError: no text is about a route, or nothing is left to learn from.
    """
    settings = work.method.split
    table = Behaviours.load(work.given.artifact("merge"))
    pose = np.concatenate([pose for _, pose in work.trajectories()])
    frozen, rows = _trials(work, table, pose)
    part = split(pose[..., :2], table.group, rows, settings.validation, settings.margin)
    counts = {name: int((part == number).sum()) for number, name in enumerate(PARTS)}
    if not counts["train"]:
        raise RunError("every behaviour drives near to one that trials ask for: lower method.split.margin, how, plain")
    work.folder.write(work.place / PARTS_FILE, safetensors.numpy.save({"part": part}))
    trials.save(frozen, work.place, work.folder.attempt)
    pairs = len({trial.pair for trial in frozen if trial.kind == "how"})
    told = (
        f"split: {counts['train']:,} behaviours to learn from, {counts['margin']:,} too near to a test; "
        f"{len(frozen):,} trials, {pairs} pairs of routes"
    )
    return Outcome(counts | {"pairs": pairs, "trials": len(frozen)}, lines=(told,))


def _trials(work: BehaviourStage, table: Behaviours, pose: NDArray[np.float32]) -> tuple[list[Trial], NDArray[np.intp]]:
    """The trials, and the rows of the behaviours they ask for: at most one of each group, with a text about a route."""
    settings, generator, texts = work.method.split, np.random.default_rng([work.config.seed, 1]), work.texts()
    told: dict[int, tuple[int, Description]] = {}  # of each group
    for row, (number, group) in enumerate(zip(table.id.tolist(), table.group.tolist(), strict=True)):
        for description in texts.get(number, []) if group not in told else []:
            if words.describes_route(description.places):
                told[group] = row, description
                break
    if not told:
        raise RunError("no behaviour has a true text that names two places: search longer, or describe again")
    chosen, said = np.array([row for row, _ in told.values()], np.intp), [of for _, of in told.values()]
    routes = [
        Route(list(description.places), passed, last, (float(end[0]), float(end[1])))
        for description, passed, last, end in zip(
            said, *words.visited(work.scene, pose[chosen]), table.descriptor[chosen], strict=True
        )
    ]
    pairs = rivals(routes, settings.near, settings.how, generator)
    paired = {row for pair in pairs for row in pair}
    plain = [row for row in generator.permutation(len(routes)).tolist() if row not in paired][: settings.plain]
    starts = nearby(work.house, table.id[chosen], work.config.seed + 1, settings.distance, settings.degrees)
    cases = [(row, row, row, "plain") for row in plain]
    cases += [(own, other, pair[0], "how") for pair in pairs for own, other in (pair, pair[::-1])]
    result = []
    for own, other, first, kind in cases:
        wanted = routes[own].wanted
        for wording, text in (
            ("described", said[own].text),
            ("reworded", reworded(wanted, first)),
            ("paraphrased", paraphrased(wanted, first, work.scene.other_names)),
        ):
            for begins, start in (("map", work.house.start), ("nearby", starts[first].tolist())):
                result.append(
                    Trial(
                        text=text,
                        wanted=wanted,
                        rival=routes[other].wanted if kind == "how" else [],
                        target=list(routes[first].end),
                        start=list(start),
                        behaviour=int(table.id[chosen[own]]),
                        pair=first,
                        kind=kind,
                        wording=wording,
                        begins=begins,
                    )
                )
    return result, chosen[sorted(paired | set(plain))]
