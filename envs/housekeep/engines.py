"""What moves players and draws what they see: our own compiled engine here, habitat-sim in `habitat.engine`.

Both write the same arrays, so what is told, wanted and paid (`world`) is the same code above either.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from envs.housekeep.picture import draw
from envs.native.housekeep import loops
from envs.native.housekeep.layout import Houses, State
from envs.native.housekeep.lens import lens
from envs.native.housekeep.pictures import Pictures

Index = NDArray[np.intp]


class Engine(Protocol):
    """N players. What it writes are rows of the arrays of `envs.native.housekeep.layout.State` and of pictures."""

    def begin(self, state: State, pictures: Pictures, index: Index) -> None:
        """Players `index` [n] start anew."""

    def advance(self, state: State, pictures: Pictures, index: Index, actions: NDArray[np.int64]) -> None:
        """Players `index` [n] take `actions` [n]."""

    def frame(self, state: State, pictures: Pictures, i: int, right: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """RGB, uint8 [H, W, 3], of player i for people; `right` [P, OBJECTS, pieces] is what is right where."""

    def close(self) -> None:
        """End what runs beside this process."""


class Embedded:
    """Our own engine.

    Args:
        houses: rows of houses.
        which: int64 [N], the house of each player.
        size: pixels of a side of the pictures.
        see_through: whether hands reach through walls.
    """

    def __init__(self, houses: Houses, which: NDArray[np.int64], size: int, see_through: bool) -> None:
        self._houses, self._which, self._see_through, self._lens = houses, which, see_through, lens(size)

    def begin(self, state: State, pictures: Pictures, index: Index) -> None:
        loops.begin(self._houses, self._which, state, index, self._lens, pictures)

    def advance(self, state: State, pictures: Pictures, index: Index, actions: NDArray[np.int64]) -> None:
        loops.advance(self._houses, self._which, state, index, actions, self._see_through, self._lens, pictures)

    def frame(self, state: State, pictures: Pictures, i: int, right: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """The house from above, beside it what the player sees."""
        return draw(self._houses, int(self._which[i]), state, i, right)

    def close(self) -> None:
        """Nothing runs beside this process."""
