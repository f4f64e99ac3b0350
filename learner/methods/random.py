"""Random: no training, uniform actions. The lower bound of every table."""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.config import Configuration
from learner.methods import Stage


class Config(Part):
    """Nothing to set."""

    name: Literal["random"] = "random"
    """The module of `learner/methods`."""


def stages(config: Configuration) -> list[Stage]:
    return [Stage("evaluate", "evaluate", player="random")]


def check(config: Configuration, spec: EnvSpec) -> None:
    if not spec.discrete:
        raise ValueError(f"method random needs a discrete action space, but {spec.id} takes vectors")
