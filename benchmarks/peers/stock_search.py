"""Novelty search as it is commonly written: one robot, a Python step, a PyTorch network, a tree that is rebuilt.

It has the shape of the published loop (Salehi and Doncieux 2023). Each policy is played alone, step by step, and its
observations, actions and places are kept. Its network of 302 weights is called for every single observation. Each
generation builds scikit-learn's tree of archive and population. The simulator is ours, called for one robot and one
step, which is faster than the wrapped one of the published code (60 instead of 118 us a step with the network).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from envs import navigation
from envs.native.navigation import loops
from envs.native.navigation.floor import floor

LAYERS = ((5, 10), (10, 10), (10, 10), (10, 2))


class House:
    """The env of one robot."""

    def __init__(self, steps: int) -> None:
        house = navigation.load()
        self.floor, self.steps = floor(house.walls, house.world_size), steps
        self.start = np.array([house.start], np.float32)
        self.pose, self.obs = np.empty((1, 1, 3), np.float32), np.empty((1, 1, 5), np.float32)

    def reset(self) -> NDArray[np.float32]:
        self.place, self.taken = self.start.copy(), 0
        return self.step(np.zeros(2, np.float32))[0]

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, dict[str, Any]]:
        loops.record(self.floor, self.place, action.clip(-4, 4)[None, None], self.pose, self.obs)
        self.place = self.pose[0].copy()
        self.taken += 1
        return self.obs[0, 0].copy(), 0.0, self.taken > self.steps, {"pose": self.place[0]}


class Policy(torch.nn.Module):
    """A network of 302 weights."""

    def __init__(self, weights: NDArray[np.float32]) -> None:
        super().__init__()
        parts: list[torch.nn.Module] = []
        for inputs, outputs in LAYERS:
            parts += [torch.nn.Linear(inputs, outputs), torch.nn.Tanh()]
        self.network = torch.nn.Sequential(*parts[:-1])
        torch.nn.utils.vector_to_parameters(torch.from_numpy(weights), self.parameters())

    def forward(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            found: NDArray[np.float32] = self.network(torch.from_numpy(observation)[None])[0].numpy()
        return found.round(1)


def play(house: House, weights: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """A policy's observation and action at each step, and its place after it: [T, 5], [T, 2], [T, 2]."""
    policy, observation, done = Policy(weights), house.reset(), False
    kept: dict[str, list[NDArray[Any]]] = {"observation": [], "action": [], "place": []}
    while not done:
        action = policy(observation)
        kept["observation"].append(observation)
        kept["action"].append(action)
        observation, _, done, info = house.step(action)
        kept["place"].append(info["pose"][:2].astype(np.float64))
    return {name: np.stack(values) for name, values in kept.items()}


def novelty(known: NDArray[np.float64], population: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Mean distance of each member of the population to its k - 1 nearest others."""
    from sklearn.neighbors import KDTree  # type: ignore[import-untyped]

    distance, _ = KDTree(np.concatenate([known, population])).query(population, k)
    found: NDArray[np.float64] = distance[:, 1:].mean(1)
    return found
