"""PPO: train by the asynchronous actor-learner loop, then evaluate on held-out seeds (Schulman et al. 2017).

    train ──> evaluate

The losses, corrections and hyperparameters are the learner's (`learner/ppo.py`).
"""

from __future__ import annotations

from typing import Any, Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.methods import Stage
from learner.precision import halves


class Config(Part):
    """PPO has no fields of its own: the learner's are its."""

    name: Literal["ppo"] = "ppo"
    """The module of `learner/methods`."""


def stages(config: Any) -> list[Stage]:
    return [Stage("train", "train"), Stage("evaluate", "evaluate")]


def check(config: Any, spec: EnvSpec) -> None:
    """PPO here needs a discrete action space and a network that can read the world."""
    if not spec.discrete:
        raise ValueError(
            f"method ppo needs a discrete action space, but {spec.id} takes vectors of {spec.action_shape}"
        )
    for key, found, needed in (
        ("learner.algorithm", config.learner.algorithm, "ppo"),
        ("policy.head", config.policy.head, "actor_critic"),
        ("policy.stack", config.policy.stack, 1),
    ):
        if found != needed:
            raise ValueError(f"method ppo needs {key}={needed}, got {found}")
    if config.dqn.guide:
        raise ValueError("dqn.guide acts where epsilon says so, which PPO does not have: use learner.algorithm=dqn")
    policy = config.policy
    if config.learner.ratio == "token" and (policy.network != "language_model" or policy.lm.head != "scores"):
        raise ValueError(
            "learner.ratio=token needs actions that are spelt: policy.network=language_model, lm.head=scores"
        )
    halves(config.learner.autocast)
