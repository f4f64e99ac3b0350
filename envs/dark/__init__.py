"""Dark-Room and Key-Door, rooms of 3 to 100 cells a side whose goals cannot be seen; see `world` for the contract."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field as Option

from envs.api import EnvSpec, Field, VectorEnv
from envs.config import Part
from envs.dark import tasks
from envs.dark.expert import Expert
from envs.dark.world import ACTION_NAMES, Dark
from envs.knowledge import Knowledge

__all__ = ["Config", "Dark", "Expert", "has", "knowledge", "make", "names", "spec"]

_NAME = re.compile(r"(Room|KeyDoor)-([1-9]\d*)x([1-9]\d*)")
_SIDE = range(3, 101)
_KINDS = {"Room": "find the goal", "KeyDoor": "find the key, then the door"}


class Config(Part):
    """Options of every dark room."""

    split: Literal["own", "published", "published_train"] = "own"
    """Which tasks there are. `own`: one for each cell, of which training seeds name four fifths, and held-out seeds the
    rest. `published`: the 20 test tasks of Schmied et al. 2024, `published_train`: their 80 training tasks; any seed
    names one, by its remainder."""
    rules: Literal["strict", "legacy"] = "strict"
    """Of KeyDoor. `strict`: every episode needs the key. `legacy`: who has held it once needs it no more, in the same
    env and task: the published system's behaviour."""
    start: Annotated[list[Annotated[int, Option(ge=0)]], Option(min_length=2, max_length=2)] = Option(
        default_factory=lambda: [0, 0]
    )
    """Where episodes begin: row and column, from the top left."""
    observe: Literal["cells", "coordinates"] = "cells"
    """What is observed. `cells`: row and column, a category each. `coordinates`: both as they are, in one vector, so
    that who is fitted in one room can be tried in another, where there are cells that it has not seen."""
    length: Annotated[int, Option(ge=1, lt=2**31)] | None = None
    """Steps after which an episode is truncated. None: as many as the room has cells."""


def names() -> list[str]:
    """The published ones; `has` knows the other sizes."""
    return [f"{kind}-{width}x{height}" for kind in _KINDS for width, height in tasks.PUBLISHED]


def has(name: str) -> bool:
    """Is there a room of this name?"""
    found = _NAME.fullmatch(name)
    return found is not None and all(int(side) in _SIDE for side in found.groups()[1:])


def spec(name: str, config: Config) -> EnvSpec:
    """What a policy must know of it.

    Raises:
        ValueError: options that this room does not have.
    """
    kind, width, height = _parts(name)
    there = _tasks(name, config)
    if kind == "Room" and config.rules != "strict":
        raise ValueError(
            f"env.rules={config.rules} is about keys, and dark/{name} has none: use KeyDoor, or leave it out"
        )
    row, column = config.start
    if row >= height or column >= width:
        raise ValueError(f"env.start={config.start}: dark/{name} has rows 0 to {height - 1}, columns 0 to {width - 1}")
    fields = {"row": Field("category", size=height), "column": Field("category", size=width)}
    if config.observe == "coordinates":
        fields = {"position": Field("vector", (2,), size=max(height, width))}
    return EnvSpec(
        id=f"dark/{name}",
        fields=fields,
        action_names=ACTION_NAMES,
        task_kinds=(_KINDS[kind],),
        score="steps on the goal" if kind == "Room" else "return",
        expert=True,
        staged=kind == "KeyDoor",
        tasks=len(there.goal),
        held_out=there.held_out,
    )


def make(name: str, num_envs: int, seed: int, first_index: int, config: Config) -> VectorEnv:
    """Build N rooms.

    Raises:
        ValueError: as `spec`.
    """
    kind, width, height = _parts(name)
    return Dark(
        spec(name, config),
        num_envs,
        seed,
        first_index,
        width=width,
        height=height,
        tasks=_tasks(name, config),
        keyed=kind == "KeyDoor",
        legacy=config.rules == "legacy",
        start=config.start[0] * width + config.start[1],
        length=config.length or width * height,
    )


def knowledge(name: str = "") -> Knowledge:
    """Where things are is not told: that is what is to be found out."""
    about = "A dark room of square cells. You know where you stand; something is hidden, and it pays to stand on it."
    if name.startswith("KeyDoor"):
        about += " It is a door, and before that you must find its key, which pays once."
    return {
        "name": "dark",
        "about": about,
        "actions": list(ACTION_NAMES),
        "facts": {"can you walk through a wall": False, "can you stay where you are": True},
    }


def _parts(name: str) -> tuple[str, int, int]:
    """Kind, width and height."""
    found = _NAME.fullmatch(name)
    assert found
    return found[1], int(found[2]), int(found[3])


def _tasks(name: str, config: Config) -> tasks.Tasks:
    _, width, height = _parts(name)
    if config.split == "own":
        return tasks.own(width, height)
    if (width, height) not in tasks.PUBLISHED:
        sizes = ", ".join(f"{w}x{h}" for w, h in tasks.PUBLISHED)
        raise ValueError(f"env.split={config.split} is of the rooms {sizes}, not of dark/{name}: use split=own")
    return tasks.published(width, height, training=config.split == "published_train")
