"""The robot that a run fitted: it is asked in words and drives, and its archive says what it knew of such a sentence.

    Question ──> Robot.answer ──> model: S episodes ──> routes, obedience ──┐
                             └──> archive: nearest by text and by end ──────┴──> Answer

Without a target the model acts on the text alone, if it was fitted with some or all targets hidden
(`method.sequence.forget`, `ablate=target`). Otherwise a target is predicted: where the behaviours end whose texts are
most like the sentence. The limit is the model's arithmetic, and one question is answered at a time.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from actors.behaviours.deploy import deploy
from cluster.config import tree
from cluster.runs.folder import RunError, RunFolder, finished_stage, needed_stage
from cluster.stages._shared.lgqd import BehaviourInputs
from envs import navigation
from learner.behaviours import words
from learner.behaviours.lookup import Entry, Lookup
from learner.methods import every_stage
from llm_service.errors import UsageError

Array = NDArray[np.float32]
MOST = 256  # episodes of a question
NEAREST = 3  # entries of the archive that are shown, by text and by end


@dataclass(frozen=True)
class Question:
    """What is asked; lengths are world units, from the map's left upper corner."""

    sentence: str
    target: tuple[float, float] | None = None
    samples: int = 16
    start: tuple[float, float, float] | None = None  # x, y, degrees clockwise from east; None: the map's
    seed: int = 0
    order: str = "forwards"  # in which the sentence names places, for scores and lookup: one of `words.ORDERS`


@dataclass(frozen=True)
class Route:
    """Samples that came to the same places of the sentence in the same order (all places, if it names none)."""

    places: list[str]
    samples: list[int]
    ends: dict[str, int]  # how many ended where; a place is "furniture, tile"
    obedience: float  # mean, in [0, 1]


@dataclass(frozen=True)
class Neighbour:
    """A behaviour of the archive."""

    id: int
    text: str  # "": it has no true text
    likeness: float  # in [0, 1]
    distance: float  # of its end from `Answer.measured_from`, world units
    end: tuple[float, float]
    pose: Array  # [T, 3]


@dataclass(frozen=True)
class Answer:
    """What S episodes did."""

    sentence: str
    pieces: list[tuple[str, bool]]  # of the sentence, in order, and whether the model knows them
    places: list[str]  # that the sentence asks for, in the order of time
    target: tuple[float, float] | None
    target_is: Literal["given", "left out", "predicted"]
    alike: int  # behaviours whose texts are most like the sentence, from which a target is predicted
    start: tuple[float, float, float]  # x, y, degrees
    pose: Array  # [S, T, 3]
    obedience: list[float]  # [S], by the rule
    routes: list[Route]  # the commonest first
    by_text: list[Neighbour]
    by_end: list[Neighbour]

    @property
    def unknown(self) -> list[str]:
        """Words outside the model's vocabulary."""
        return [piece for piece, known in self.pieces if not known]

    @property
    def measured_from(self) -> str:
        """The place that `Neighbour.distance` is measured from."""
        return "the target" if self.target else "the end of the most obedient sample"

    def as_json(self) -> dict[str, Any]:
        """All but the poses, as plain values."""
        ends = self.pose[:, -1, :2].round(1).tolist()
        of_route = {sample: number for number, route in enumerate(self.routes) for sample in route.samples}
        off = [None if self.target is None else math.dist(end, self.target) for end in ends]
        return {
            "sentence": self.sentence,
            "places": self.places,
            "unknown": self.unknown,
            "target": self.target and list(self.target),
            "target_is": self.target_is,
            "alike": self.alike,
            "start": list(self.start),
            "obedience": float(np.mean(self.obedience)),
            "distance": None
            if self.target is None
            else float(np.median([apart for apart in off if apart is not None])),
            "samples": [
                {"route": of_route[s], "obedience": self.obedience[s], "end": end, "distance": off[s]}
                for s, end in enumerate(ends)
            ],
            "routes": [dict(vars(route)) for route in self.routes],
            "measured_from": self.measured_from,
            "by_text": [_plain(neighbour) for neighbour in self.by_text],
            "by_end": [_plain(neighbour) for neighbour in self.by_end],
        }


class Robot:
    """A fitted run, loaded once.

    Raises:
        UsageError: the run has no fitted model, or one that reads no texts, or a file of it is damaged.
    """

    def __init__(self, run: Path) -> None:
        config = tree.load(run / "config.yaml")
        self.name = RunFolder(run).name
        if "imitate" not in {stage.name for stage in every_stage(config)}:
            raise RunError(f"run {self.name!r} fits no robot: only runs of method=lgqd are asked in words")
        if finished_stage(run, config.from_, "imitate") is None:
            raise RunError(f"run {self.name!r} has no fitted model: finish its stage imitate first")
        try:
            self.inputs = BehaviourInputs(config, partial(needed_stage, run, config.from_))
        except ValueError as error:  # of the map
            raise RunError(f"run {self.name!r}: {error}") from None
        method, self.house, self.scene = self.inputs.method, self.inputs.house, self.inputs.scene
        self.settings, blind = method.deploy, method.sequence.model.blind_to
        if "text" in blind:
            ablate = method.sequence.model.ablate
            raise RunError(f"run {self.name!r} was fitted without texts (ablate={ablate}): it reads no sentence")
        self.sees_targets = "target" not in blind
        self.reads_alone = not self.sees_targets or method.sequence.forget > 0
        torch.set_num_threads(config.learner.threads)  # of a small model more would wait for each other
        self.model, self.tokenizer = self.inputs.model(), self.inputs.tokenizer()
        self.table, self.rows = self.inputs.part("train")
        texts = self.inputs.texts()
        of = self.table.id[self.rows].tolist()
        own = [[told._replace(text=plain(told.text)) for told in texts.get(number, [])] for number in of]
        self.archive = Lookup(self.table.descriptor[self.rows], own)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the map, world units."""
        height, width = self.house.walls.shape
        return width / self.house.scale, height / self.house.scale

    def warm_up(self) -> None:
        """Answer a question, so that nothing is left to be compiled when the first one comes."""
        place = None if self.reads_alone else self.house.start[:2]
        self.answer(Question(f"go to the {self.scene.places[0]}", place))

    def answer(self, question: Question) -> Answer:
        """Drive, and look it up.

        Raises:
            UsageError: the question makes no sense to this robot.
        """
        sentence = plain(question.sentence)
        if not 1 <= question.samples <= MOST:
            raise UsageError(f"samples are 1 to {MOST} episodes: got {question.samples}")
        if not 0 <= question.seed < 2**32:
            raise UsageError(f"a seed is 0 to {2**32 - 1}: got {question.seed}")
        if question.order not in words.ORDERS:
            raise UsageError(f"the order of places is one of {', '.join(words.ORDERS)}: got {question.order!r}")
        method = self.inputs.method
        wanted = words.asked(self.scene, sentence, question.order)
        told = words.Description(sentence, tuple(wanted))
        tokens, pieces = self._read(sentence)
        start = self._start(question.start)
        target, target_is, alike = self._target(told, question.target)
        pose = deploy(
            self.model,
            self.house,
            [tokens],
            np.array([target or (np.nan, np.nan)], np.float32),
            np.array([start], np.float32),
            question.samples,
            self.inputs.length,
            stride=method.sequence.stride,
            strategy="sample" if self.settings.strategy == "argmax" else self.settings.strategy,  # or all were equal
            temperature=self.settings.temperature,
            mass=self.settings.mass,
            guidance=self.settings.guidance,
            seed=question.seed,
            memory_gb=self.settings.memory_gb,
            sense=replace(self.inputs.sense, start=start) if method.sequence.odometry else None,  # it knows where it is
        )["pose"][0]
        passed, last = words.visited(self.scene, pose)
        obedience = [words.obeyed(wanted, route, at) for route, at in zip(passed, last, strict=True)]
        place = np.array(target or pose[int(np.argmax(obedience)), -1, :2], np.float32)
        near = self.archive.by_text(told, NEAREST, None if target is None else place)
        return Answer(
            sentence=sentence,
            pieces=pieces,
            places=wanted,
            target=target,
            target_is=target_is,
            alike=alike,
            start=(start[0], start[1], round(math.degrees(start[2]), 1)),
            pose=pose,
            obedience=obedience,
            routes=self._routes(wanted, passed, last, obedience),
            by_text=self._neighbours(near, place),
            by_end=self._neighbours(self.archive.by_end(place, NEAREST, told), place),
        )

    def _read(self, sentence: str) -> tuple[NDArray[np.int32], list[tuple[str, bool]]]:
        """Tokens, and the sentence in pieces that the model knows or does not."""
        if not any(letter.isalnum() for letter in sentence):
            raise UsageError(f"the sentence is empty: say where to go, as in 'go to the {self.scene.places[-1]}'")
        try:
            (tokens,) = words.encode(self.tokenizer, [sentence], self.model.longest[0])
        except ValueError as error:
            raise UsageError(f"{error}: say it shorter") from None
        found = self.tokenizer.encode(sentence)
        pieces, at = list[tuple[str, bool]](), 0
        unknown = self.tokenizer.token_to_id(words.UNKNOWN)
        for (begin, end), token in zip(found.offsets, found.ids, strict=True):
            if token == unknown and any(letter.isalnum() for letter in sentence[begin:end]):
                pieces += [(sentence[at:begin], True), (sentence[begin:end], False)]
                at = end
        pieces.append((sentence[at:], True))
        return tokens, [piece for piece in pieces if piece[0]]

    def _start(self, given: tuple[float, float, float] | None) -> tuple[float, float, float]:
        """x, y and radians."""
        if given is None:
            return self.house.start
        if not abs(given[2]) <= 360:
            raise UsageError(f"the start's angle is -360 to 360 degrees: got {given[2]:g}")
        self._assert_free("start", given[:2])
        return given[0], given[1], math.radians(given[2])

    def _target(
        self, sentence: words.Description, given: tuple[float, float] | None
    ) -> tuple[tuple[float, float] | None, Literal["given", "left out", "predicted"], int]:
        """The target, what it is, and from how many behaviours it is predicted."""
        if given is not None:
            if not self.sees_targets:
                raise UsageError(f"run {self.name!r} was fitted without targets (ablate=target): leave the target out")
            self._assert_free("target", given)
            return given, "given", 0
        if self.reads_alone:
            return None, "left out", 0
        place, alike = self.archive.leads_to(sentence)
        if not alike:
            raise UsageError(
                "no text of the archive is like this sentence, and the model was never fitted without a target: name "
                f"places ({', '.join(self.scene.places[-3:])}, ...), or give a target"
            )
        x, y = place.round(1).tolist()
        return (x, y), "predicted", alike

    def _assert_free(self, what: str, place: tuple[float, float]) -> None:
        (x, y), (width, height) = place, self.size
        if not (0 <= x <= width and 0 <= y <= height):
            raise UsageError(
                f"the {what} ({x:g}, {y:g}) is off the map: x is 0 to {width:g} and y 0 to {height:g}, from the left "
                "upper corner"
            )
        if not navigation.free(self.house, [[x, y, 0.0]])[0]:
            raise UsageError(
                f"the {what} ({x:g}, {y:g}) is in a wall, or nearer to one than the robot's radius: choose a free place"
            )

    def _routes(
        self, wanted: list[str], passed: list[list[str]], last: list[set[str]], obedience: list[float]
    ) -> list[Route]:
        alike: dict[tuple[str, ...], list[int]] = {}
        for sample, visited in enumerate(passed):
            own = [place for place in visited if not wanted or place in wanted]
            once = tuple(place for k, place in enumerate(own) if k == 0 or place != own[k - 1])
            alike.setdefault(once, []).append(sample)
        order = {place: k for k, place in enumerate(reversed(self.scene.places))}  # furniture first
        routes = []
        for places, samples in sorted(alike.items(), key=lambda item: -len(item[1])):
            ends = Counter(", ".join(sorted(last[s], key=order.__getitem__)) or "nowhere" for s in samples)
            mean = float(np.mean([obedience[s] for s in samples]))
            routes.append(Route(list(places), samples, dict(ends.most_common()), mean))
        return routes

    def _neighbours(self, found: list[Entry], place: Array) -> list[Neighbour]:
        rows = self.rows[[entry.row for entry in found]]
        pose = navigation.rollout(self.house, self.table.start[rows], self.table.weights[rows], self.inputs.length)
        neighbours = []
        for entry, row, own in zip(found, rows.tolist(), pose["pose"], strict=True):
            x, y = self.table.descriptor[row].round(1).tolist()
            distance = float(np.linalg.norm(self.table.descriptor[row] - place))
            neighbours.append(Neighbour(int(self.table.id[row]), entry.text, entry.likeness, distance, (x, y), own))
        return neighbours


def plain(text: str) -> str:
    """One line of printable characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _plain(neighbour: Neighbour) -> dict[str, Any]:
    return {name: value for name, value in vars(neighbour).items() if name != "pose"}
