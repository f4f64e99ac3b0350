"""Worlds in which an episode begins anywhere: what is rare in the game is frequent at its beginning.

    row ──> the player on another cell, some time of the day, some health and food, some items ──> things around it

For captioners, which learn from what they are shown. All of it follows from the episode's seed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.crafter.rules import (
    AREA,
    COAL,
    COW,
    DIAMOND,
    FACINGS,
    FURNACE,
    GRASS,
    IRON,
    ITEMS,
    LAVA,
    MOST,
    PATH,
    PLANT,
    SAND,
    SKELETON,
    TABLE,
    TREE,
    VIEW,
    VITALS,
    WATER,
    ZOMBIE,
)
from envs.native.crafter.creatures import COW_HEALTH, SKELETON_HEALTH, ZOMBIE_HEALTH
from envs.native.crafter.layout import FACING, ITEM, LAST_HEALTH, MATERIAL, OBJECT, STEP, Index, Row, Rows, X, Y
from envs.native.crafter.objects import add, put
from envs.native.crafter.player import RIPE_AGE

DAY = 300
"""Steps from one morning to the next."""
WELL, EMPTY, THERE = 0.5, 0.6, 0.2
"""Chances that a vital is at its most, that an item is not held, and that a rare thing is around."""
_GROUNDS = GRASS, SAND, PATH
_RARE = TABLE, FURNACE, COAL, IRON, DIAMOND, TREE, WATER, LAVA
_CREATURES = ((COW, COW_HEALTH), (ZOMBIE, ZOMBIE_HEALTH), (SKELETON, SKELETON_HEALTH))
_PLAYER = 0  # the first of the objects


def scatter(rows: Rows, index: Index, seeds: NDArray[np.int64]) -> None:
    """Change new worlds `rows[index]`, whose episodes have these seeds [M]."""
    for i, seed in zip(index.tolist(), seeds.tolist(), strict=True):
        _scatter(rows[i], np.random.default_rng([seed, AREA]))


def _scatter(row: Row, random: np.random.Generator) -> None:
    materials = row[MATERIAL : MATERIAL + AREA * AREA].reshape(AREA, AREA)  # views of the row
    objects = row[OBJECT : OBJECT + AREA * AREA].reshape(AREA, AREA)
    grounds = [ground for ground in _GROUNDS if ((materials == ground) & (objects == 0)).any()]
    cells = np.argwhere((materials == random.choice(grounds)) & (objects == 0))
    x, y = cells[random.integers(len(cells))].tolist()
    put(row, _PLAYER, x, y)
    row[X], row[Y], row[FACING] = x, y, random.integers(len(FACINGS))
    row[STEP] = random.integers(DAY)
    usual, chance = np.repeat([[MOST, 0], [WELL, EMPTY]], [VITALS, len(ITEMS) - VITALS], axis=1)
    amounts = random.integers(1, MOST + 1, len(ITEMS))
    row[ITEM : ITEM + len(ITEMS)] = np.where(random.random(len(ITEMS)) < chance, usual, amounts)
    row[LAST_HEALTH] = row[ITEM]
    _surround(row, materials, objects, random)


def _surround(row: Row, materials: Row, objects: Row, random: np.random.Generator) -> None:
    """Put rare things on free cells that the player sees."""
    across, down = VIEW[0] // 2, VIEW[1] // 2
    left, top = max(0, row[X] - across), max(0, row[Y] - down)
    seen = slice(left, row[X] + across + 1), slice(top, row[Y] + down + 1)
    free = np.argwhere(np.isin(materials[seen], _GROUNDS) & (objects[seen] == 0))
    places = iter(random.permutation(free + np.array([left, top])).tolist())
    for material in _RARE:
        if random.random() < THERE and (place := next(places, None)):
            materials[place[0], place[1]] = material
    for kind, health in _CREATURES:
        if random.random() < THERE and (place := next(places, None)):
            add(row, kind, place[0], place[1], health, 0)
    for x, y in places:
        if materials[x, y] == GRASS and random.random() < THERE:
            add(row, PLANT, x, y, 1, int(random.integers(2 * RIPE_AGE)))
            break
