"""Objects of seeded houses, some of them where they do not belong, and where the player begins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.access import Plan, can_lift, is_free
from envs.native.housekeep.furniture import ASKED
from envs.native.housekeep.layout import CELL, HEADINGS, OBJECTS, PIECES, Houses
from envs.native.housekeep.rooms import Random
from envs.native.random import draw

FEWEST_MISPLACED, MOST_MISPLACED, FEWEST_OBJECTS = 3, 5, 7
MOST_ON_A_PIECE = 2
"""Objects that a piece has at first."""
_TRIES = 400


@compiled
def fill(houses: Houses, p: int, random: Random, solid: Plan, suits: NDArray[np.bool_], misplaced_only: bool) -> bool:
    """Draw objects, misplaced ones first, and the start of house p; False: these pieces suit too few of them.

    A slot of a piece that suits is kept for each misplaced object, so all can be put right, if in some order only.

    Args:
        solid: as `obstruct` writes it.
        suits: [len(OBJECTS), len(NAMES)].
    """
    misplaced = FEWEST_MISPLACED + draw(random, MOST_MISPLACED - FEWEST_MISPLACED + 1)
    total = misplaced if misplaced_only else FEWEST_OBJECTS + draw(random, OBJECTS - FEWEST_OBJECTS + 1)
    kept, there = np.zeros(PIECES + 1, np.int64), np.zeros(PIECES + 1, np.int64)
    used = np.zeros(len(suits), np.bool_)
    for k in range(OBJECTS):
        houses.object[p, k], houses.lies[p, k] = 0, 0
    count = 0
    for _ in range(_TRIES):
        if count == total:
            break
        kind = draw(random, len(suits))
        if used[kind]:
            continue
        wrong = count < misplaced
        place = _place(houses, p, random, suits[kind], not wrong, kept, there, True)
        if not place or not can_lift(houses, p, solid, place, there[place]):
            continue
        if wrong:
            aim = _place(houses, p, random, suits[kind], True, kept, there, False)
            if not aim or aim == place:
                continue
            kept[aim] += 1
        there[place] += 1
        used[kind] = True
        houses.object[p, count], houses.lies[p, count] = kind, place
        count += 1
    houses.objects[p] = count
    if count < total:
        return False
    _start(houses, p, random, solid)
    return True


@compiled
def _place(
    houses: Houses,
    p: int,
    random: Random,
    suits: NDArray[np.bool_],
    right: bool,
    kept: NDArray[np.int64],
    there: NDArray[np.int64],
    begins: bool,
) -> int:
    """A random piece with a slot to spare that suits an object, or does not; 0: none. No object begins as a third."""
    found, chosen = 0, 0
    for n in range(1, houses.pieces[p] + 1):
        name = houses.name[p, n]
        if suits[name] != right or not (right or ASKED[name]) or kept[n] + there[n] >= houses.capacity[p, n]:
            continue
        if begins and there[n] >= MOST_ON_A_PIECE:
            continue
        found += 1
        if draw(random, found) == 0:
            chosen = n
    return chosen


@compiled
def _start(houses: Houses, p: int, random: Random, solid: Plan) -> None:
    """Somewhere on free floor, turned anywhere."""
    rows, columns = houses.size[p]
    while True:
        r, c = 1 + draw(random, rows - 1), 1 + draw(random, columns - 1)
        if is_free(solid, r, c):
            break
    houses.start[p, 0], houses.start[p, 1] = c * CELL, r * CELL
    houses.heading[p] = draw(random, HEADINGS)
