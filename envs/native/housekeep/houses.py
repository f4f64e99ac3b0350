"""Houses into rows of arrays: from a plan and a list of pieces, or all of it drawn by a seed.

rooms: walls, doors ──> pieces: furniture ──> removal of what cannot be gripped ──> lay: cells and slots
                                                                               ──> contents: objects, start
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.access import can_grip, in_one_piece, obstruct
from envs.native.housekeep.contents import fill
from envs.native.housekeep.furniture import ASKED
from envs.native.housekeep.layout import CELL, EDGE, NOWHERE, OBJECT_HEIGHT, PIECES, SLOTS, STACKED, Houses
from envs.native.housekeep.pieces import furnish, stack
from envs.native.housekeep.rooms import MOST_ROOMS, name_rooms, open_doors, split

FEWEST_PIECES, FEWEST_NAMES = 28, 20
_SLOT_AREA = 0.1  # square metres that an object takes
_ATTEMPTS = 100


@compiled
def generate(houses: Houses, p: int, seed: int, suits: NDArray[np.bool_], misplaced_only: bool) -> bool:
    """Draw house p, its objects and its start by a seed alone.

    Args:
        suits: [len(OBJECTS), len(NAMES)] which object may lie on a piece of which name.
        misplaced_only: there are no other objects than the 3 to 5 that are to be put right.

    Returns:
        False: no house came out in a hundred attempts, as when `suits` allows nothing.
    """
    random = np.empty(1, np.uint64)
    random[0] = np.uint64(seed)
    boxes, kinds = np.zeros((MOST_ROOMS, 4), np.int64), np.zeros(MOST_ROOMS, np.int64)
    kept, solid = np.empty((EDGE, EDGE), np.uint8), np.empty((EDGE, EDGE), np.uint8)
    marks, spare = np.empty(EDGE * EDGE, np.int32), np.empty((EDGE, EDGE), np.uint8)
    for _ in range(_ATTEMPTS):
        count = split(houses, p, random, boxes)
        if not count:
            continue
        open_doors(houses, p, random, boxes, count, kept)
        name_rooms(random, boxes, count, kinds)
        furnish(houses, p, random, boxes, kinds, count, kept, solid, marks, spare)
        lay(houses, p)
        _remove(houses, p, solid)
        if houses.pieces[p] < FEWEST_PIECES or _names(houses, p) < FEWEST_NAMES:
            continue
        if not in_one_piece(solid, 1, 1, houses.size[p, 0] - 1, houses.size[p, 1] - 1, marks, spare):
            continue  # what was removed left floor that nobody can walk to
        if fill(houses, p, random, solid, suits, misplaced_only):
            return True
    return False


@compiled
def lay(houses: Houses, p: int) -> None:
    """Fill `stacked`, `slot`, `capacity` and `slots` of house p from its pieces: pieces, box, bottom, top.

    Slots are cells of a piece that nothing stands on, those first that can be reached from aside. Where other pieces
    leave fewer of these than a piece of its area has slots, it has fewer; at least one it has. Rows of pieces that the
    house does not have become 0, whatever was there before.
    """
    for r in range(EDGE):
        for c in range(EDGE):
            for k in range(STACKED):
                houses.stacked[p, r, c, k], houses.slot[p, r, c, k] = 0, NOWHERE
    for n in range(PIECES + 1):
        box = houses.box[p, n]
        for s in range(SLOTS):
            houses.slots[p, n, s] = 0
        if n == 0 or n > houses.pieces[p]:
            houses.name[p, n], houses.bottom[p, n], houses.top[p, n], houses.capacity[p, n] = 0, 0, 0, 0
            box[0], box[1], box[2], box[3] = 0, 0, 0, 0
        for r in range(box[0], box[2]):
            for c in range(box[1], box[3]):
                stack(houses, p, r, c, n)
    cells = np.empty(EDGE * EDGE, np.int64)
    for n in range(1, houses.pieces[p] + 1):
        box = houses.box[p, n]
        area = (box[2] - box[0]) * (box[3] - box[1]) * CELL * CELL
        capacity = min(max(int(area / _SLOT_AREA + 1e-9), 1), SLOTS)
        chosen = 0
        for inner in range(2):
            found = 0
            for r in range(box[0], box[2]):
                for c in range(box[1], box[3]):
                    if _is_open(houses, p, r, c, n) and _has_open_side(houses, p, r, c, n) != inner:
                        cells[found] = r * EDGE + c
                        found += 1
            for i in range(min(found, capacity - chosen)):
                wanted = min(found, capacity - chosen)
                houses.slots[p, n, chosen + i] = cells[(2 * i + 1) * found // (2 * wanted)]
            chosen += min(found, capacity - chosen)
        if not chosen:
            houses.slots[p, n, 0], chosen = box[0] * EDGE + box[1], 1
        houses.capacity[p, n] = chosen
        for s in range(chosen):
            r, c = houses.slots[p, n, s] // EDGE, houses.slots[p, n, s] % EDGE
            for k in range(STACKED):
                if houses.stacked[p, r, c, k] == n:
                    houses.slot[p, r, c, k] = s


@compiled
def _is_open(houses: Houses, p: int, r: int, c: int, n: int) -> bool:
    """Is there room for an object on top of piece n, or beside it at this height, in a cell?"""
    if not houses.room[p, r, c]:
        return False
    low = houses.top[p, n]
    for k in range(STACKED):
        other = houses.stacked[p, r, c, k]
        if other and other != n and houses.bottom[p, other] < low + OBJECT_HEIGHT and houses.top[p, other] > low:
            return False
    return True


@compiled
def _has_open_side(houses: Houses, p: int, r: int, c: int, n: int) -> bool:
    box = houses.box[p, n]
    for way in range(4):
        nr, nc = r + (way == 0) - (way == 1), c + (way == 2) - (way == 3)
        outside = nr < box[0] or nr >= box[2] or nc < box[1] or nc >= box[3]
        if outside and _is_open(houses, p, nr, nc, n):
            return True
    return False


@compiled
def _remove(houses: Houses, p: int, solid: NDArray[np.uint8]) -> None:
    """Remove pieces that cannot be gripped, with what stands on them, until all can be."""
    while True:
        obstruct(houses, p, solid)
        left, count = 0, int(houses.pieces[p])
        gone = np.zeros(count + 1, np.bool_)
        for n in range(1, count + 1):
            gone[n] = not can_grip(houses, p, solid, n) or _floats(houses, p, n, gone)
            if not gone[n]:
                left += 1
                for i in range(4):
                    houses.box[p, left, i] = houses.box[p, n, i]
                houses.name[p, left] = houses.name[p, n]
                houses.bottom[p, left], houses.top[p, left] = houses.bottom[p, n], houses.top[p, n]
        if left == count:
            return
        houses.pieces[p] = left
        lay(houses, p)


@compiled
def _floats(houses: Houses, p: int, n: int, gone: NDArray[np.bool_]) -> bool:
    """Did piece n stand on one that is gone?"""
    r, c = houses.box[p, n, 0], houses.box[p, n, 1]
    for k in range(STACKED):
        under = houses.stacked[p, r, c, k]
        if under and under < n and gone[under] and houses.bottom[p, n] == houses.top[p, under]:
            return True
    return False


@compiled
def _names(houses: Houses, p: int) -> int:
    """How many different names the pieces have."""
    named = np.zeros(len(ASKED), np.bool_)
    count = 0
    for n in range(1, houses.pieces[p] + 1):
        count += not named[houses.name[p, n]]
        named[houses.name[p, n]] = True
    return count
