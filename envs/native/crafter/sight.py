"""What players see, hold and know of themselves: rows -> the arrays that the world above the engine reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.crafter.rules import ACHIEVEMENTS, ARROW, ITEMS, NONE, PLANT, RIPE, VIEW
from envs.native.crafter.layout import ACHIEVED, FACING, FIRST, ITEM, KIND, SLEEPING, X, Y
from envs.native.crafter.objects import DX, DY, material_at, object_at
from envs.native.crafter.player import RIPE_AGE

_COLUMNS, _LINES = VIEW


@compiled
def look(
    rows: NDArray[np.int16],
    index: NDArray[np.int64],
    symbols: NDArray[np.uint8],
    inventory: NDArray[np.int16],
    achieved: NDArray[np.int16],
    ahead: NDArray[np.int16],
    sleeping: NDArray[np.bool_],
) -> None:
    """Write what the players of `rows[index]` see into rows `index` of the other arrays.

    Args:
        rows: [N, ROW].
        index: [M].
        symbols: [N, 9, 7, 3], (material, object, facing) at [column, row] of the view.
        inventory: [N, 16] by ITEMS.
        achieved: [N, 22], how often, by ACHIEVEMENTS.
        ahead: [N, 2], (material, object) of the cell that the player faces.
        sleeping: [N].
    """
    for j in range(len(index)):
        i = index[j]
        row = rows[i]
        for column in range(_COLUMNS):
            for line in range(_LINES):
                x, y = row[X] + column - _COLUMNS // 2, row[Y] + line - _LINES // 2
                thing = object_at(row, x, y)
                kind = _kind(row, thing)
                symbols[i, column, line, 0] = material_at(row, x, y)
                symbols[i, column, line, 1] = kind
                symbols[i, column, line, 2] = row[FIRST + thing] if kind == ARROW else 0
        symbols[i, _COLUMNS // 2, _LINES // 2, 2] = row[FACING]
        x, y = row[X] + DX[row[FACING]], row[Y] + DY[row[FACING]]
        ahead[i, 0] = material_at(row, x, y)
        ahead[i, 1] = _kind(row, object_at(row, x, y))
        for item in range(len(ITEMS)):
            inventory[i, item] = row[ITEM + item]
        for achievement in range(len(ACHIEVEMENTS)):
            achieved[i, achievement] = row[ACHIEVED + achievement]
        sleeping[i] = row[SLEEPING] != 0


@compiled
def _kind(row: NDArray[np.int16], thing: int) -> int:
    """Of OBJECTS, as it looks."""
    if thing < 0:
        return NONE
    kind: int = row[KIND + thing]
    return RIPE if kind == PLANT and row[FIRST + thing] > RIPE_AGE else kind
