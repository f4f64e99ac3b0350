"""Noise distillation (Zisman et al. 2024, arXiv 2312.12275): a planner with ever fewer random actions.

It does not learn, but its history looks as if it did. The limit: the environment must have a planner.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs import registry
from envs.api import EnvSpec, Observation, VectorEnv
from learner.histories import HistoriesConfig, HistoryLearner
from learner.histories.random import by_chance


class HinderedExpert(HistoryLearner):
    """The environment's planner, with a share of random actions that decreases from episode to episode."""

    @classmethod
    def check(cls, spec: EnvSpec) -> None:
        if not spec.expert:
            raise ValueError(
                f"method.histories.learner=expert needs an environment with a planner, but {spec.id} has none: "
                "use method.histories.learner=q, ppo or random"
            )

    def __init__(self, config: HistoriesConfig, env: VectorEnv, seed: int, tasks: NDArray[np.int64]) -> None:
        self._config, self._env = config, env
        self._expert = registry.family(env.env_spec.id.partition("/")[0]).Expert()

    def begin(self, number: int) -> None:
        self._epsilon = self._config.epsilon(number)

    def act(self, obs: Observation, random: NDArray[np.float64]) -> NDArray[Any]:
        """The next action of each task [N].

        random: float64 [N, 1 + D] in [0, 1): whether the action is random, and the random action.
        """
        drawn = by_chance(self._env.env_spec, random[:, 1:])
        chance = (random[:, 0] < self._epsilon).reshape(-1, *[1] * (drawn.ndim - 1))
        return np.where(chance, drawn, self._expert.act(self._env))

    def learn(
        self,
        at: NDArray[np.intp],
        action: NDArray[Any],
        reward: NDArray[np.float32],
        obs: Observation,
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> None:
        """Nothing: it does not learn."""


LEARNER = HinderedExpert
