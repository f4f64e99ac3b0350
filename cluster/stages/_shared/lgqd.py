"""Stages on behaviours: archives, their texts and their transformers, read by name.

    merge ──> an EpisodeStore, behaviours.safetensors      split    ──> parts.safetensors, trials.jsonl
    annotate ──> annotations.jsonl                         cluster  ──> centres.safetensors
    describe ──> texts.jsonl                               tokenize ──> tokenizer.json
    drive    ──> an EpisodeStore, named by behaviours
    imitate ──> model.safetensors                          deploy   ──> episodes.safetensors, results.json

A stage reads its inputs from this run, and missing inputs from the run that `from` names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from tokenizers import Tokenizer

from actors.behaviours.driver import Driver
from actors.behaviours.ride import Sense
from cluster.config.tree import Config
from cluster.runs.folder import RunError
from cluster.runs.stage import Run, StageEngine
from envs import navigation
from learner.behaviours.table import PARTS, Behaviours
from learner.behaviours.words import Description, asked
from learner.config import Device
from learner.methods import Stage
from learner.models.sequence.behaviour_transformer import BehaviourModel
from learner.store.episodes import EpisodeStore

BLOCK = 512  # trajectories whose scenes are processed at once
ANNOTATIONS, TEXTS, PARTS_FILE = "annotations.jsonl", "texts.jsonl", "parts.safetensors"
CENTRES, TOKENIZER = "centres.safetensors", "tokenizer.json"
MODEL, EPISODES = "model.safetensors", "episodes.safetensors"


class BehaviourInputs:
    """What the stages on behaviours of a run left, and the furnished house that these drive through.

    Args:
        config: of the run.
        artifact: the folder of a finished stage, by its name; raises RunError if there is none.
    """

    def __init__(self, config: Config, artifact: Callable[[str], Path]) -> None:
        self.artifact, self.method = artifact, cast(Any, config.method)
        options = config.env.options
        self.house = navigation.load(options["map"] or navigation.HOUSE)
        self.scene = navigation.Scene(self.house)
        self.length: int = options["length"]

    @property
    def diagonal(self) -> float:
        """Width of the house, world units."""
        height, width = self.house.walls.shape
        return float(np.hypot(height, width) / self.house.scale)

    def trajectories(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Ids [N] and poses [N, T, 3] of all behaviours, in blocks."""
        table = Behaviours.load(self.artifact("merge"))
        for begin in range(0, len(table), BLOCK):
            rows = np.arange(begin, min(begin + BLOCK, len(table)))
            yield table.id[rows], self.poses(table, rows)

    def poses(self, table: Behaviours, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Poses [N, T, 3] of behaviours `rows` [N] after each step."""
        return navigation.rollout(self.house, table.start[rows], table.weights[rows], self.length)["pose"]

    def driver(self, table: Behaviours, rows: NDArray[np.int64]) -> Driver:
        """Who follows the routes of behaviours `rows` [N], from their starts."""
        route = np.concatenate([table.start[rows, None, :2], self.poses(table, rows)[..., :2]], 1)
        return Driver(self.house, route, self.length, self.method.sequence.stride)

    def texts(self) -> dict[int, list[Description]]:
        """The true texts of each behaviour, by its id."""
        found: dict[int, list[Description]] = {}
        for line in read_lines(self.artifact("describe") / TEXTS):
            if line["true"]:
                places = asked(self.scene, line["text"], line.get("order", "forwards"))  # older files name none
                found.setdefault(line["id"], []).append(Description(line["text"], tuple(places)))
        return found

    def part(self, name: str) -> tuple[Behaviours, NDArray[np.int64]]:
        """All behaviours, and the rows of a part of them."""
        table = Behaviours.load(self.artifact("merge"))
        part = safetensors.numpy.load_file(self.artifact("split") / PARTS_FILE)["part"]
        return table, np.flatnonzero(part == PARTS.index(name))

    def shown(self, *parts: str) -> tuple[Path, NDArray[np.int64], Behaviours, NDArray[np.int64]]:
        """What may be learned from, of these parts: a store, E of its episodes [E], all behaviours, and the row of each
        episode's behaviour [E].

        Behaviours are their own demonstrations, unless a driver followed them.

        Raises:
            RunError: the driver's robots knew their place in another way than this run's.
        """
        table = Behaviours.load(self.artifact("merge"))
        rows = np.sort(np.concatenate([self.part(name)[1] for name in parts]))
        if not self.method.drive.drives:
            return self.artifact("merge"), rows, table, rows
        place = self.artifact("drive")
        store, particles = EpisodeStore(place), self.method.sequence.particles
        if store.about["particles"] != particles:
            told = f"{place} was driven with method.sequence.particles={store.about['particles']}, not {particles}"
            raise RunError(f"{told}: drive again")
        of_id = {number: row for row, number in enumerate(table.id.tolist())}
        row_of = np.array([of_id[number] for number in store.seed.tolist()], np.int64)
        episodes = np.flatnonzero(np.isin(row_of, rows))
        return place, episodes, table, row_of[episodes]

    @property
    def sense(self) -> Sense:
        """How robots know their place."""
        drive = self.method.drive
        return Sense(None, self.method.sequence.particles, drive.distance, drive.degrees)

    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the training texts."""
        return Tokenizer.from_file(str(self.artifact("tokenize") / TOKENIZER))

    @property
    def odometry(self) -> tuple[float, float, float] | None:
        """Start pose of a robot with odometry; None: no odometry."""
        return self.house.start if self.method.sequence.odometry else None

    def model(self, device: Device | None = None) -> BehaviourModel:
        """The fitted transformer, on the configured device or another.

        Raises:
            RunError: its weights were fitted with other settings.
        """
        path = self.artifact("imitate") / MODEL
        try:
            config = self.method.sequence.model.model_copy(update={"device": device} if device else {})
            return BehaviourModel.of(config, safetensors.numpy.load_file(path))
        except ValueError as error:
            raise RunError(f"{path}: {error}; use the method.sequence settings that it was fitted with") from None


class BehaviourStage(StageEngine, BehaviourInputs):
    """A stage on behaviours in a furnished house."""

    by_name: ClassVar[bool] = True

    def __init__(self, run: Run, stage: Stage) -> None:
        super().__init__(run, stage)
        BehaviourInputs.__init__(self, run.config, run.artifact)

    def write_lines(self, name: str, rows: Iterable[Any]) -> None:
        """Write a JSON lines file."""
        self.folder.write(self.place / name, "".join(f"{json.dumps(row)}\n" for row in rows))


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a JSON lines file.

    Raises:
        RunError: one is damaged.
    """
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except ValueError:
                raise RunError(f"{path} is damaged in line {number}: run its stage again") from None
