"""Where houses come from: one home, that of the tasks or of a published episode, or a seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from envs.native.housekeep.houses import generate
from envs.native.housekeep.layout import CELL, HEADINGS, Houses, houses
from envs.native.housekeep.motion import stands

Furnish = Callable[[Houses, int, int], None]
"""Write row p of the houses by the seed of an episode."""
Build = Callable[[Houses, int], None]
"""Write row p of the houses."""


def at_home(build: Build, count: int, anywhere: bool) -> tuple[Houses, Furnish | None]:
    """One home, always the same; or so many copies of it, in which each episode begins anywhere."""
    made = houses(count if anywhere else 1)
    build(made, 0)
    for column in made:
        column[1:] = column[0]
    if not anywhere:
        return made, None
    rows, columns = made.size[0].tolist()
    inside = [(r, c) for r in range(1, rows - 1) for c in range(1, columns - 1)]
    free = [cell for cell in inside if stands(made, 0, *_middle(*cell))]

    def start(made: Houses, p: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        made.start[p] = _middle(*free[random.integers(len(free))])
        made.heading[p] = random.integers(HEADINGS)

    return made, start


def by_seed(count: int, suits: NDArray[np.bool_], misplaced_only: bool) -> tuple[Houses, Furnish | None]:
    """So many houses, another one in each episode."""

    def furnish(made: Houses, p: int, seed: int) -> None:
        if not generate(made, p, seed, suits, misplaced_only):
            raise ValueError("env.preferences leaves no house in which things lie wrong that have a right place")

    return houses(count), furnish


def _middle(row: int, column: int) -> tuple[float, float]:
    """Of a cell, x and y in metres."""
    return (column + 0.5) * CELL, (row + 0.5) * CELL
