"""Where a piece of furniture might go: boxes drawn at walls, in the middle, at tables, on others, whether free or not.

Each function writes one box, first row and column, row and column after the last; `at` is the box of the room.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.housekeep.names import KINDS
from envs.native.housekeep.furniture import CELLS, HEIGHTS, TABLES
from envs.native.housekeep.layout import Houses
from envs.native.housekeep.rooms import Random
from envs.native.random import draw

_MARGIN = 2  # cells of free floor around pieces in the middle of a room
_NEAR = 0.16  # metres: how much lower than usual a piece may be that something is put on


@compiled
def _put(box: NDArray[np.int16], r: int, c: int, rows: int, columns: int) -> None:
    box[0], box[1], box[2], box[3] = r, c, r + rows, c + columns


@compiled
def at_wall(
    houses: Houses, p: int, random: Random, at: NDArray[np.int64], kind: int, outer: bool, box: NDArray[np.int16]
) -> bool:
    """With its back to one of the walls, anywhere along it; False: it is too long, or there is no wall behind."""
    side, width, depth = draw(random, 4), CELLS[kind, 0], CELLS[kind, 1]
    axis = side // 2  # 0: a wall along columns
    length = at[3 - axis] - at[1 - axis]
    if width > length or depth > at[2 + axis] - at[axis]:
        return False
    along = at[1 - axis] + draw(random, length - width + 1)
    behind = at[axis] - 1 if side % 2 == 0 else at[2 + axis]
    if outer and behind != 0 and behind != houses.size[p, axis] - 1:
        return False
    across = behind + 1 if side % 2 == 0 else behind - depth
    if axis == 0:
        _put(box, across, along, depth, width)
    else:
        _put(box, along, across, width, depth)
    for i in range(along, along + width):
        if houses.room[p, behind if axis == 0 else i, i if axis == 0 else behind]:
            return False
    return True


@compiled
def _turned(random: Random, kind: int) -> tuple[int, int]:
    """Rows and columns of a piece that may stand either way."""
    if draw(random, 2):
        return CELLS[kind, 0], CELLS[kind, 1]
    return CELLS[kind, 1], CELLS[kind, 0]


@compiled
def in_the_middle(random: Random, at: NDArray[np.int64], kind: int, box: NDArray[np.int16]) -> bool:
    rows, columns = _turned(random, kind)
    spare_rows, spare_columns = at[2] - at[0] - rows - 2 * _MARGIN, at[3] - at[1] - columns - 2 * _MARGIN
    if spare_rows < 0 or spare_columns < 0:
        return False
    r, c = draw(random, spare_rows + 1), draw(random, spare_columns + 1)
    _put(box, at[0] + _MARGIN + r, at[1] + _MARGIN + c, rows, columns)
    return True


@compiled
def flat(random: Random, at: NDArray[np.int64], kind: int, box: NDArray[np.int16]) -> None:
    rows, columns = _turned(random, kind)
    rows, columns = min(rows, at[2] - at[0]), min(columns, at[3] - at[1])
    r, c = draw(random, at[2] - at[0] - rows + 1), draw(random, at[3] - at[1] - columns + 1)
    _put(box, at[0] + r, at[1] + c, rows, columns)


@compiled
def _pick(houses: Houses, p: int, random: Random, at: NDArray[np.int64], first: int, low: float, high: float) -> int:
    """A piece of the room whose top is within these heights and that stands on the floor; 0: the one drawn does not.

    Chairs want a table, which they ask for by heights of 0.
    """
    there = int(houses.pieces[p]) + 1 - first
    for _ in range(8 if there > 0 else 0):
        n = first + draw(random, there)
        r, c = houses.box[p, n, 0], houses.box[p, n, 1]
        if not (at[0] <= r < at[2] and at[1] <= c < at[3]):
            continue
        if high == 0:
            if TABLES[houses.name[p, n] % len(KINDS)]:
                return n
        elif houses.bottom[p, n] == 0 and low <= houses.top[p, n] <= high:
            return n
    return 0


@compiled
def beside(
    houses: Houses, p: int, random: Random, at: NDArray[np.int64], kind: int, first: int, box: NDArray[np.int16]
) -> bool:
    n = _pick(houses, p, random, at, first, 0.0, 0.0)
    if not n:
        return False
    table, side, depth = houses.box[p, n], draw(random, 4), CELLS[kind, 1]
    axis = side // 2
    low, high = int(table[1 - axis]), int(table[3 - axis])
    along = low + draw(random, max(high - low - CELLS[kind, 0] + 1, 1))
    across = int(table[2 + axis]) if side % 2 else int(table[axis]) - depth
    _put(box, across if axis == 0 else along, along if axis == 0 else across, depth, depth)
    return True


@compiled
def on(
    houses: Houses, p: int, random: Random, at: NDArray[np.int64], kind: int, first: int, box: NDArray[np.int16]
) -> int:
    """The piece under it, 0: none; the box is somewhere within that one's."""
    n = _pick(houses, p, random, at, first, HEIGHTS[kind, 0] - _NEAR, HEIGHTS[kind, 0])
    if not n:
        return 0
    rows, columns = _turned(random, kind)
    under = houses.box[p, n]
    spare_rows, spare_columns = int(under[2] - under[0]) - rows, int(under[3] - under[1]) - columns
    if spare_rows < 0 or spare_columns < 0 or spare_rows + spare_columns == 0:
        return 0
    _put(box, under[0] + draw(random, spare_rows + 1), under[1] + draw(random, spare_columns + 1), rows, columns)
    return n
