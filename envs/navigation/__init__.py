"""The house: a robot with three lasers and two bumpers finds its way. Maps are data.

`simulate` and `rollout` play thousands of episodes a second outside of any world; navigation/House is in `world`. The
compiled loops are in `envs.native.navigation`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field as Option

from envs.api import EnvSpec, Field, VectorEnv
from envs.config import Part
from envs.navigation.house import HOUSE, Map, Thing, from_picture, load
from envs.navigation.knowledge import knowledge, knowledge_with
from envs.navigation.scene import Scene
from envs.navigation.simulation import FASTEST, LAYERS, PARAMETERS, SENSORS, TENTHS, WHEELS, free, rollout, simulate

__all__ = [
    "FASTEST",
    "HOUSE",
    "LAYERS",
    "PARAMETERS",
    "SENSORS",
    "TENTHS",
    "WHEELS",
    "Config",
    "Map",
    "Scene",
    "Thing",
    "free",
    "from_picture",
    "has",
    "knowledge",
    "knowledge_with",
    "load",
    "make",
    "names",
    "rollout",
    "simulate",
    "spec",
]


class Config(Part):
    """Options of the house."""

    map: str = ""
    """Path of a map's JSON file; empty: the default house."""
    start: Literal["map", "anywhere"] = "map"
    """Where episodes begin: where the map says, or anywhere that is free, in any direction, as the seed decides."""
    length: Annotated[int, Option(ge=1, lt=2**31)] = 400
    """Steps after which an episode is truncated."""
    goal_radius: Annotated[float, Option(gt=0, allow_inf_nan=False)] = 3.5
    """How near to the map's goal a robot must come, world units. It ends the episode."""
    captions: bool = False
    """Observe also `caption`: sentences of where the robot is, which its sensors do not tell."""


def names() -> list[str]:
    return ["House"]


def has(name: str) -> bool:
    """Is there a world of this name?"""
    return name in names()


def spec(name: str, config: Config) -> EnvSpec:
    """What a policy must know of it.

    Raises:
        ValueError: the map is bad.
    """
    fields = {"sensors": Field("vector", (SENSORS,))}
    if config.captions:
        fields["caption"] = Field("text")
    return EnvSpec(
        id=f"navigation/{name}",
        fields=fields,
        action_names=(),
        action_shape=(WHEELS,),
        words=Scene(load(config.map or HOUSE)).words() if config.captions else (),
        captioned=config.captions,
    )


def compile_further() -> None:
    """Compile what steps of a world do not need: whole episodes, of small policies and of given actions."""
    rollout(HOUSE, None, np.zeros((1, PARAMETERS)), 1)
    simulate(HOUSE, None, np.zeros((1, 1, WHEELS)))


def make(name: str, num_envs: int, seed: int, first_index: int, config: Config) -> VectorEnv:
    """Build N robots, each in a house of its own.

    Raises:
        ValueError: the map is bad, or its start is in or at a wall.
    """
    from envs.navigation.world import Navigation  # here, because it brings the compiler along

    return Navigation(
        spec(name, config),
        num_envs,
        seed,
        first_index,
        house=load(config.map or HOUSE),
        start=config.start,
        length=config.length,
        goal_radius=config.goal_radius,
    )
