"""Options of PPO for learning histories."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field as Option

from envs.config import Part


class PPOHistoriesConfig(Part):
    """`ppo`: PPO of each task. Defaults are the values of Schmied et al. 2024 for rooms of 10 x 10 cells; larger rooms
    had 30 epochs there, and 40x20 an entropy coefficient of 0.1."""

    learning_rate: Annotated[float, Option(gt=0, le=1)] = 3e-4
    """Step size of Adam."""
    steps: Annotated[int, Option(ge=2, le=1_000_000)] = 2048
    """Steps of a task between two updates, across episodes."""
    minibatch: Annotated[int, Option(ge=2)] = 64
    """Env steps per gradient step; the last one of an epoch gets the rest."""
    epochs: Annotated[int, Option(ge=1)] = 10
    """Passes over the steps of an update."""
    discount: Annotated[float, Option(ge=0, lt=1)] = 0.99
    """Gamma."""
    gae_lambda: Annotated[float, Option(ge=0, le=1)] = 0.95
    """Lambda of GAE."""
    clip: Annotated[float, Option(gt=0, lt=1)] = 0.2
    """Clip range of the probability ratio."""
    entropy: Annotated[float, Option(ge=0)] = 0.01
    """Weight of the entropy bonus."""
    gradient_clip: Annotated[float, Option(gt=0)] = 0.5
    """Largest global norm of a task's gradient."""
    hidden: Annotated[int, Option(ge=1)] = 64
    """Width of both hidden layers, in the policy and in the value network."""
