"""What the stages of behaviour left, for those who look at it: people who judge it, and the report.

    split/trials.jsonl + deploy/episodes.safetensors  ──> Deployed: trials, what was driven, errors and scores
    judge/judgements.jsonl                            ──>   and what the language model thinks
    ratings/<rater>.jsonl (of the run)                ──>   and what people think

A stage lies in the run's folder, or in that of the run which `from` names. An item is the first episode of a trial; its
name is a hash of the text and of all that was driven, so that ratings are never counted for another model's episodes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from cluster.runs.folder import finished_stage
from cluster.runs.run_data import Run, load, part
from envs import navigation
from learner.behaviours import ratings, trials
from learner.behaviours.trials import Trial
from llm_service.errors import UsageError

Array = NDArray[np.float32]
ARRAYS = {"pose": "pose", "error": "error", "score": "score", "replayed_error": "text_blind_replay/error"}
"""Fields by their names in the file."""


@dataclass(frozen=True)
class Deployed:
    """P trials, S episodes each. Errors are world units; scores, the rule's and all others, are in [0, 1]."""

    run: Run
    scene: navigation.Scene
    trials: list[Trial]
    pose: Array  # [P, T, 3] of the first episode: x, y, heading
    error: Array  # [P, S] distance of the end from the target
    score: Array  # [P, S]
    replayed_error: Array  # [P, 1] of the nearest behaviour of what was learned from
    judged: dict[int, float]  # the language model's mean opinion by trial, in its order

    @cached_property
    def items(self) -> list[str]:
        """[P] names of what is shown."""
        return [
            hashlib.sha256(f"{number}\n{trial.text}\n".encode() + pose.tobytes()).hexdigest()[:20]
            for number, (trial, pose) in enumerate(zip(self.trials, self.pose, strict=True))
        ]

    @property
    def diagonal(self) -> float:
        """Of the house, world units."""
        height, width = self.scene.house.walls.shape
        return float(np.hypot(height, width) / self.scene.house.scale)

    @property
    def ratings(self) -> Path:
        """The folder of people's ratings."""
        return self.run.folder / "ratings"

    def opinions(self) -> tuple[dict[str, dict[str, float]], dict[str, float], dict[str, float]]:
        """Scores by item: of each person, of the language model, of the rule.

        Raises:
            UsageError: a file of ratings is damaged.
        """
        shown = dict(zip(self.items, self.score[:, 0].tolist(), strict=True))
        of_people = ratings.read(self.ratings)
        people = {who: {item: s for item, s in given.items() if item in shown} for who, given in of_people.items()}
        model = {self.items[trial]: opinion for trial, opinion in self.judged.items()}
        return {who: given for who, given in people.items() if given}, model, shown


def find_stage(run: Run, stage: str) -> Path | None:
    """The folder of a finished stage, of this run or of the one that `from` names; None if neither has it."""
    return finished_stage(run.folder, str(run.config.get("from") or ""), stage)


def read_house(run: Run) -> navigation.Scene:
    """The furnished house of a run.

    Raises:
        UsageError: its map cannot be read.
    """
    try:
        return navigation.Scene(navigation.load(part(run.config, "env").get("map") or navigation.HOUSE))
    except ValueError as error:
        raise UsageError(f"{run.name}: {error}") from None


def read(folder: Path | Run) -> Deployed:
    """What was deployed in a run.

    Raises:
        UsageError: nothing was, or a file is damaged.
    """
    run = folder if isinstance(folder, Run) else load(folder)
    split, deploy = find_stage(run, "split"), find_stage(run, "deploy")
    if split is None or deploy is None:
        raise UsageError(f"run {run.name!r} has no finished stage deploy: name one whose behaviour was tried on trials")
    asked = trials.load(split)
    path = deploy / "episodes.safetensors"
    try:
        arrays = safetensors.numpy.load_file(path)
        found = {name: arrays[key] for name, key in ARRAYS.items()}
    except (OSError, KeyError, SafetensorError) as error:
        raise UsageError(f"{path} cannot be read: {error}; run the stage deploy again") from None
    if any(len(array) != len(asked) for array in found.values()):
        raise UsageError(f"{path} is not of the {len(asked)} trials of {split}: run the stage deploy again")
    own = run.folder / "stages" / "judge"
    judge = own if (own / "manifest.json").is_file() else deploy.parent / "judge"
    return Deployed(run=run, scene=read_house(run), trials=asked, judged=_judged(judge, len(asked)), **found)


def _judged(folder: Path, count: int) -> dict[int, float]:
    """Mean overall opinion by trial; empty where nothing was judged.

    Raises:
        UsageError: the file is damaged.
    """
    path = folder / "judgements.jsonl"
    if not path.is_file():
        return {}
    votes: dict[int, list[float]] = {}
    try:
        rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            if "failed" not in row:
                votes.setdefault(range(count)[row["trial"]], []).append(row["overall"] / 10)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise UsageError(f"{path} cannot be read: {error}; run the stage judge again") from None
    return {trial: sum(given) / len(given) for trial, given in votes.items()}
