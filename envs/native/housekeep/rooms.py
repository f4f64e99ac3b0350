"""Plans of seeded houses: a rectangle, split again and again by walls of one cell, with doors wide enough to pass."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.access import Plan
from envs.native.housekeep.furniture import FIRST_ROOMS, LIKELY, TWICE, WISH
from envs.native.housekeep.layout import EDGE, Houses
from envs.native.random import draw

Random = NDArray[np.uint64]
Rooms = NDArray[np.int64]

FEWEST_ROOMS, MOST_ROOMS = 3, 9
DOORWAY, BEFORE_DOOR = 2, 1
"""What `kept` marks: a cell of a doorway, where nothing may be, and one before it, where nothing solid may be."""
_NARROWEST = 7  # cells: the side of a room
_DOOR, _FREE = 3, 3  # cells: width of a door, how deep the floor before it stays free
_ROOMY, _SPREAD = 180, 100  # cells a room on average: at least, and how many more
_EXTRA = 4  # of so many walls one has a door although the house hangs together without


@compiled
def split(houses: Houses, p: int, random: Random, boxes: Rooms) -> int:
    """Write size and rooms of house p; the rooms' number. 0: they came out too narrow.

    Args:
        boxes: [MOST_ROOMS, 4], written: first row, first column, row and column after the last; room k has row k - 1.
    """
    count = FEWEST_ROOMS + draw(random, MOST_ROOMS - FEWEST_ROOMS + 1)
    area = count * (_ROOMY + draw(random, _SPREAD))
    rows = int(math.sqrt(area * (0.6 + 0.05 * draw(random, 9))))
    columns = area // rows
    houses.size[p, 0], houses.size[p, 1] = rows + 2, columns + 2
    boxes[0, 0], boxes[0, 1], boxes[0, 2], boxes[0, 3] = 1, 1, rows + 1, columns + 1
    for there in range(1, count):
        largest, most = 0, 0
        for k in range(there):
            size = (boxes[k, 2] - boxes[k, 0]) * (boxes[k, 3] - boxes[k, 1])
            if size > most:
                largest, most = k, size
        box = boxes[largest]
        axis = 0 if box[2] - box[0] > box[3] - box[1] else 1
        side = box[2 + axis] - box[axis]
        if side < 2 * _NARROWEST + 1:
            return 0
        low = max(_NARROWEST, side * 3 // 10)
        wall = box[axis] + low + draw(random, side - 2 * low)
        for i in range(4):
            boxes[there, i] = box[i]
        boxes[there, axis] = wall + 1
        box[2 + axis] = wall
    for r in range(EDGE):
        for c in range(EDGE):
            houses.room[p, r, c] = 0
    for k in range(count):
        for r in range(boxes[k, 0], boxes[k, 2]):
            for c in range(boxes[k, 1], boxes[k, 3]):
                houses.room[p, r, c] = k + 1
    return count


@compiled
def _shared(boxes: Rooms, i: int, j: int) -> tuple[int, int, int]:
    """Axis across which room j follows room i, and from where to where they share that wall; axis -1: they do not."""
    for axis in range(2):
        other = 1 - axis
        low = max(boxes[i, other], boxes[j, other])
        high = min(boxes[i, 2 + other], boxes[j, 2 + other])
        if boxes[i, 2 + axis] + 1 == boxes[j, axis] and high - low >= _DOOR + 2:
            return axis, low, high
    return -1, 0, 0


@compiled
def open_doors(houses: Houses, p: int, random: Random, boxes: Rooms, count: int, kept: Plan) -> None:
    """Doors that connect all rooms, and some more; `kept` [EDGE, EDGE] is marked around them."""
    for r in range(EDGE):
        for c in range(EDGE):
            kept[r, c] = 0
    pairs = np.empty((count * count, 2), np.int64)
    walls = 0
    for i in range(count):
        for j in range(count):
            if _shared(boxes, i, j)[0] >= 0:
                pairs[walls, 0], pairs[walls, 1] = i, j
                walls += 1
    group = np.empty(count, np.int64)
    for k in range(count):
        group[k] = k
    for left in range(walls, 0, -1):
        chosen = draw(random, left)
        i, j = pairs[chosen, 0], pairs[chosen, 1]
        pairs[chosen, 0], pairs[chosen, 1] = pairs[left - 1, 0], pairs[left - 1, 1]
        if group[i] == group[j] and draw(random, _EXTRA):
            continue
        was = group[j]
        for k in range(count):
            if group[k] == was:
                group[k] = group[i]
        axis, low, high = _shared(boxes, i, j)
        start = low + 1 + draw(random, high - low - _DOOR - 1)
        wall = boxes[i, 2 + axis]
        for along in range(start, start + _DOOR):
            for across in range(wall - _FREE, wall + _FREE + 1):
                r, c = (across, along) if axis == 0 else (along, across)
                kept[r, c] = BEFORE_DOOR
                if across == wall:
                    kept[r, c] = DOORWAY
                    houses.room[p, r, c] = i + 1


@compiled
def name_rooms(random: Random, boxes: Rooms, count: int, kinds: Rooms) -> None:
    """What each room is, numbers of ROOMS in kinds [MOST_ROOMS]. What needs much room has a large one."""
    chosen = np.zeros(count, np.int64)
    swap = draw(random, 2)  # a house of three rooms has a living room or a bedroom
    for k in range(count):
        if k < len(FIRST_ROOMS):
            chosen[k] = FIRST_ROOMS[3 if count == FEWEST_ROOMS and k == 2 and swap else k]
            continue
        while not chosen[k]:
            kind = 1 + draw(random, len(WISH) - 1)
            there = 0
            for other in range(k):
                there += chosen[other] == kind
            if draw(random, 3) < LIKELY[kind] and there <= TWICE[kind]:
                chosen[k] = kind
    for k in range(count):
        kinds[k] = 0
    for _ in range(count):
        largest, most, room = 0, -1, -1
        for k in range(count):
            size = (boxes[k, 2] - boxes[k, 0]) * (boxes[k, 3] - boxes[k, 1])
            if not kinds[k] and size > most:
                largest, most = k, size
            if chosen[k] and (room < 0 or WISH[chosen[k]] > WISH[chosen[room]]):
                room = k
        kinds[largest], chosen[room] = chosen[room], 0
