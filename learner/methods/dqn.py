"""DQN: learn action values from a replay by the asynchronous actor-learner loop, then evaluate (Mnih et al. 2015).

    train ──> evaluate

The update is `learner/algorithms/dqn`; actors play epsilon-greedily, the evaluation takes the best action.
"""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from learner.algorithms import algorithm
from learner.config import Configuration
from learner.methods import Stage, TrainingConfig
from learner.parts import GuideConfig


class Config(TrainingConfig):
    """Options of training by acting, and its guide; the other options are in `learner`."""

    name: Literal["dqn"] = "dqn"
    """The module of `learner/methods`."""
    guide: GuideConfig = GuideConfig()
    """The guide of exploration."""


def stages(config: Configuration) -> list[Stage]:
    return [Stage("train", "train"), Stage("evaluate", "evaluate")]


def check(config: Configuration, spec: EnvSpec) -> None:
    """DQN has its algorithm's requirements, and this algorithm must be selected."""
    if config.learner.algorithm != "dqn":
        raise ValueError(f"method dqn needs learner.algorithm=dqn, got {config.learner.algorithm}")
    algorithm("dqn").check(config, spec)
