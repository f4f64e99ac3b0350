"""What a detector would tell of a picture: numbers of the nearest object, whichever it is, and of each name of
furniture. So what is learned of one object holds for the next.

    ids of a picture ──> pixels of each instance ──> of each name the piece with most ──> where in the picture, how far
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.layout import CELL, EDGE, NOWHERE, OBJECT, OBJECTS, Houses, State
from envs.native.housekeep.pictures import sketch
from envs.native.housekeep.sight import aim

BOX = ("side", "column", "row", "distance")
"""Numbers of a box: the root of its share of the picture's pixels, 0 if it has none; the middle of these pixels, from
-1 at the left and the top to 1; and how far the middle of the thing is on the plan, in units of `FAR`."""
FAR = 5.0
"""Metres that are 1."""


@compiled
def _middle(houses: Houses, p: int, state: State, i: int, instance: int) -> tuple[float, float]:
    """Of a piece, or of an object that lies somewhere: x and y in metres."""
    if instance < OBJECT:
        box = houses.box[p, instance]
        return (box[1] + box[3]) / 2 * CELL, (box[0] + box[2]) / 2 * CELL
    k = instance - OBJECT
    cell = houses.slots[p, state.place[i, k], state.slot[i, k]]
    return (cell % EDGE + 0.5) * CELL, (cell // EDGE + 0.5) * CELL


@compiled
def framed(
    houses: Houses,
    which: NDArray[np.int64],
    state: State,
    rank: NDArray[np.uint8],
    ids: NDArray[np.uint8],
    index: NDArray[np.int64],
    put: NDArray[np.bool_],
    told: NDArray[np.float32],
) -> None:
    """Write the boxes of what players `index` [n] see.

    Args:
        which: [N], the house of each player.
        rank: [P, PIECES + 1], the place of a piece's name among the names of its house.
        ids: [N, S, S], their pictures.
        put: [n, objects], which the player has put down.
        told: [n, (1 + names) * len(BOX) + objects], written: the box of the nearest object that is seen, of one that
            was not put down if there is any, and of each name that of the piece with most pixels; and which object that
            is, 0 or 1.
    """
    size, objects = ids.shape[1], put.shape[1]
    last = told.shape[1] - objects
    sums = np.empty((OBJECT + OBJECTS, 3), np.int64)  # pixels, and the sums of their columns and rows
    most = np.empty(last // len(BOX), np.int64)
    for n in range(len(index)):
        i = index[n]
        p = which[i]
        sums[:], most[:], told[n] = 0, 0, 0
        for row in range(size):
            for column in range(size):
                instance = ids[i, row, column]
                if instance:
                    sums[instance, 0] += 1
                    sums[instance, 1] += column
                    sums[instance, 2] += row
        nearest, last_put = 0, False
        for instance in range(1, OBJECT + objects):
            count = sums[instance, 0]
            if not count:
                continue
            x, y = _middle(houses, p, state, i, instance)
            far = math.hypot(x - state.x[i], y - state.y[i]) / FAR
            if instance >= OBJECT:
                was_put = put[n, instance - OBJECT]
                if nearest and (was_put, far) >= (last_put, told[n, 3]):
                    continue
                nearest, last_put, at = instance, was_put, 0
            else:
                place = 1 + rank[p, instance]
                if count <= most[place]:
                    continue
                most[place], at = count, place * len(BOX)
            told[n, at] = math.sqrt(count) / size
            told[n, at + 1] = (2 * sums[instance, 1] / count + 1 - size) / size
            told[n, at + 2] = (2 * sums[instance, 2] / count + 1 - size) / size
            told[n, at + 3] = far
        if nearest:
            told[n, last + nearest - OBJECT] = 1


@compiled
def pointed(
    houses: Houses,
    which: NDArray[np.int64],
    state: State,
    rank: NDArray[np.uint8],
    index: NDArray[np.int64],
    see_through: bool,
    objects: int,
    hand: NDArray[np.float32],
) -> None:
    """Write what players `index` [n] hold and what is within their reach in the middle of the picture, as 0 and 1.

    Args:
        see_through: whether hands reach through walls.
        objects: how many a house has.
        hand: [n, 3 + 2 * objects + names, or more], written: whether an object is held, whether one is pointed at,
            whether furniture is; and then which object is held, and what is pointed at; and 0 after that.
        others: as of `framed`.
    """
    drawn = sketch(1)
    for n in range(len(index)):
        i = index[n]
        p = which[i]
        hand[n] = 0
        if state.holding[i] != NOWHERE:
            hand[n, 0] = hand[n, 3 + state.holding[i]] = 1
        instance = aim(houses, p, state, i, see_through, drawn)
        if instance:
            place = instance - OBJECT if instance >= OBJECT else objects + rank[p, instance]
            hand[n, 1 if instance >= OBJECT else 2] = hand[n, 3 + objects + place] = 1
