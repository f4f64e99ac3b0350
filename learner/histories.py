"""Learning histories: how learners, one a task, come to be better at their tasks, and what is kept of that.

Whoever reads a history from its first episode to its last sees a learner improve. To predict its next action from that
is to imitate how it learns (Laskin et al. 2022, arXiv 2210.14215). Here are its learners' options, and tabular
Q-learning; who plays is in `actors.histories`.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from envs.api import EnvSpec, Observation
from envs.config import Part

Share = Annotated[float, Option(ge=0, le=1)]


class HistoriesConfig(Part):
    """Learning histories: every task that training seeds name has a learner of its own, which begins with nothing."""

    learner: Literal["q", "expert", "random"] = "q"
    """Who learns. `q`: tabular Q-learning, where all that is observed are categories. `expert`: the world's planner,
    which is hindered by ever less chance. `random`: nobody, chance alone acts, so that returns do not rise."""
    episodes: Annotated[int, Option(ge=1, le=10_000_000)] = 1000
    """Episodes of each task."""
    learning_rate: Annotated[float, Option(gt=0, le=1)] = 0.5
    """`q`: how far a value moves to what was found."""
    discount: Annotated[float, Option(ge=0, lt=1)] = 0.95
    """`q`: gamma."""
    initial: float = 0.0
    """`q`: what every action is worth before it was tried. More than 0 is optimistic: what was not tried is tried."""
    epsilon_begin: Share = 1.0
    """Share of actions that chance chooses in the first episode, of two or more: a single one is among the last."""
    epsilon_end: Share = 0.0
    """The same in the last ones."""
    anneal: Annotated[float, Option(gt=0, le=1)] = 0.8
    """Share of the episodes over which the share of chance falls from the one to the other, along a line."""
    together: Annotated[int, Option(ge=1, le=100_000)] = 128
    """Tasks that an actor plays side by side, in whole shards of 16. It does not show in what is written."""

    def epsilon(self, number: int) -> float:
        """Share of actions that chance chooses in episode `number`, counted from 0."""
        over = self.anneal * (self.episodes - 1)
        part = min(1.0, number / over) if over else 1.0
        return self.epsilon_begin + (self.epsilon_end - self.epsilon_begin) * part


def training_tasks(spec: EnvSpec) -> int:
    """How many tasks training seeds name: they are the first ones."""
    return spec.tasks - spec.held_out


def states(spec: EnvSpec) -> int:
    """How many states a table has: one for each observation, where every field is one category, and shown to a player;
    twice as many where what pays changes within an episode (`EnvSpec.staged`)."""
    return math.prod(field.size for field in spec.fields.values()) * (2 if spec.staged else 1)


class QLearning:
    """Tabular Q-learning (Watkins 1989) of N tasks at once, in one table.

    A state is what is observed; where `EnvSpec.staged` also whether anything was paid in the episode so far, which is
    how a player knows of a key that it holds. Of actions that are worth the same, chance chooses one. The last step of
    an episode that is cut off counts on what would have come.

    Args:
        config: of `learner=q`.
        spec: of the world; every field is one category, and shown to a player.
        tasks: N.

    Attributes:
        values: float64 [N, states, actions].
    """

    def __init__(self, config: HistoriesConfig, spec: EnvSpec, tasks: int) -> None:
        self._config, self._spec = config, spec
        self.values = np.full((tasks, states(spec), len(spec.action_names)), config.initial)
        self._rows = np.arange(tasks)
        self._paid, self._state = np.zeros((2, tasks), np.int64)

    def begin(self, number: int) -> None:
        """Episode `number` begins in every task."""
        self._epsilon = self._config.epsilon(number)
        self._paid = np.zeros(len(self._rows), np.int64)

    def act(self, obs: Observation, random: NDArray[np.float64]) -> NDArray[np.int64]:
        """The next action of each task [N].

        random: float64 [N, 2] in [0, 1): whether chance chooses, and which it takes.
        """
        self._state = self._state_of(obs)
        values = self.values[self._rows, self._state]
        best = values == values.max(1, keepdims=True)
        best[random[:, 0] < self._epsilon] = True  # all the same to it
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
    ) -> None:
        """Learn from a step of tasks `at` [n]; all else is of all tasks [N].

        obs: what was observed after it, in the same episode.
        """
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
            state = state * field.size + obs[name]
        return state
