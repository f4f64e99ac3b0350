"""PPO's learners between two updates: they act, and record `steps` steps of each task."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec, Observation, VectorEnv
from learner.histories import TASKS, HistoriesConfig, HistoryLearner, kept_fields
from learner.histories.ppo.config import PPOHistoriesConfig


class PPO(HistoryLearner):
    """Learners of N tasks.

    A policy sees one-hot categories and unscaled numbers; if `EnvSpec.staged`, also the logarithm of 1 plus the
    episode's reward so far, which tells a player that it holds a key, or how many goals it has found. It has no other
    memory. A truncated episode is bootstrapped.
    """

    Config: ClassVar[type[PPOHistoriesConfig]] = PPOHistoriesConfig

    @classmethod
    def check(cls, spec: EnvSpec) -> None:
        if not spec.discrete:
            raise ValueError(
                f"method.histories.learner=ppo chooses one of so many actions, and those of {spec.id} are vectors: "
                f"use method.histories.learner={'expert' if spec.expert else 'random'}"
            )
        readable = {"category": 0, "vector": 1}  # kinds, and the dimensions of one value
        for name, field in kept_fields(spec).items():
            if len(field.shape) != readable.get(field.kind, -1):
                raise ValueError(
                    f"method.histories.learner=ppo reads categories that stand alone and vectors, but {name} of "
                    f"{spec.id} is neither: choose another world"
                )

    @classmethod
    def memory(cls, config: HistoriesConfig, spec: EnvSpec) -> int:
        return config.part(PPOHistoriesConfig).steps * (2 * 4 * _columns(spec) + 14)

    def __init__(self, config: HistoriesConfig, env: VectorEnv, seed: int, tasks: NDArray[np.int64]) -> None:
        from learner.histories.ppo.update import Networks, Rollout  # imports PyTorch, which other learners do not need

        self._own, spec, count = config.part(PPOHistoriesConfig), env.env_spec, len(tasks)
        self._names, self._staged, self._seed, self._tasks = tuple(kept_fields(spec)), spec.staged, seed, tasks
        self._shards = [
            (slice(first, first + TASKS), Networks(self._own, spec, seed, tasks[first : first + TASKS]))
            for first in range(0, count, TASKS)
        ]
        self._lived = Rollout.empty(count, self._own.steps, _columns(spec))
        self._filled, self._updates = np.zeros((2, count), np.int64)
        self._paid = np.zeros(count, np.float32)
        self._seen = np.zeros((count, _columns(spec)), np.float32)

    def begin(self, number: int) -> None:
        self._paid[:] = 0

    def act(self, obs: Observation, random: NDArray[np.float64]) -> NDArray[np.int64]:
        """The next action of each task [N].

        random: float64 [N, 2] in [0, 1); the second number samples the action.
        """
        self._seen = self._look(obs)
        logits = np.concatenate([networks.logits(self._seen[own]) for own, networks in self._shards])
        chance = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True)).cumsum(1)
        action: NDArray[np.int64] = (chance < random[:, 1:] * chance[:, -1:]).sum(1)
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
        self._paid += reward
        step, after = (at, self._filled[at]), self._look(obs)
        lived = self._lived
        lived.seen[step], lived.after[step], lived.action[step] = self._seen[at], after[at], action[at]
        lived.reward[step], lived.terminated[step] = reward[at], terminated[at]
        lived.done[step] = (terminated | truncated)[at]
        self._filled[at] += 1
        full = self._filled == self._own.steps
        if full.any():
            for own, networks in self._shards:
                if len(rows := np.flatnonzero(full[own])):
                    networks.update(rows, lived.take(own.start + rows), self._orders(own.start + rows))
            self._updates += full
            self._filled[full] = 0

    def _orders(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """The order of each task's [k] steps in each epoch: int64 [epochs, k, steps]."""
        steps = np.tile(np.arange(self._own.steps), (self._own.epochs, 1))
        names = zip(self._tasks[rows].tolist(), self._updates[rows].tolist(), strict=True)
        drawn = [np.random.default_rng([self._seed, *of, 1]).permuted(steps, axis=1) for of in names]
        return np.stack(drawn, 1)

    def _look(self, obs: Observation) -> NDArray[np.float32]:
        """Observations as numbers side by side, [N, columns]."""
        columns = [obs[name].reshape(len(self._tasks), -1) for name in self._names]
        columns += [np.log1p(self._paid)[:, None]] if self._staged else []
        return np.concatenate(columns, 1, dtype=np.float32)


def _columns(spec: EnvSpec) -> int:
    """How many numbers an observation has; a category is one number."""
    return sum(math.prod(field.shape) for field in kept_fields(spec).values()) + spec.staged
