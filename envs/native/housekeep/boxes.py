"""What a detector would tell of a picture, and a map of what was seen: a row of numbers for each object and each name
of furniture.

    ids of a picture ──> pixels of each instance ──> of each name the piece with most ──> where in the picture
    what is known ──> of each name the nearest piece ──> where from the player
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.layout import CELL, EDGE, NOWHERE, OBJECT, OBJECTS, Houses, State
from envs.native.housekeep.lens import AHEAD, ASIDE
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
    objects: int,
    boxes: NDArray[np.float32],
) -> None:
    """Write the boxes of what players `index` [n] see.

    Args:
        which: [N], the house of each player.
        rank: [P, PIECES + 1], the place of a piece's name among the names of its house.
        ids: [N, S, S], their pictures.
        objects: how many a house has.
        boxes: [n, 1 + objects + names, len(BOX)], written; the first row is that of the nearest object that is seen.
    """
    size = ids.shape[1]
    last = OBJECT + OBJECTS
    sums = np.empty((last, 3), np.int64)  # pixels, and the sums of their columns and rows
    most = np.empty(boxes.shape[1], np.int64)
    for n in range(len(index)):
        i = index[n]
        p = which[i]
        sums[:], most[:], boxes[n] = 0, 0, 0
        for row in range(size):
            for column in range(size):
                instance = ids[i, row, column]
                if instance:
                    sums[instance, 0] += 1
                    sums[instance, 1] += column
                    sums[instance, 2] += row
        for instance in range(1, last):
            count = sums[instance, 0]
            if not count:
                continue
            thing = instance >= OBJECT
            place = 1 + (instance - OBJECT if thing else objects + rank[p, instance])
            if count <= most[place]:
                continue
            most[place] = count
            boxes[n, place, 0] = math.sqrt(count) / size
            boxes[n, place, 1] = (2 * sums[instance, 1] / count + 1 - size) / size
            boxes[n, place, 2] = (2 * sums[instance, 2] / count + 1 - size) / size
            x, y = _middle(houses, p, state, i, instance)
            boxes[n, place, 3] = math.hypot(x - state.x[i], y - state.y[i]) / FAR
            if thing and (not boxes[n, 0, 0] or boxes[n, place, 3] < boxes[n, 0, 3]):
                boxes[n, 0] = boxes[n, place]


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
        hand: [n, 3 + objects + objects + names], written: whether an object is held, whether one is pointed at, whether
            furniture is; and then which object is held, and what is pointed at.
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


@compiled
def mapped(
    houses: Houses,
    which: NDArray[np.int64],
    state: State,
    rank: NDArray[np.uint8],
    index: NDArray[np.int64],
    put: NDArray[np.bool_],
    things: NDArray[np.float32],
) -> None:
    """Write where players `index` [n] know things to be, whether or not they see them now: all that they saw in the
    episode and do not hold, and of each name the nearest piece.

    Args:
        put: [n, objects], which the player has put down.
        things: [n, 1 + objects + names, 3], written: known, 0 or 1; how far ahead and how far to the left, in units of
            `FAR`, 0 for what is not known or held. The first row is that of the nearest object that was not put down.
        others: as of `framed`.
    """
    objects = put.shape[1]
    for n in range(len(index)):
        i = index[n]
        p = which[i]
        ahead, aside = AHEAD[state.heading[i]], ASIDE[state.heading[i]]
        things[n] = 0
        for instance in range(1, OBJECT + objects):
            thing = instance >= OBJECT
            if thing:
                k = instance - OBJECT
                if not (state.met[i] >> k & 1) or state.holding[i] == k:
                    continue
            elif instance > houses.pieces[p] or not (
                state.known[i, instance >> 6] >> np.uint64(instance & 63) & np.uint64(1)
            ):
                continue
            place = 1 + (k if thing else objects + rank[p, instance])
            x, y = _middle(houses, p, state, i, instance)
            x, y = x - state.x[i], y - state.y[i]
            forward, left = (x * ahead + y * aside) / FAR, (y * ahead - x * aside) / FAR
            if _nearer(forward, left, things[n, place]):
                things[n, place, 0], things[n, place, 1], things[n, place, 2] = 1, forward, left
            if thing and not put[n, k] and _nearer(forward, left, things[n, 0]):
                things[n, 0] = things[n, place]


@compiled
def _nearer(forward: float, left: float, told: NDArray[np.float32]) -> bool:
    """Than what is told already, if anything is."""
    return not told[0] or math.hypot(forward, left) < math.hypot(told[1], told[2])
