"""A player that acts uniformly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from actors.players import Acted, Player
from envs.api import DenseEnv, Observation

if TYPE_CHECKING:
    from actors.setup import ActorSetup


class RandomPlayer(Player):
    """Generates its random numbers itself, from the first seed: it has no best action."""

    def begin(self, env: DenseEnv, seeds: NDArray[np.int64] | None = None) -> None:
        self.env = env
        self._random = np.random.default_rng(0 if seeds is None else int(seeds[0]))

    def act(self, obs: Observation, state: NDArray[Any] | None, random: NDArray[np.float32] | None) -> Acted:
        n, actions = self.env.num_envs, len(self.env.env_spec.action_names)
        action = self._random.integers(actions, size=n)
        return Acted(action, np.full(n, -np.log(actions), np.float32), np.zeros(n, np.float32), None)


def make(setup: ActorSetup, caller: str) -> RandomPlayer:
    return RandomPlayer()
