"""DQN: learn action values from a replay by the asynchronous actor-learner loop, then evaluate (Mnih et al. 2015).

    train ──> evaluate

The update is `learner/algorithms/dqn`; actors play epsilon-greedily, the evaluation takes the best action.
"""

from __future__ import annotations

from typing import Any, Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.algorithms import algorithm
from learner.methods import Stage


class Config(Part):
    """DQN has no fields of its own: `dqn` and `learner` are its."""

    name: Literal["dqn"] = "dqn"
    """The module of `learner/methods`."""


def stages(config: Any) -> list[Stage]:
    return [Stage("train", "train"), Stage("evaluate", "evaluate")]


def check(config: Any, spec: EnvSpec) -> None:
    """DQN needs what its algorithm needs, and that this is chosen."""
    if config.learner.algorithm != "dqn":
        raise ValueError(f"method dqn needs learner.algorithm=dqn, got {config.learner.algorithm}")
    algorithm("dqn").check(config, spec)
