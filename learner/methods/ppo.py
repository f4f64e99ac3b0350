"""placeholder body follows"""

from __future__ import annotations

from typing import Literal

from envs.config import Part


class Config(Part):
    """PPO has no fields of its own: the learner's are its."""

    name: Literal["ppo"] = "ppo"
    """The module of `learner/methods`."""
