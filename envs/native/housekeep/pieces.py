"""Furniture of seeded houses: each piece is tried at random places until it stands in nobody's way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.housekeep.names import KINDS
from envs.native.housekeep import places
from envs.native.housekeep.access import Plan, in_one_piece, is_solid
from envs.native.housekeep.furniture import (
    ASKED,
    BESIDE,
    DOOR,
    FACADE,
    FLAT,
    FLOOR,
    HEIGHTS,
    ON,
    RECIPE,
    WALL,
    WHERE,
    WINDOW,
)
from envs.native.housekeep.layout import CLIMB, EDGE, PIECES, STACKED, Houses
from envs.native.housekeep.rooms import DOORWAY, Random, Rooms
from envs.native.random import draw

MOST_NAMES = 55
_TRIES, _TRIES_MORE = 30, 10  # places that are tried for a piece that a room needs, and for one that it may have
_CLUTTER = 4  # houses have from one part in so many to all of the pieces that they may have


@compiled
def furnish(
    houses: Houses,
    p: int,
    random: Random,
    boxes: Rooms,
    kinds: Rooms,
    count: int,
    kept: Plan,
    solid: Plan,
    marks: NDArray[np.int32],
    spare: Plan,
) -> None:
    """All pieces of house p: first what the rooms need, then what they may have besides.

    Writes pieces, name, box, bottom, top and `stacked`, which `lay` writes again from the others.

    Args:
        boxes, kinds: as `rooms` writes them.
        count: rooms.
        kept: where nothing may be, likewise.
        solid: [EDGE, EDGE], written as `obstruct` does.
        marks, spare: [EDGE * EDGE], [EDGE, EDGE], overwritten.
    """
    named = np.zeros(len(ASKED), np.bool_)
    houses.pieces[p] = 0
    for r in range(EDGE):
        for c in range(EDGE):
            solid[r, c] = houses.room[p, r, c] == 0
            for k in range(STACKED):
                houses.stacked[p, r, c, k] = 0
    names, clutter = 0, 1 + draw(random, _CLUTTER)
    for more in range(2):
        for k in range(count):
            first = houses.pieces[p] + 1 if not more else 1
            if not more and k == 0:
                names += _try(houses, p, random, boxes, k, 0, DOOR, kept, solid, marks, spare, named, first, _TRIES)
            for line in range(len(RECIPE)):
                if RECIPE[line, 0] != kinds[k]:
                    continue
                wanted = RECIPE[line, 1]
                if more:
                    wanted = draw(random, RECIPE[line, 2] - RECIPE[line, 1] + 1)
                for _ in range(wanted):
                    if more and draw(random, _CLUTTER) >= clutter:
                        continue
                    kind, tries = RECIPE[line, 3], _TRIES_MORE if more else _TRIES
                    if names < MOST_NAMES or named[kinds[k] * len(KINDS) + kind]:
                        names += _try(
                            houses, p, random, boxes, k, kinds[k], kind, kept, solid, marks, spare, named, first, tries
                        )
            for _ in range(draw(random, 2) if more else 1):
                names += _try(houses, p, random, boxes, k, 0, WINDOW, kept, solid, marks, spare, named, first, 6)


@compiled
def _try(
    houses: Houses,
    p: int,
    random: Random,
    boxes: Rooms,
    k: int,
    room: int,
    kind: int,
    kept: Plan,
    solid: Plan,
    marks: NDArray[np.int32],
    spare: Plan,
    named: NDArray[np.bool_],
    first: int,
    tries: int,
) -> int:
    """Place a piece in room k of the plan if a place is found; how many new names that brings, 0 or 1.

    What it may stand at or on is looked for among pieces from number `first`.
    """
    n = int(houses.pieces[p]) + 1
    if n > PIECES:
        return 0
    low, high = HEIGHTS[kind, 0], HEIGHTS[kind, 1]
    box, at = houses.box[p, n], boxes[k]
    for attempt in range(tries):
        where = WHERE[kind]
        if where == BESIDE and (2 * attempt >= tries or not places.beside(houses, p, random, at, kind, first, box)):
            where = WALL
        if where == FLOOR and (2 * attempt >= tries or not places.in_the_middle(random, at, kind, box)):
            where = WALL
        if where == ON:
            n_under = places.on(houses, p, random, at, kind, first, box)
            if not n_under:
                continue
            low = houses.top[p, n_under]
            high = low + HEIGHTS[kind, 1] - HEIGHTS[kind, 0]
        if where == FLAT:
            places.flat(random, at, kind, box)
        if where in (WALL, FACADE) and not places.at_wall(houses, p, random, at, kind, where == FACADE, box):
            continue
        needs_base = where == WALL and is_solid(low, high) and low > CLIMB and 3 * attempt < 2 * tries
        if not _fits(houses, p, box, k + 1, low, high, kept, needs_base):
            continue
        if is_solid(low, high):
            _fill(solid, box, 1)
            if not in_one_piece(solid, at[0], at[1], at[2], at[3], marks, spare):
                _empty(houses, p, solid, box)
                continue
        houses.pieces[p] = n
        name = room * len(KINDS) + kind
        houses.name[p, n], houses.bottom[p, n], houses.top[p, n] = name, low, high
        for r in range(box[0], box[2]):
            for c in range(box[1], box[3]):
                stack(houses, p, r, c, n)
        new = not named[name]
        named[name] = True
        return int(new)
    return 0


@compiled
def stack(houses: Houses, p: int, r: int, c: int, n: int) -> None:
    """Put piece n among those over a cell, from low to high; there must be room for it."""
    at = 0
    while at < STACKED - 1 and houses.stacked[p, r, c, at]:
        at += 1
    while at:
        under = houses.stacked[p, r, c, at - 1]
        low, other = houses.bottom[p, n], houses.bottom[p, under]
        if other < low or (other == low and houses.top[p, under] <= houses.top[p, n]):
            break
        houses.stacked[p, r, c, at] = under
        at -= 1
    houses.stacked[p, r, c, at] = n


@compiled
def _fits(
    houses: Houses, p: int, box: NDArray[np.int16], room: int, low: float, high: float, kept: Plan, needs_base: bool
) -> bool:
    """Is the box within the room, before no door, and through no other piece; and over one, if it needs that?"""
    solid = is_solid(low, high)
    for r in range(box[0], box[2]):
        for c in range(box[1], box[3]):
            if houses.room[p, r, c] != room or kept[r, c] == DOORWAY or (kept[r, c] and solid):
                return False
            if houses.stacked[p, r, c, STACKED - 1]:
                return False
            based = not needs_base
            for k in range(STACKED - 1):
                n = houses.stacked[p, r, c, k]
                if not n:
                    break
                bottom, top = houses.bottom[p, n], houses.top[p, n]
                flat = top <= CLIMB
                if low < top and bottom < high and flat == (high <= CLIMB):
                    return False
                based = based or (not flat and top <= low)
            if not based:
                return False
    return True


@compiled
def _fill(solid: Plan, box: NDArray[np.int16], value: int) -> None:
    for r in range(box[0], box[2]):
        for c in range(box[1], box[3]):
            solid[r, c] = value


@compiled
def _empty(houses: Houses, p: int, solid: Plan, box: NDArray[np.int16]) -> None:
    """Take back `_fill`, but for what other pieces fill."""
    for r in range(box[0], box[2]):
        for c in range(box[1], box[3]):
            solid[r, c] = 0
            for k in range(STACKED):
                n = houses.stacked[p, r, c, k]
                if n and is_solid(houses.bottom[p, n], houses.top[p, n]):
                    solid[r, c] = 1
