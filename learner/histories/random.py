"""Random actions: a history without progress, for environments that no other learner can play, and for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec, Observation, VectorEnv
from learner.histories import HistoriesConfig, HistoryLearner


def by_chance(spec: EnvSpec, random: NDArray[np.float64]) -> NDArray[Any]:
    """An action for each row, int64 [N] or float32 [N, D], from random numbers [N, D] in [0, 1), one per dimension."""
    if spec.discrete:
        return (random[:, 0] * len(spec.action_names)).astype(np.int64)
    low, high = np.array(spec.action_bounds).T
    drawn: NDArray[np.float32] = (low + random * (high - low)).astype(np.float32)
    return drawn


class Random(HistoryLearner):
    """Acts at random, and does not learn."""

    @classmethod
    def check(cls, spec: EnvSpec) -> None:
        """Every environment can be played at random."""

    def __init__(self, config: HistoriesConfig, env: VectorEnv, seed: int, tasks: NDArray[np.int64]) -> None:
        self._spec = env.env_spec

    def begin(self, number: int) -> None:
        """All episodes are alike."""

    def act(self, obs: Observation, random: NDArray[np.float64]) -> NDArray[Any]:
        return by_chance(self._spec, random[:, 1:])

    def learn(self, *step: Any, **more: Any) -> None:
        """Nothing."""


LEARNER = Random
