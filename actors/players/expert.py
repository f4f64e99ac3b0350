"""The environment's own planner as a player."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from actors.players import Acted, Player
from envs import registry
from envs.api import Observation

if TYPE_CHECKING:
    from actors.setup import ActorSetup


class ExpertPlayer(Player):
    """Acts by an `Expert` that the environment's family publishes, which sees the full state."""

    def __init__(self, expert: Any) -> None:
        self._expert = expert

    def act(self, obs: Observation, state: NDArray[Any] | None, random: NDArray[np.float32] | None) -> Acted:
        certain = np.zeros(self.env.num_envs, np.float32)
        return Acted(self._expert.act(self.env.unwrapped), certain, certain, None)


def make(setup: ActorSetup, caller: str) -> ExpertPlayer:
    return ExpertPlayer(registry.family(setup.env_id.partition("/")[0]).Expert())
