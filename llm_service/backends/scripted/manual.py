"""What the scripted model knows of an environment's goals: a hand-written file `manuals/NAME.yaml`, by its name.

A language model knows a game from what was written about it, not from its program. So where an environment's oracle is
what the model is compared with, the model's knowledge is a file of its own: a list of `Known`, the best goal first.
Where there is no such file, the model knows what the environment publishes.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import Field, TypeAdapter

from llm_service.world import Goal, World

FOLDER = Path(__file__).parent / "manuals"
_LEAST = 0.3
"""Worth of the last goal of a file; the first is worth 1."""


class Known(Goal):
    """A goal as the scripted model knows it."""

    pointless_without: list[str] = Field(default=[])
    """Patterns of which one must occur in the observation or inventory; else the goal is pointless now."""
    said: list[str] = Field(default=[])
    """Other wordings of it, patterns with the goal's slots."""


_FILE = TypeAdapter(list[Known])


def known(world: World) -> list[Known]:
    """The goals that the model knows in this environment."""
    file = {path.stem: path for path in FOLDER.glob("*.yaml")}.get(world.name)
    if file is None:
        return [Known(**goal.model_dump()) for goal in world.goals]
    goals = _FILE.validate_python(yaml.safe_load(file.read_text(encoding="utf-8")))
    step = (1 - _LEAST) / max(1, len(goals) - 1)
    return [goal.model_copy(update={"worth": 1 - step * rank}) for rank, goal in enumerate(goals)]


def text(goals: list[Known]) -> str:
    """All that the goals say, as JSON: part of the model's name."""
    return _FILE.dump_json(goals).decode()
