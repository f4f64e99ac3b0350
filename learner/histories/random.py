"""Chance alone acts: a history that does not rise, for worlds that nobody else can play, and for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec, Observation, VectorEnv
from learner.histories import HistoriesConfig, HistoryLearner


def by_chance(spec: EnvSpec, random: NDArray[np.float64]) -> NDArray[Any]:
    """An action of each row, int64 [N] or float32 [N, D], of as many numbers in [0, 1) as it consists of, [N, D]."""
    if spec.discrete:
        return (random[:, 0] * len(spec.action_names)).astype(np.int64)
    low, high = np.array(spec.action_bounds).T
    drawn: NDArray[np.float32] = (low + random * (high - low)).astype(np.float32)
    return drawn


class Random(HistoryLearner):
    """Nobody learns."""

    @classmethod
    def check(cls, spec: EnvSpec) -> None:
        """Chance can play every world."""

    def __init__(self, config: HistoriesConfig, env: VectorEnv, seed: int, tasks: NDArray[np.int64]) -> None:
        self._spec = env.env_spec

    def begin(self, number: int) -> None:
        """All episodes are alike."""

    def act(self, obs: Observation, random: NDArray[np.float64]) -> NDArray[Any]:
        return by_chance(self._spec, random[:, 1:])

    def learn(self, *step: Any, **more: Any) -> None:
        """Nothing."""


LEARNER = Random
