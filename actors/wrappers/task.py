"""An environment's own task in the field in which the policy learned to read goals; the environment itself rewards it.

mission [N] ──> given [N, K]: the mission, and K - 1 empty places
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.wrappers import Setting
from envs.api import DenseEnv, EnvSpec, Field, Observation, Transition, Wrapper
from learner.config import Configuration
from learner.goals import COLUMN, FIELD, MISSION, NO_GOAL, GoalsConfig

Config = GoalsConfig
after = ("captioning",)
training_only = False


def part(config: Configuration) -> GoalsConfig | None:
    goals = config.method.part(GoalsConfig)
    return goals if goals.source == "task" else None


def spec(config: GoalsConfig, spec: EnvSpec) -> EnvSpec:
    """The environment with the field `goals` in place of `mission`."""
    fields = {name: field for name, field in spec.fields.items() if name != MISSION}
    return dataclasses.replace(spec, fields=fields | {FIELD: Field("text", (config.most,))})


def make(config: GoalsConfig, env: DenseEnv, setting: Setting) -> TaskGoal:
    return TaskGoal(env, config.most)


class TaskGoal(Wrapper):
    """Gives the mission as the only goal, in a field of `size` places K."""

    def __init__(self, env: DenseEnv, size: int) -> None:
        super().__init__(env)
        self._size = size
        self._missions = np.zeros(0, np.int32)

    def begin(self, seeds: NDArray[np.int64] | None = None) -> Observation:
        return self._observed(self.env.begin(seeds))

    def advance(self, actions: NDArray[Any]) -> Transition:
        transition = self.env.advance(actions)
        transition.rewards[COLUMN] = np.zeros(self.num_envs, np.float32)  # a learner of goals has this column
        if len(transition.final_index):
            transition.final_obs = self._tell(transition.final_obs)
        transition.obs = self._observed(transition.obs)
        return transition

    def restore(self, state: dict[str, NDArray[Any]]) -> Observation:
        return self._observed(self.env.restore(state))

    def goals_of(self, i: int) -> list[str]:
        return [self.texts[int(self._missions[i])]]

    def _observed(self, obs: Observation) -> Observation:
        """Put the task into an observation of all envs."""
        self._missions = obs[MISSION]
        return self._tell(obs)

    def _tell(self, obs: Observation) -> Observation:
        places = np.full((len(obs[MISSION]), self._size), self.texts.intern(NO_GOAL), np.int32)
        places[:, 0] = obs[MISSION]
        return obs | {FIELD: places}
