"""What a level is drawn from: a plan, int64 [plan_size], and the rooms of the level while it is drawn.

    SIZE COLUMNS ROWS                      the map
    FAMILY, PARAMETERS, LISTS              which levels these are, and what Minigrid's class of them is told
    FIXED_LIMIT STRICTNESS UNBLOCKING      what every class may be told
    REJECTED CARRIED, ROOMS                written while a level is drawn

A room is a number, column + row * columns. Behind the rooms come as many numbers as a map has cells, for
`all_reachable`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.babyai.symbols import COLOURS, DOOR, EMPTY_CODE, STATES, WALL_CODE
from envs.compiler import compiled
from envs.native.babyai.layout import AT, COUNT, MAP, STRIDE, THING, Row
from envs.native.random import draw

Plan = NDArray[np.int64]
State = NDArray[np.uint64]
"""[1], a random generator."""
Seeds = NDArray[np.int64]
"""[n], of levels."""

SIZE, COLUMNS, ROWS = 0, 1, 2  # cells along the side of a room, walls included; how many rooms
FAMILY, FIXED_LIMIT = 3, 4  # which of its driver's families; limit of steps, or 0: depends on mission and map
STRICTNESS, UNBLOCKING = 5, 6  # bit c: clause c is strict; 1: as `LevelGen`'s option
REJECTED, CARRIED = 7, 8  # 1: this draw is of no use; the thing that the agent begins with, or NONE
NUMBER = 9  # of distractors; of doors, where the doors are what one has to tell apart
PARAMETERS = 10  # what else the family is told, see there
LISTS = 32  # what `rand_elem` chooses from: for each list its length and its elements
ROOMS, ROOM = 64, 10  # ROOM numbers for each room:
DOOR_AT, LOCKED, CORNER = 4, 8, 9
"""First 4 doors, 1 where there is one, or no wall; then 4 door positions, NOWHERE where there is no neighbour; whether
it is locked; the position of its corner."""

RIGHT, DOWN, LEFT, UP = range(4)  # doors of a room

_CODES = len(COLOURS) * len(STATES)  # of one kind of object
_DOORS, _AFTER_DOORS = DOOR * _CODES, (DOOR + 1) * _CODES


def plan_size(rooms: int, row_size: int) -> int:
    """Integers of a plan."""
    return ROOMS + ROOM * rooms + row_size - MAP


@compiled
def wide(row: Row, at: int) -> int:
    """`row[at]` as an int64; functions are compiled anew for every type of integer that they are called with."""
    value: int = row[at] + 0
    return value


@compiled
def rand_elem(plan: Plan, state: State, which: int) -> int:
    """An element of one of the plan's lists."""
    at = LISTS
    for _ in range(which):
        at += plan[at] + 1
    element: int = plan[at + 1 + draw(state, plan[at])]
    return element


@compiled
def two_of(state: State, number: int) -> tuple[int, int]:
    """Two different numbers of [0, number)."""
    first = draw(state, number)
    return first, (first + 1 + draw(state, number - 1)) % number


@compiled
def any_room(plan: Plan, state: State) -> int:
    """A room, all as likely."""
    return draw(state, plan[COLUMNS] * plan[ROWS])


@compiled
def middle_room(plan: Plan) -> int:
    """The room in column 1 and row 1."""
    room: int = 1 + plan[COLUMNS]
    return room


@compiled
def neighbour(plan: Plan, room: int, door: int) -> int:
    """The room behind a door."""
    step: int = 1 if door % 2 == 0 else plan[COLUMNS]
    return room + (step if door < LEFT else -step)


@compiled
def room_of(row: Row, plan: Plan, at: int) -> int:
    """The room of a position; of a wall, that to its right or below."""
    offset, stride, inner = at - plan[ROOMS + CORNER], wide(row, STRIDE), plan[SIZE] - 1
    room: int = offset // stride // inner * plan[COLUMNS] + offset % stride // inner
    return room


@compiled
def inside(row: Row, plan: Plan, room: int, at: int) -> bool:
    """Is the position in the room or its walls?"""
    offset, stride = at - plan[ROOMS + ROOM * room + CORNER], wide(row, STRIDE)
    return bool(0 <= offset < plan[SIZE] * stride and offset % stride < plan[SIZE])


@compiled
def all_reachable(row: Row, plan: Plan) -> bool:
    """Can the agent get beside everything without moving anything? Doors are no obstacle to it, not even locked ones.

    Everything must be on the map.
    """
    stride = wide(row, STRIDE)
    queue = ROOMS + ROOM * plan[COLUMNS] * plan[ROWS]
    first, last, met = queue, queue + 1, 0
    plan[queue] = row[AT]
    row[MAP + row[AT]] = ~row[MAP + row[AT]]  # a negative cell has been in the queue
    while first < last:
        at = plan[first]
        first += 1
        code = ~row[MAP + at] % THING
        if code == EMPTY_CODE or _DOORS <= code < _AFTER_DOORS:
            for step in (1, stride, -1, -stride):
                cell = row[MAP + at + step]
                if cell >= 0 and cell != WALL_CODE:
                    met += cell != EMPTY_CODE
                    row[MAP + at + step] = ~cell
                    plan[last] = at + step
                    last += 1
    for i in range(queue, last):
        row[MAP + plan[i]] = ~row[MAP + plan[i]]
    return bool(met == row[COUNT])


@compiled
def check_objs_reachable(row: Row, plan: Plan) -> None:
    """Reject the level unless everything can be reached."""
    if not all_reachable(row, plan):
        plan[REJECTED] = 1
