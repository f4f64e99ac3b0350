"""A world's own task, told where the policy learned to read goals; the world itself pays it.

mission [N] ──> told [N, K]: the mission, and K - 1 empty places
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import Observation, Transition, VectorEnv
from learner.goals import FIELD, MISSION, NO_GOAL, GoalsConfig


class TaskGoal:
    """Takes the place of `actors.goals.Goals`, has its attributes and does next to nothing."""

    def __init__(self, config: GoalsConfig, env: VectorEnv) -> None:
        self.env, self._size = env, config.limit
        self.status = np.zeros(env.num_envs, np.uint8)
        self.counted = np.ones(env.num_envs, np.bool_)
        self._missions = np.zeros(0, np.int32)

    def advance(self, transition: Transition) -> NDArray[np.float32]:
        """After a step of the env: no reward, float32 [N]. Tells the task in the observations."""
        if len(transition.final_index):
            transition.final_obs = self._tell(transition.final_obs)
        transition.obs = self.observe(transition.obs)
        return np.zeros(self.env.num_envs, np.float32)

    def observe(self, obs: Observation) -> Observation:
        """Tell the task in an observation of all envs."""
        self._missions = obs[MISSION]
        return self._tell(obs)

    def _tell(self, obs: Observation) -> Observation:
        places = np.full((len(obs[MISSION]), self._size), self.env.texts.intern(NO_GOAL), np.int32)
        places[:, 0] = obs[MISSION]
        return obs | {FIELD: places}

    def names(self, i: int) -> list[str]:
        """What is told to env i now."""
        return [self.env.texts[int(self._missions[i])]]

    def report(self) -> dict[str, list[int]]:
        """Nobody suggested anything."""
        return {}

    def state(self) -> dict[str, NDArray[Any]]:
        """The env's state says all."""
        return {}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Nothing is kept."""
