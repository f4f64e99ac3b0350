"""A step of the world: the player, the objects near it, and every tenth step births and deaths; and what is seen then.

Objects act in the order of their age, those that are added from the next step on, and only those that are less than
NEAR steps away from the player. Births and deaths go by chunk, in the order in which the chunks first held an object.

A step and what is seen after it take about 2 us a world on one core.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.crafter.rules import (
    ACHIEVEMENTS,
    AREA,
    ARROW,
    COW,
    GRASS,
    ITEMS,
    NONE,
    OBJECTS,
    PATH,
    PLANT,
    RIPE,
    SKELETON,
    VIEW,
    ZOMBIE,
)
from envs.native.crafter.creatures import COW_HEALTH, SKELETON_HEALTH, ZOMBIE_HEALTH, distance, take_turn
from envs.native.crafter.layout import (
    ACHIEVED,
    AT_X,
    AT_Y,
    CHUNK,
    CHUNK_NUMBER,
    CHUNK_SIDE,
    CHUNKS,
    COUNT,
    FACING,
    FIRST,
    ITEM,
    KIND,
    MATERIAL,
    OBJECT,
    SLEEPING,
    STEP,
    Index,
    Random,
    Randoms,
    Row,
    Rows,
    X,
    Y,
)
from envs.native.crafter.objects import DX, DY, add, chunk_at, material_at, object_at, remove, tidy
from envs.native.crafter.player import RIPE_AGE, act
from envs.native.crafter.twister import below, uniform

NEAR = 18
_COLUMNS, _LINES = VIEW
_BALANCED = 10  # steps from one round of births and deaths to the next


@compiled
def advance(
    rows: Rows,
    randoms: Randoms,
    index: Index,
    actions: NDArray[np.int64],
    costs: NDArray[np.int16],
    damage: int,
    daylight: NDArray[np.float64],
    effect: NDArray[np.bool_],
) -> None:
    """Step worlds `rows[index]` once.

    Args:
        rows, randoms: [N, ROW] and [N, RANDOM], changed in place.
        index: [M].
        actions: [M], of GAME_ACTIONS; not checked.
        costs: [17, 16], as `player.costs`.
        damage: of a bare hand.
        daylight: [T], by step, of [0, 1]; T is more than the steps of any of the worlds.
        effect: [N], of which `index` is written: whether the action changed the game as it was meant to.
    """
    for j in range(len(index)):
        i = index[j]
        effect[i] = _step(rows[i], randoms[i], actions[j], costs, damage, daylight)


@compiled
def _step(
    row: Row, random: Random, action: int, costs: NDArray[np.int16], damage: int, daylight: NDArray[np.float64]
) -> bool:
    row[STEP] += 1
    count = row[COUNT]
    effect = act(row, random, action, costs, damage)
    for thing in range(1, count):
        if distance(row, row[AT_X + thing], row[AT_Y + thing]) < NEAR:
            take_turn(row, random, thing)
    if row[STEP] % _BALANCED == 0:
        _balance(row, random, daylight[row[STEP]])
    tidy(row)
    return effect


@compiled
def _balance(row: Row, random: Random, light: float) -> None:
    counts = np.zeros((CHUNK_SIDE * CHUNK_SIDE, len(OBJECTS)), np.int64)
    for thing in range(row[COUNT]):
        counts[chunk_at(row[AT_X + thing], row[AT_Y + thing]), row[KIND + thing]] += 1
    zombies, cows = int(3.5 - 3 * light), int(1.5 + light)
    for known in range(row[CHUNKS]):
        chunk = row[CHUNK_NUMBER + known]
        n = counts[chunk, ZOMBIE]
        if n < zombies:
            _bear(row, random, chunk, ZOMBIE, ZOMBIE_HEALTH, GRASS, 50, 0.3, 6)
        elif n > zombies:
            _thin(row, random, chunk, ZOMBIE, n, 0.4, 0)
        n = counts[chunk, SKELETON]
        if n < 1:
            _bear(row, random, chunk, SKELETON, SKELETON_HEALTH, PATH, 6, 0.1, 7)
        elif n > 2:
            _thin(row, random, chunk, SKELETON, n, 0.1, 7)
        n = counts[chunk, COW]
        if n < 1:
            _bear(row, random, chunk, COW, COW_HEALTH, GRASS, 30, 0.01, 5)
        elif n > cows:
            _thin(row, random, chunk, COW, n, 0.1, 5)


@compiled
def _bear(
    row: Row, random: Random, chunk: int, kind: int, health: int, ground: int, room: int, chance: float, apart: int
) -> None:
    """Perhaps put a creature on one of the chunk's cells of `ground`, of which there must be `room`, but not nearer to
    the player than `apart`."""
    left, top = chunk // CHUNK_SIDE * CHUNK, chunk % CHUNK_SIDE * CHUNK
    right, bottom = min(left + CHUNK, AREA), min(top + CHUNK, AREA)
    cells = 0
    for x in range(left, right):
        for y in range(top, bottom):
            cells += row[MATERIAL + x * AREA + y] == ground
    if cells < room or uniform(random) >= chance:
        return
    chosen = below(random, cells)
    for x in range(left, right):
        for y in range(top, bottom):
            if row[MATERIAL + x * AREA + y] == ground:
                if chosen == 0 and row[OBJECT + x * AREA + y] == 0 and distance(row, x, y) >= apart:
                    add(row, kind, x, y, health, 0)
                chosen -= 1


@compiled
def _thin(row: Row, random: Random, chunk: int, kind: int, n: int, chance: float, apart: int) -> None:
    """Perhaps take one of the `n` creatures of a kind out of a chunk, but not nearer to the player than `apart`."""
    if uniform(random) >= chance:
        return
    chosen = below(random, n)
    for thing in range(row[COUNT]):
        x, y = row[AT_X + thing], row[AT_Y + thing]
        if row[KIND + thing] == kind and chunk_at(x, y) == chunk:
            if chosen == 0 and distance(row, x, y) >= apart:
                remove(row, thing)
            chosen -= 1


@compiled
def look(
    rows: Rows,
    index: Index,
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
def _kind(row: Row, thing: int) -> int:
    """Of OBJECTS, as it looks."""
    if thing < 0:
        return NONE
    kind: int = row[KIND + thing]
    return RIPE if kind == PLANT and row[FIRST + thing] > RIPE_AGE else kind
