"""What an agent can get beside in a level that is drawn, and the mark of one where it cannot get beside everything."""

from __future__ import annotations

from envs.babyai.symbols import COLOURS, DOOR, EMPTY_CODE, STATES, WALL_CODE
from envs.compiler import compiled
from envs.native.babyai.layout import AT, COUNT, MAP, STRIDE, THING
from envs.native.babyai.plan import COLUMNS, REJECTED, ROOM, ROOMS, ROWS, Plan, Row, wide

_CODES = len(COLOURS) * len(STATES)  # of one kind of object
_DOORS, _AFTER_DOORS = DOOR * _CODES, (DOOR + 1) * _CODES


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
