"""The DeepMind Control Suite: bodies that are to stand, run, swing or reach, many tasks as one world.

Mission: none is said; what is to be done shows in the reward alone.
Actions: float32 [6] in [-1, 1], of which a task takes its first 1 to 6; clipped.
Observation: `observation` float32 [204]: all that the suite lets the task observe, in its order, then zeros.
Reward: the suite's own, 0 to 1 in a step.
Termination: none. Truncation: after `Config.length` steps.
Tasks: 11 that training seeds name and 5 that held-out seeds name (Schmied et al. 2024, arXiv 2410.07071). The seed of
an episode names its task, and draws how it begins.
Ids: control/Tasks

Simulated by dm_control (Tunyasuvunakool et al. 2020, arXiv 2006.12983), an extra: see `envs.pool`.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from envs import pool
from envs.api import EnvSpec, VectorEnv
from envs.knowledge import Knowledge
from envs.pool import Pool, TasksConfig, simulator, spec_of

TRAINING = (
    "finger-turn_easy",
    "fish-upright",
    "hopper-stand",
    "point_mass-easy",
    "walker-stand",
    "walker-run",
    "ball_in_cup-catch",
    "cartpole-swingup",
    "cheetah-run",
    "finger-spin",
    "reacher-easy",
)
HELD_OUT = ("cartpole-balance", "finger-turn_hard", "pendulum-swingup", "reacher-hard", "walker-walk")
OBSERVED, NUMBERS = 204, 6
"""Of an observation and an action, as published; the tasks need at most 24 and 6."""


class Config(TasksConfig):
    """Options of the suite."""

    length: Annotated[int, Option(ge=1, lt=2**31)] = 1000
    """Steps after which an episode is truncated."""


def names() -> list[str]:
    return ["Tasks"]


def has(name: str) -> bool:
    """Is there a world of this name?"""
    return name in names()


def missing(config: Config) -> str:
    """As `envs.pool.missing`."""
    return pool.missing("dm_control")


def spec(name: str, config: Config) -> EnvSpec:
    """What a policy must know of it.

    Raises:
        ValueError: a task that there is not, or one that is named twice.
    """
    return spec_of(f"control/{name}", OBSERVED, NUMBERS, config.tasks(TRAINING, HELD_OUT), score="return")


def make(name: str, num_envs: int, seed: int, first_index: int, config: Config) -> VectorEnv:
    """Build N envs.

    Raises:
        ModuleNotFoundError: dm_control is not installed.
        ValueError: as `spec`.
    """
    suite = simulator("dm_control.suite")
    training, held_out = config.tasks(TRAINING, HELD_OUT)
    return Pool(
        spec(name, config),
        num_envs,
        seed,
        first_index,
        tasks=training + held_out,
        build=lambda task: Body(suite, task),
        length=config.length,
    )


def knowledge(name: str = "") -> Knowledge:
    """What is to be done is not told: that is what is to be found out."""
    return {"name": "control", "about": "A simulated body with motors; moving it in the right way pays.", "actions": []}


class Body:
    """One task of the suite, `domain-task`."""

    def __init__(self, suite: Any, task: str) -> None:
        domain, _, name = task.partition("-")
        self._env = suite.load(domain, name, task_kwargs={"random": 0, "time_limit": math.inf})
        self._numbers = self._env.action_spec().shape[0]

    def reset(self, task: int, seed: int) -> NDArray[np.float64]:
        self._env.task.random.seed(seed % 2**32)
        return _flat(self._env.reset())

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float64], float, bool, bool]:
        now = self._env.step(action[: self._numbers])
        return _flat(now), float(now.reward), now.discount == 0, False


def _flat(now: Any) -> NDArray[np.float64]:
    return np.concatenate([np.ravel(part) for part in now.observation.values()])
