"""PPO: train by the asynchronous actor-learner loop, then evaluate on held-out seeds (Schulman et al. 2017).

    train ──> evaluate

The losses, corrections and hyperparameters are the learner's (`learner/algorithms/ppo`).
"""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from learner.algorithms import algorithm
from learner.config import Configuration
from learner.methods import Stage, TrainingConfig


class Config(TrainingConfig):
    """Options of training by acting; the other options are in `learner`."""

    name: Literal["ppo"] = "ppo"
    """The module of `learner/methods`."""


def stages(config: Configuration) -> list[Stage]:
    return [Stage("train", "train"), Stage("evaluate", "evaluate")]


def check(config: Configuration, spec: EnvSpec) -> None:
    """PPO has its algorithm's requirements, and this algorithm must be selected."""
    if config.learner.algorithm != "ppo":
        raise ValueError(f"method ppo needs learner.algorithm=ppo, got {config.learner.algorithm}")
    algorithm("ppo").check(config, spec)
