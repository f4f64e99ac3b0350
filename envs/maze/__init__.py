"""MazeRunner: mazes of odd sizes, 7 to 51, with hidden goals to visit in order; see `world` for the contract."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field as Option

from envs.api import EnvSpec, Field, VectorEnv
from envs.config import Part
from envs.knowledge import Knowledge
from envs.maze import mazes
from envs.maze.expert import Expert
from envs.maze.world import ACTION_NAMES, Runner

__all__ = ["Config", "Expert", "Runner", "has", "knowledge", "make", "names", "spec"]

_NAME = re.compile(r"Runner-([1-9]\d*)")
_SIZES = range(7, 52, 2)
_LENGTH = 400  # steps of the published mazes, and in proportion to the cells of others
_MAZES = 100  # as many as were published for training
_SHARE = 5  # as many mazes as this that are trained on, for each that is held out
_SEEDS = {"published": mazes.TEST, "published_train": mazes.TRAINING}


class Config(Part):
    """Options of every maze."""

    split: Literal["own", "published", "published_train"] = "own"
    """Which mazes there are. `own`: of our generator, others for training seeds than for held-out ones. `published`:
    the 20 test mazes of Schmied et al. 2024, `published_train`: their 100 training mazes, both for Runner-15; any seed
    names one, by its remainder."""
    mazes: Annotated[int, Option(ge=5, le=1_000_000)] = _MAZES
    """How many mazes of `split=own` training seeds name; held-out seeds name a fifth as many. A process keeps
    256 at hand; of more, it draws those anew that it has not met of late, which takes some milliseconds each."""
    length: Annotated[int, Option(ge=1, lt=2**31)] | None = None
    """Steps after which an episode is truncated. None: 400 for 15 x 15 cells, as published, else in proportion."""


def names() -> list[str]:
    """The published one; `has` knows the other sizes."""
    return [f"Runner-{mazes.PUBLISHED}"]


def has(name: str) -> bool:
    """Is there a maze of this name?"""
    found = _NAME.fullmatch(name)
    return found is not None and int(found[1]) in _SIZES


def spec(name: str, config: Config) -> EnvSpec:
    """What a policy must know of it.

    Raises:
        ValueError: mazes of this size were not published, or of those that were a number is asked for.
    """
    if config.split != "own" and _size(name) != mazes.PUBLISHED:
        own = f"maze/{name} has split=own only"
        raise ValueError(f"env.split={config.split} is of maze/Runner-{mazes.PUBLISHED}, and {own}: leave it out")
    if config.split != "own" and config.mazes != _MAZES:
        raise ValueError(f"env.mazes={config.mazes} is of split=own, not of split={config.split}: leave env.mazes out")
    held_out = config.mazes // _SHARE if config.split == "own" else 0
    return EnvSpec(
        id=f"maze/{name}",
        fields={"sensors": Field("vector", (6,))},
        action_names=ACTION_NAMES,
        task_kinds=("visit the goals in order",),
        score="goals",
        expert=True,
        staged=True,
        tasks=len(_SEEDS[config.split]) if config.split != "own" else config.mazes + held_out,
        held_out=held_out,
    )


def make(name: str, num_envs: int, seed: int, first_index: int, config: Config) -> VectorEnv:
    """Build N mazes.

    Raises:
        ValueError: as `spec`.
    """
    size, seeds = _size(name), _SEEDS.get(config.split, ())

    def maze(task: int) -> mazes.Maze:
        return mazes.published(seeds[task]) if seeds else mazes.own(size, task, task >= config.mazes)

    length = config.length or _LENGTH * size**2 // mazes.PUBLISHED**2
    return Runner(spec(name, config), num_envs, seed, first_index, size=size, maze=maze, length=length)


def knowledge(name: str = "") -> Knowledge:
    """Where things are is not told: that is what is to be found out."""
    return {
        "name": "maze",
        "about": "A maze of square cells. You know where you stand and how far you could walk each way; hidden places "
        "are to be visited in their order.",
        "actions": list(ACTION_NAMES),
        "facts": {"can you walk through a wall": False, "can you stay where you are": True},
    }


def _size(name: str) -> int:
    found = _NAME.fullmatch(name)
    assert found
    return int(found[1])
