"""The 16 games of Procgen, in a Python of their own since they need an older NumPy; `world` is the contract."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field as Option

from envs.api import EnvSpec, Field, VectorEnv
from envs.config import Part
from envs.knowledge import Knowledge
from envs.procgen.server import SIDE
from envs.procgen.world import Child, Games, ProcgenEnded
from envs.registry import UnknownEnv

__all__ = ["Config", "Games", "ProcgenEnded", "has", "knowledge", "make", "names", "python", "spec"]

GAMES = (
    "bigfish",
    "bossfight",
    "caveflyer",
    "chaser",
    "climber",
    "coinrun",
    "dodgeball",
    "fruitbot",
    "heist",
    "jumper",
    "leaper",
    "maze",
    "miner",
    "ninja",
    "plunder",
    "starpilot",
)
ACTION_NAMES = (
    "left and down",
    "left",
    "left and up",
    "down",
    "nothing",
    "up",
    "right and down",
    "right",
    "right and up",
    *("key D", "key A", "key W", "key S", "key Q", "key E"),
)
_OWN = Path(__file__).parents[2] / ".procgen" / "bin" / "python"
_SET_UP = "python3.11 -m venv .procgen && .procgen/bin/pip install -r envs/procgen/requirements.txt"
_SHORTEST = 500  # steps after which the most impatient games, leaper and maze, end an episode by themselves


class Config(Part):
    """Options of every game."""

    python: str = ""
    """A Python that has Procgen, as a path or a command. Empty: `.procgen/bin/python` beside `launch.py`."""
    mode: Literal["easy", "hard"] = "easy"
    """Procgen's distribution of levels."""
    levels: Annotated[int, Option(ge=1, le=1_000_000_000)] = 200
    """How many levels training seeds name: Procgen's 0, 1, ... in order; any seed names one, by its remainder."""
    held_out: Annotated[int, Option(ge=1, le=1_000_000_000)] = 100
    """How many levels held-out seeds name: those that follow, from `levels` on."""
    length: Annotated[int, Option(ge=1, lt=_SHORTEST)] = 400
    """Steps after which an episode is truncated. Less than 500, after which some games end it without saying that it
    was for the time."""


def names() -> list[str]:
    """All games, wherever Procgen is."""
    return list(GAMES)


def has(name: str) -> bool:
    """Is it one of the games?"""
    return name in GAMES


def python(config: Config) -> str | None:
    """The Python that is to run Procgen, None if it is not there."""
    return shutil.which(config.python or _OWN)


def spec(name: str, config: Config) -> EnvSpec:
    """What a policy must know of it.

    Raises:
        UnknownEnv: the Python that is to run it is not there.
    """
    if python(config) is None:
        raise UnknownEnv(
            f"procgen/{name} needs a Python of its own, and {config.python or _OWN} is none: run `{_SET_UP}` "
            "beside launch.py, or name another one by env.python"
        )
    return EnvSpec(
        id=f"procgen/{name}",
        fields={"pixels": Field("pixels", (SIDE, SIDE, 3))},
        action_names=ACTION_NAMES,
        task_kinds=("complete the level",),
        score="return",
        tasks=config.levels + config.held_out,
        held_out=config.held_out,
    )


def make(name: str, num_envs: int, seed: int, first_index: int, config: Config) -> VectorEnv:
    """Build N of the game.

    Raises:
        UnknownEnv: as `spec`.
        ProcgenEnded: Procgen cannot be imported there, or is of another version.
    """
    found = spec(name, config)
    child = Child(str(python(config)), name, config.mode, num_envs)
    return Games(found, num_envs, seed, first_index, child=child, length=config.length)


def knowledge(name: str = "") -> Knowledge:
    """The little that is common to all games."""
    about = f"{name}, a video game" if name else "Video games"
    return {
        "name": "procgen",
        "about": f"{about} of Procgen, seen as a small picture. Each level is drawn anew.",
        "actions": list(ACTION_NAMES),
    }
