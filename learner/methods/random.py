"""Random: no training, uniform actions. The floor under every table."""

from __future__ import annotations

from typing import Any, Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.methods import Stage


class Config(Part):
    """Nothing to set."""

    name: Literal["random"] = "random"
    """The module of `learner/methods`."""


def stages(config: Any) -> list[Stage]:
    return [Stage("evaluate", "evaluate", player="random")]


def check(config: Any, spec: EnvSpec) -> None:
    if not spec.discrete:
        raise ValueError(f"method random needs a discrete action space, but {spec.id} takes vectors")
