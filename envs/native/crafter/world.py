"""The compiled engine: Crafter over rows.

    seeds ──> terrain ──> rows, random rows ──> advance ──> look ──> symbols, inventory, achievements, what is in front

Equal to `envs.crafter.reference` number by number, the random numbers included.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.crafter.world import Crafter
from envs.native.crafter import life
from envs.native.crafter.layout import RANDOM, ROW, STEP, Index
from envs.native.crafter.picture import daylight, draw
from envs.native.crafter.player import costs
from envs.native.crafter.scatter import scatter
from envs.native.crafter.terrain import generate


class NativeCrafter(Crafter):
    """N worlds.

    Args:
        args, rest: as `Crafter`.
        scattered: episodes begin anywhere, see `scatter`.

    Attributes:
        rows: int16 [N, ROW], the worlds, as `layout` says.
        randoms: uint32 [N, RANDOM], what each draws from.

    Raises:
        ValueError: the rules have episodes longer than a row can count.
    """

    def __init__(self, *args: Any, scattered: bool = False, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._scattered = scattered
        length, most = self.rules.length, len(daylight()) - 1
        if length > most:
            raise ValueError(f"the compiled engine counts up to {most} steps an episode, not length={length}")
        self.rows = np.zeros((self.num_envs, ROW), np.int16)
        self.randoms = np.zeros((self.num_envs, RANDOM), np.uint32)
        self._costs = costs(self.rules.table_wood)

    def _generate(self, index: Index, seeds: NDArray[np.int64]) -> None:
        generate(self.rows, self.randoms, index, seeds)
        if self._scattered:
            scatter(self.rows, index, seeds)
        self.effect[index] = False
        self._look(index)

    def _act(self, index: Index, actions: NDArray[np.int64]) -> None:
        damage = self.rules.damage
        life.advance(self.rows, self.randoms, index, actions, self._costs, damage, daylight(), self.effect)
        self._look(index)

    def _look(self, index: Index) -> None:
        life.look(self.rows, index, self.symbols, self.inventory, self.achieved, self.ahead, self.sleeping)

    def _night(self, index: Index) -> NDArray[np.bool_]:
        dark: NDArray[np.bool_] = daylight()[self.rows[index, STEP]] < 0.5
        return dark

    def _pictures(self, index: Index, side: int) -> NDArray[np.uint8]:
        out = np.empty((len(index), side, side, 3), np.uint8)
        draw(self.rows, index, self._seed[index], out)
        return out
