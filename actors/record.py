"""The columns of a chunk while it is being played."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.players import Acted
from envs.api import Episodes, Observation, Transition


class Record:
    """T steps of N envs, as far as they are played.

    Args:
        length, n: T and N.
        obs: the first observation of all envs.
    """

    def __init__(self, length: int, n: int, obs: Observation) -> None:
        self.obs = {name: np.empty((length + 1, *value.shape), value.dtype) for name, value in obs.items()}
        for name, value in obs.items():
            self.obs[name][0] = value
        self.action = np.empty((length, n), np.int64)
        self.log_prob = np.empty((length, n), np.float32)
        self.value = np.empty((length + 1, n), np.float32)
        self.reward = np.empty((length, n), np.float32)
        # What wrappers add; columns by name.
        self.rewards: defaultdict[str, NDArray[np.float32]] = defaultdict(lambda: np.zeros((length, n), np.float32))
        self.llm_status = np.zeros((length, n), np.uint8)
        self.terminated = np.empty((length, n), np.bool_)
        self.truncated = np.empty((length, n), np.bool_)
        self.episode = np.empty((length, n), np.int64)
        self.final_index: list[tuple[int, int]] = []
        self.final_memory: list[NDArray[Any]] = []
        self.final_obs: list[Observation] = []
        self.episodes: list[Episodes] = []

    def add(self, t: int, acted: Acted, episode: NDArray[np.int64], transition: Transition) -> None:
        """Step t; `episode`: counters of the episodes that the actions belong to."""
        self.action[t], self.log_prob[t], self.value[t], memory = acted
        self.episode[t] = episode
        self.reward[t], self.terminated[t] = transition.reward, transition.terminated
        self.truncated[t] = transition.truncated
        for name, reward in transition.rewards.items():
            self.rewards[name][t] = reward
        if transition.llm_status is not None:
            self.llm_status[t] = transition.llm_status
        for name, column in transition.obs.items():
            self.obs[name][t + 1] = column
        if len(transition.final_index):
            self.final_index += [(t, int(i)) for i in transition.final_index]
            self.final_obs.append(transition.final_obs)
            self.episodes.append(transition.episodes)
            if memory is not None:
                self.final_memory += [memory[i] for i in transition.final_index]

    def final_observations(self, like: Observation) -> Observation:
        """All last observations of ended episodes, [D, ...]."""
        return {
            name: np.concatenate([value[:0], *[part[name] for part in self.final_obs]]) for name, value in like.items()
        }
