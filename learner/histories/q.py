"""Tabular Q-learning (Watkins 1989) of many tasks at once, in one table [tasks, states, actions].

For observations of only categories or other whole numbers. The limit is some ten NumPy calls per step, whatever the
number of tasks.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec, Observation, VectorEnv
from learner.histories import HistoriesConfig, HistoryLearner


class QLearning(HistoryLearner):
    """A learner of N tasks.

    A state is an observation; if `EnvSpec.staged`, also whether the episode had any reward so far, which tells a player
    that it holds a key. Ties between actions are broken at random. The last step of a truncated episode is
    bootstrapped.

    Attributes:
        values: float64 [N, states, actions].
    """

    @classmethod
    def check(cls, spec: EnvSpec) -> None:
        if not spec.discrete:
            raise ValueError(
                f"method.histories.learner=q needs a table of actions, and those of {spec.id} are vectors: "
                f"use method.histories.learner={'expert' if spec.expert else 'random'}"
            )
        others = [name for name, field in spec.fields.items() if not field.size or field.privileged]
        if others:
            raise ValueError(
                f"method.histories.learner=q needs a table of states, but {others[0]} of {spec.id} holds no "
                "categories or other whole numbers that are shown to a player: use method.histories.learner=ppo or "
                "expert"
            )

    @classmethod
    def memory(cls, config: HistoriesConfig, spec: EnvSpec) -> int:
        return 8 * states(spec) * len(spec.action_names)

    def __init__(self, config: HistoriesConfig, env: VectorEnv, seed: int, tasks: NDArray[np.int64]) -> None:
        self._config, self._spec = config, env.env_spec
        self.values = np.full((len(tasks), states(self._spec), len(self._spec.action_names)), config.initial)
        self._rows = np.arange(len(tasks))
        self._paid, self._state = np.zeros((2, len(tasks)), np.int64)

    def begin(self, number: int) -> None:
        self._epsilon = self._config.epsilon(number)
        self._paid = np.zeros(len(self._rows), np.int64)

    def act(self, obs: Observation, random: NDArray[np.float64]) -> NDArray[np.int64]:
        """The next action of each task [N].

        random: float64 [N, 2] in [0, 1): whether the action is random, and the choice among candidates.
        """
        self._state = self._state_of(obs)
        values = self.values[self._rows, self._state]
        best = values == values.max(1, keepdims=True)
        best[random[:, 0] < self._epsilon] = True  # a random action: all are candidates
        counted = best.cumsum(1)
        wanted = (random[:, 1] * counted[:, -1]).astype(np.int64)
        action: NDArray[np.int64] = (counted > wanted[:, None]).argmax(1)
        return action

    def learn(
        self,
        at: NDArray[np.intp],
        action: NDArray[np.int64],
        reward: NDArray[np.float32],
        obs: Observation,
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> None:
        if self._spec.staged:
            self._paid |= reward > 0
        before, action = self._state[at], action[at]
        ahead = self.values[at, self._state_of(obs)[at]].max(1)
        found = reward[at] + self._config.discount * np.where(terminated[at], 0.0, ahead)
        value = self.values[at, before, action]
        self.values[at, before, action] = value + self._config.learning_rate * (found - value)

    def _state_of(self, obs: Observation) -> NDArray[np.int64]:
        state = self._paid if self._spec.staged else np.zeros(len(self._rows), np.int64)
        for name, field in self._spec.fields.items():
            for number in obs[name].reshape(len(state), -1).T:
                state = state * field.size + number.astype(np.int64)
        return state


def states(spec: EnvSpec) -> int:
    """Number of states of a table: one per observation, if every field has a `size` and is visible to a player; twice
    as many if the rewarded behaviour changes within an episode (`EnvSpec.staged`)."""
    each = [field.size ** math.prod(field.shape) for field in spec.fields.values()]
    return int(math.prod(each)) * (2 if spec.staged else 1)


LEARNER = QLearning
