"""New worlds: land by layers of noise, and the creatures on it, as the simulator draws them.

    seed ── Mersenne Twister ──> seed of the noise ──> start, water, mountain ──> materials ──> cows, zombies, skeletons

The noise is opensimplex's own; only the loop over the map is compiled. Exponentials are numpy's, as the simulator's
are: another library's may differ in the last bit. What every cell needs is computed layer by layer, which is twice as
fast as cell by cell: neighbours take the same branches of the noise.

A world takes 2 to 3 ms on one core; half a millisecond of it is opensimplex's shuffle, which is Python.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from opensimplex.internals import _init, _noise3

from envs.compiler import compiled
from envs.crafter.rules import (
    AREA,
    COAL,
    COW,
    DIAMOND,
    GRASS,
    IRON,
    LAVA,
    MOST,
    PATH,
    PLAYER,
    SAND,
    SKELETON,
    STONE,
    TREE,
    VITALS,
    WATER,
    ZOMBIE,
    world_seed,
)
from envs.native.crafter.creatures import COW_HEALTH, SKELETON_HEALTH, ZOMBIE_HEALTH
from envs.native.crafter.layout import FACING, ITEM, LAST_HEALTH, MATERIAL, Index, Random, Randoms, Row, Rows, X, Y
from envs.native.crafter.objects import WALKABLE, add
from envs.native.crafter.twister import below, sow, uniform

_MIDDLE = AREA // 2
_DOWN = 3
_TUNNEL = -1  # a path where skeletons live

Words = NDArray[np.int64]  # opensimplex's permutations
Numbers = NDArray[np.float64]  # [64, 64]


def generate(rows: Rows, randoms: Randoms, index: Index, seeds: NDArray[np.int64]) -> None:
    """New worlds in `rows[index]` and `randoms[index]`: the first episodes of simulators seeded with `seeds`, [M]."""
    for i, seed in zip(index.tolist(), seeds.tolist(), strict=True):
        noise = _init(_begin(rows[i], randoms[i], world_seed(seed)))
        start = 1 / (1 + np.exp(-(4 - _distances() + 2 * _layer(8, 3, *noise))))
        water = _layer(3, 15, *noise) + 0.15 * _layer(3, 5, *noise) + 0.1 - 2 * start
        mountain = (_layer(0, 15, *noise) + 0.3 * _layer(0, 5, *noise)) / 1.3 - (4 * start + 0.3 * water)
        _settle(rows[i], randoms[i], _distances(), start, water, mountain, *noise)


@cache
def _distances() -> Numbers:
    """[64, 64] from the player's first place."""
    x, y = np.ogrid[:AREA, :AREA]
    distances: Numbers = np.sqrt((x - _MIDDLE) ** 2 + (y - _MIDDLE) ** 2)
    return distances


@compiled
def _begin(row: Row, random: Random, seed: int) -> int:
    """An empty world with a player in its middle. Returns the seed of its noise."""
    row[:] = 0
    row[X] = row[Y] = _MIDDLE
    row[FACING] = _DOWN
    row[ITEM : ITEM + VITALS] = MOST
    row[LAST_HEALTH] = MOST
    add(row, PLAYER, _MIDDLE, _MIDDLE, 0, 0)
    sow(random, seed)
    return below(random, 2**31 - 1)


@compiled
def _layer(z: int, size: int, grid: Words, gradients: Words) -> Numbers:
    """[64, 64] noise of waves of some `size`, of [-1, 1]."""
    layer = np.empty((AREA, AREA))
    for x in range(AREA):
        for y in range(AREA):
            layer[x, y] = _noise(x, y, z, size, grid, gradients)
    return layer


@compiled
def _noise(x: float, y: float, z: int, size: int, grid: Words, gradients: Words) -> float:
    value: float = _noise3(x / size, y / size, z, grid, gradients)
    return value


@compiled
def _settle(
    row: Row,
    random: Random,
    distances: Numbers,
    start: Numbers,
    water: Numbers,
    mountain: Numbers,
    grid: Words,
    gradients: Words,
) -> None:
    tunnels = np.zeros((AREA, AREA), np.bool_)
    for x in range(AREA):
        for y in range(AREA):
            material = _material(random, x, y, start[x, y], water[x, y], mountain[x, y], grid, gradients)
            tunnels[x, y] = material == _TUNNEL
            row[MATERIAL + x * AREA + y] = PATH if material == _TUNNEL else material
    for x in range(AREA):
        for y in range(AREA):
            material = row[MATERIAL + x * AREA + y]
            if not WALKABLE >> material & 1:
                continue
            if distances[x, y] > 3 and material == GRASS and uniform(random) > 0.985:
                add(row, COW, x, y, COW_HEALTH, 0)
            elif distances[x, y] > 10 and uniform(random) > 0.993:
                add(row, ZOMBIE, x, y, ZOMBIE_HEALTH, 0)
            elif tunnels[x, y] and uniform(random) > 0.95:
                add(row, SKELETON, x, y, SKELETON_HEALTH, 0)


@compiled
def _material(
    random: Random, x: int, y: int, start: float, water: float, mountain: float, grid: Words, gradients: Words
) -> int:
    """Material of (x, y), or _TUNNEL."""
    if start > 0.5:
        return GRASS
    if mountain > 0.15:
        if _noise(x, y, 6, 7, grid, gradients) > 0.15 and mountain > 0.3:
            return PATH
        if _noise(2 * x, y / 5, 7, 3, grid, gradients) > 0.4 or _noise(x / 5, 2 * y, 7, 3, grid, gradients) > 0.4:
            return _TUNNEL
        if _noise(x, y, 1, 8, grid, gradients) > 0 and uniform(random) > 0.85:
            return COAL
        if _noise(x, y, 2, 6, grid, gradients) > 0.4 and uniform(random) > 0.75:
            return IRON
        if mountain > 0.18 and uniform(random) > 0.994:
            return DIAMOND
        return LAVA if mountain > 0.3 and _noise(x, y, 6, 5, grid, gradients) > 0.35 else STONE
    if 0.25 < water <= 0.35 and _noise(x, y, 4, 9, grid, gradients) > -0.2:
        return SAND
    if water > 0.3:
        return WATER
    return TREE if _noise(x, y, 5, 7, grid, gradients) > 0 and uniform(random) > 0.8 else GRASS
