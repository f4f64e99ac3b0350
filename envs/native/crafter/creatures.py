"""What objects do in their turn: cows, zombies, skeletons, arrows, plants.

A creature without health is removed and still finishes its turn, as in the simulator: a zombie may hit once more, and
what it draws is drawn.
"""

from __future__ import annotations

from envs.compiler import compiled
from envs.crafter.rules import AREA, ARROW, COW, FURNACE, LAVA, PATH, PLANT, SKELETON, TABLE, WATER, ZOMBIE
from envs.native.crafter.layout import AT_X, AT_Y, FIRST, HEALTH, KIND, MATERIAL, SLEEPING, Random, Row, X, Y
from envs.native.crafter.objects import (
    DX,
    DY,
    STILL,
    WALKABLE,
    add,
    is_free,
    material_at,
    move,
    object_at,
    remove,
)
from envs.native.crafter.player import BODY
from envs.native.crafter.twister import below, uniform

COW_HEALTH, ZOMBIE_HEALTH, SKELETON_HEALTH = 3, 5, 3
_LEFT, _RIGHT, _UP, _DOWN = range(4)
_FLYABLE = WALKABLE | 1 << WATER | 1 << LAVA


@compiled
def take_turn(row: Row, random: Random, thing: int) -> None:
    """The turn of an object other than the player."""
    kind = row[KIND + thing]
    if kind == PLANT:
        _plant(row, thing)
        return
    if kind == ARROW:
        _arrow(row, thing)
        return
    if row[HEALTH + thing] <= 0:
        remove(row, thing)
    if kind == COW:
        if uniform(random) < 0.5:
            _stray(row, random, thing)
    elif kind == ZOMBIE:
        _zombie(row, random, thing)
    elif kind == SKELETON:
        _skeleton(row, random, thing)


@compiled
def distance(row: Row, x: int, y: int) -> int:
    """Steps from the player to (x, y)."""
    steps: int = abs(x - row[X]) + abs(y - row[Y])
    return steps


@compiled
def _zombie(row: Row, random: Random, thing: int) -> None:
    if _away(row, thing) <= 8 and uniform(random) < 0.9:
        move(row, thing, _toward(row, thing, uniform(random) < 0.8), WALKABLE)
    else:
        _stray(row, random, thing)
    if _away(row, thing) <= 1:
        if row[FIRST + thing]:
            row[FIRST + thing] -= 1
        else:
            row[BODY] = max(0, row[BODY] - (7 if row[SLEEPING] else 2))
            row[FIRST + thing] = 5


@compiled
def _skeleton(row: Row, random: Random, thing: int) -> None:
    row[FIRST + thing] = max(0, row[FIRST + thing] - 1)
    away = _away(row, thing)
    if away <= 3 and move(row, thing, _toward(row, thing, uniform(random) < 0.6) ^ 1, WALKABLE):
        return
    if away <= 5 and uniform(random) < 0.5:
        _shoot(row, thing)
    elif away <= 8 and uniform(random) < 0.3:
        move(row, thing, _toward(row, thing, uniform(random) < 0.6), WALKABLE)
    elif uniform(random) < 0.2:
        _stray(row, random, thing)


@compiled
def _shoot(row: Row, thing: int) -> None:
    direction = _toward(row, thing, True)
    x, y = row[AT_X + thing] + DX[direction], row[AT_Y + thing] + DY[direction]
    loaded = row[FIRST + thing] == 0 and direction != STILL
    if loaded and is_free(row, x, y, _FLYABLE) and add(row, ARROW, x, y, 0, direction):
        row[FIRST + thing] = 4


@compiled
def _arrow(row: Row, thing: int) -> None:
    direction = row[FIRST + thing]
    x, y = row[AT_X + thing] + DX[direction], row[AT_Y + thing] + DY[direction]
    hit = object_at(row, x, y)
    if hit >= 0:
        health = BODY if hit == 0 else HEALTH + hit
        row[health] = max(0, row[health] - 2)
        remove(row, thing)
    elif not move(row, thing, direction, _FLYABLE):
        remove(row, thing)
        material = material_at(row, x, y)
        if material in (TABLE, FURNACE):
            row[MATERIAL + x * AREA + y] = PATH


@compiled
def _plant(row: Row, thing: int) -> None:
    row[FIRST + thing] += 1
    for direction in range(4):
        eater = object_at(row, row[AT_X + thing] + DX[direction], row[AT_Y + thing] + DY[direction])
        if eater >= 0 and row[KIND + eater] in (COW, ZOMBIE, SKELETON):
            row[HEALTH + thing] = max(0, row[HEALTH + thing] - 1)
            break
    if row[HEALTH + thing] <= 0:
        remove(row, thing)


@compiled
def _stray(row: Row, random: Random, thing: int) -> None:
    move(row, thing, below(random, 4), WALKABLE)


@compiled
def _away(row: Row, thing: int) -> int:
    return distance(row, row[AT_X + thing], row[AT_Y + thing])


@compiled
def _toward(row: Row, thing: int, long_axis: bool) -> int:
    """Direction to the player along the longer axis or the shorter one, where it may be STILL."""
    right, down = row[X] - row[AT_X + thing], row[Y] - row[AT_Y + thing]
    along_x = abs(right) > abs(down) if long_axis else abs(right) <= abs(down)
    if along_x:
        return STILL if right == 0 else _RIGHT if right > 0 else _LEFT
    return STILL if down == 0 else _DOWN if down > 0 else _UP
