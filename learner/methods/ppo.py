"""PPO: train by the asynchronous actor-learner loop, then evaluate on held-out seeds (Schulman et al. 2017).

    train ──> evaluate

The losses, corrections and hyperparameters are the learner's (`learner/algorithms/ppo`).
"""

from __future__ import annotations

from typing import Any, Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.algorithms import algorithm
from learner.methods import Stage


class Config(Part):
    """PPO has no fields of its own: the learner's are its."""

    name: Literal["ppo"] = "ppo"
    """The module of `learner/methods`."""


def stages(config: Any) -> list[Stage]:
    return [Stage("train", "train"), Stage("evaluate", "evaluate")]


def check(config: Any, spec: EnvSpec) -> None:
    """PPO needs what its algorithm needs, and that this is chosen."""
    if config.learner.algorithm != "ppo":
        raise ValueError(f"method ppo needs learner.algorithm=ppo, got {config.learner.algorithm}")
    algorithm("ppo").check(config, spec)
