"""Objects of a world: how they come, move and go.

An object is a place in the columns of `layout`. What is removed keeps its place until `tidy` at the end of the step,
with kind NONE: it may still be in the middle of its turn, and those behind it must not move up under a loop.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.crafter.rules import AREA, FACINGS, GRASS, NONE, NOTHING, PATH, SAND
from envs.native.crafter.layout import (
    AT_X,
    AT_Y,
    CHUNK,
    CHUNK_NUMBER,
    CHUNK_SIDE,
    CHUNKS,
    COUNT,
    FIRST,
    HEALTH,
    KIND,
    MATERIAL,
    OBJECT,
    OBJECTS_MOST,
    Row,
)

STILL = len(FACINGS)
"""The direction to oneself. `direction ^ 1` is the opposite of a direction."""
DX: NDArray[np.int64] = np.array([*(dx for dx, _ in FACINGS), 0, 0])
DY: NDArray[np.int64] = np.array([*(dy for _, dy in FACINGS), 0, 0])
WALKABLE = 1 << GRASS | 1 << SAND | 1 << PATH
"""Sets of materials are numbers with bit m for material m."""


@compiled
def inside(x: int, y: int) -> bool:
    """Is (x, y) on the map?"""
    return 0 <= x < AREA and 0 <= y < AREA


@compiled
def material_at(row: Row, x: int, y: int) -> int:
    """Material of (x, y), NOTHING beyond the map."""
    material: int = row[MATERIAL + x * AREA + y] if inside(x, y) else NOTHING
    return material


@compiled
def object_at(row: Row, x: int, y: int) -> int:
    """Which object is at (x, y), -1 where there is none."""
    thing: int = row[OBJECT + x * AREA + y] - 1 if inside(x, y) else -1
    return thing


@compiled
def is_free(row: Row, x: int, y: int, walkable: int) -> bool:
    """Is (x, y) of one of the materials `walkable`, and without an object?"""
    return walkable >> material_at(row, x, y) & 1 != 0 and object_at(row, x, y) < 0


@compiled
def chunk_at(x: int, y: int) -> int:
    """Number of the chunk of (x, y)."""
    return x // CHUNK * CHUNK_SIDE + y // CHUNK


@compiled
def add(row: Row, kind: int, x: int, y: int, health: int, first: int) -> bool:
    """Put a new object on the free cell (x, y). False if there are OBJECTS_MOST of them already."""
    thing = row[COUNT]
    if thing == OBJECTS_MOST:
        return False
    row[KIND + thing] = kind
    row[AT_X + thing] = x
    row[AT_Y + thing] = y
    row[HEALTH + thing] = health
    row[FIRST + thing] = first
    row[OBJECT + x * AREA + y] = thing + 1
    row[COUNT] = thing + 1
    _know(row, chunk_at(x, y))
    return True


@compiled
def move(row: Row, thing: int, direction: int, walkable: int) -> bool:
    """Move an object one cell if that is free, and say whether it was. What has been removed goes nowhere."""
    old_x, old_y = row[AT_X + thing], row[AT_Y + thing]
    x, y = old_x + DX[direction], old_y + DY[direction]
    if not is_free(row, x, y, walkable):
        return False
    if row[KIND + thing] != NONE:
        put(row, thing, x, y)
    return True


@compiled
def put(row: Row, thing: int, x: int, y: int) -> None:
    """Put an object that is on the map on the free cell (x, y) instead."""
    old_x, old_y = row[AT_X + thing], row[AT_Y + thing]
    row[OBJECT + old_x * AREA + old_y] = 0
    row[OBJECT + x * AREA + y] = thing + 1
    row[AT_X + thing] = x
    row[AT_Y + thing] = y
    chunk = chunk_at(x, y)
    if chunk != chunk_at(old_x, old_y):
        _know(row, chunk)


@compiled
def remove(row: Row, thing: int) -> None:
    """Take an object off the map."""
    row[KIND + thing] = NONE
    row[OBJECT + row[AT_X + thing] * AREA + row[AT_Y + thing]] = 0


@compiled
def tidy(row: Row) -> None:
    """Let the objects move up to the places of those that were removed."""
    count = row[COUNT]
    kept = 0
    for thing in range(count):
        if row[KIND + thing] != NONE:
            if kept != thing:
                for column in (KIND, AT_X, AT_Y, HEALTH, FIRST):
                    row[column + kept] = row[column + thing]
                row[OBJECT + row[AT_X + kept] * AREA + row[AT_Y + kept]] = kept + 1
            kept += 1
    for thing in range(kept, count):
        for column in (KIND, AT_X, AT_Y, HEALTH, FIRST):
            row[column + thing] = 0
    row[COUNT] = kept


@compiled
def _know(row: Row, chunk: int) -> None:
    known = row[CHUNKS]
    for i in range(known):
        if row[CHUNK_NUMBER + i] == chunk:
            return
    row[CHUNK_NUMBER + known] = chunk
    row[CHUNKS] = known + 1
