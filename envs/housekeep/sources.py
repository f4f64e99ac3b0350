"""Where houses come from: one home, that of the tasks or of a published episode, or a seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from envs.native.housekeep.access import can_lift, obstruct
from envs.native.housekeep.houses import generate
from envs.native.housekeep.layout import CELL, HEADINGS, NOWHERE, REACH, Houses, houses
from envs.native.housekeep.motion import stands

Starts = Literal["fixed", "seed", "exploring"]
Furnish = Callable[[Houses, int, int], None]
"""Write row p of the houses by the seed of an episode."""
SCATTERED, HELD, NEAR = 1 / 3, 1 / 2, 1 / 2
"""Of `exploring` starts: how likely an object lies anywhere, one is in hand, and one is near and ahead."""
Build = Callable[[Houses, int], None]
"""Write row p of the houses."""


def at_home(build: Build, count: int, starts: Starts) -> tuple[Houses, Furnish | None]:
    """One home, always the same; or so many copies of it, in which episodes begin as `Config.starts` says."""
    if starts == "fixed":
        made = houses(1)
        build(made, 0)
        return made, None
    made = houses(count)
    build(made, 0)
    for column in made:
        column[1:] = column[0]
    rows, columns = made.size[0].tolist()
    inside = [(r, c) for r in range(1, rows - 1) for c in range(1, columns - 1)]
    free = [cell for cell in inside if stands(made, 0, *_middle(*cell))]
    floor = np.array([_middle(*cell) for cell in free])
    lies = made.lies[0, : made.objects[0]].copy()
    capacity = _capacity(made) if starts == "exploring" else np.zeros(0, np.int64)

    def start(made: Houses, p: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        made.start[p] = _middle(*free[random.integers(len(free))])
        made.heading[p] = random.integers(HEADINGS)
        if starts == "exploring":
            places = made.lies[p, : len(lies)] = _explored(lies, capacity, random)
            lying = places[(places > 0) & (places != NOWHERE)]
            if len(lying) and random.random() < NEAR:
                made.start[p], made.heading[p] = _before(made, floor, int(random.choice(lying)), random)

    return made, start


def _before(
    made: Houses, floor: NDArray[np.float64], n: int, random: np.random.Generator
) -> tuple[NDArray[np.float64], int]:
    """Where to stand within reach of piece n of the first house and in its room, and the heading towards its middle.

    Args:
        floor: [F, 2], x and y of where a player can stand.
    """
    row, column, end_row, end_column = made.box[0, n].tolist()
    way = np.array([column + end_column, row + end_row]) / 2 * CELL - floor
    columns, rows = (floor // CELL).astype(int).T
    away = np.hypot(*way.T) + 1e3 * (made.room[0, rows, columns] != made.room[0, row, column])
    near = np.flatnonzero(away < max(REACH, away.min() + CELL))
    chosen = random.choice(near)
    turn = math.atan2(way[chosen, 1], way[chosen, 0]) / (2 * math.pi) * HEADINGS
    return floor[chosen], round(turn) % HEADINGS


def _explored(lies: NDArray[np.uint8], capacity: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.uint8]:
    """Where objects [M] are: any number but all of them away; the others where they were or, a third, on any piece that
    has room; but by a coin one of these is held.

    Args:
        capacity: [pieces + 1], how many each holds.
    """
    places, count = lies.copy(), len(lies)
    for k in np.flatnonzero(random.random(count) < SCATTERED).tolist():
        room = capacity > np.bincount(np.delete(places, k), minlength=len(capacity))
        places[k] = random.choice(np.flatnonzero(room))
    left = random.permutation(count)[random.integers(count) :]
    there = np.isin(np.arange(count), left)
    places[~there] = NOWHERE
    if random.random() < HELD:
        places[left[0]] = 0
    return places


def _capacity(made: Houses) -> NDArray[np.int64]:
    """Of each piece of the first house [pieces + 1], how many objects it holds that can all be gripped again."""
    solid = np.zeros(made.room.shape[1:], np.uint8)
    obstruct(made, 0, solid)
    capacity = made.capacity[0, : made.pieces[0] + 1].astype(np.int64)
    for n, slots in enumerate(capacity.tolist()):
        lifted = [can_lift(made, 0, solid, n, slot) for slot in range(slots)]
        capacity[n] = slots if n and all(lifted) else 0
    return capacity


def by_seed(count: int, suits: NDArray[np.bool_], misplaced_only: bool) -> tuple[Houses, Furnish | None]:
    """So many houses, another one in each episode."""

    def furnish(made: Houses, p: int, seed: int) -> None:
        if not generate(made, p, seed, suits, misplaced_only):
            raise ValueError("env.preferences leaves no house in which things lie wrong that have a right place")

    return houses(count), furnish


def _middle(row: int, column: int) -> tuple[float, float]:
    """Of a cell, x and y in metres."""
    return (column + 0.5) * CELL, (row + 0.5) * CELL
