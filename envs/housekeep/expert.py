"""Who knows the house, and what belongs where: it fetches the nearest object that lies wrong, and brings it home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from envs.native.housekeep.layout import Houses, State


class World(Protocol):
    """What the expert looks at."""

    houses: Houses
    which: NDArray[np.int64]
    """[N], the house of each player."""
    players: State
    suits: NDArray[np.bool_]
    """[len(OBJECTS), len(NAMES)] which object is right on a piece of which name."""


class Expert:
    """Near the ceiling of a house. It looks at the world, not at observations, so it also goes on from anyone's steps.

    One that finds nothing to do turns left.
    """

    def __init__(self) -> None:
        self._env: World | None = None
        self._ways: Any = None
        self._search: Any = None
        self._trial: Any = None

    def act(self, env: World) -> NDArray[np.int64]:
        """The next action of each env, int64 [N]; a step where a new way is planned takes some milliseconds."""
        from envs.native.housekeep import layout  # here, because it brings the compiler along
        from envs.native.housekeep.planner import planning, searching

        if env is not self._env:
            self._env, self._ways = env, planning.ways(len(env.which))
            self._search, self._trial = searching.search(), layout.players(1)
        actions = np.empty(len(env.which), np.int64)
        planning.act(env.houses, env.which, env.players, env.suits, self._ways, self._search, self._trial, actions)
        return actions
