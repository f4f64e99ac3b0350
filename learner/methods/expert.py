"""Expert: no training; the environment's own planner acts. The upper bound of every table, if an environment has
one."""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.config import Configuration
from learner.methods import Stage


class Config(Part):
    """Nothing to set."""

    name: Literal["expert"] = "expert"
    """The module of `learner/methods`."""


def stages(config: Configuration) -> list[Stage]:
    return [Stage("evaluate", "evaluate", player="expert")]


def check(config: Configuration, spec: EnvSpec) -> None:
    if not spec.expert:
        raise ValueError(f"method expert needs a world with a planner, such as babyai/..., but {spec.id} has none")
