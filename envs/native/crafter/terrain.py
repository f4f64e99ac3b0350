"""New worlds: land by layers of noise, and the creatures on it, as the simulator draws them.

    seed ── Mersenne Twister ──> seed of the noise ──> layers ──> facts of each cell ──> materials ──> creatures

All that noise decides is whether something is above a threshold: a fact. The simulator computes it cell by cell, we
make whole layers (`noise`), whose numbers differ a little. So where something is closer to its threshold than `DOUBT`,
in some 60 cells of a world, we compute what the simulator does, in its own order, and go by that: worlds are equal.
Exponentials are numpy's then, as the simulator's are: another library's may differ in the last bit.

A world takes about 0.5 ms on one core, half of it the layers.
"""

from __future__ import annotations

from math import exp, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from opensimplex.internals import _noise3

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
from envs.native.crafter.noise import Layer, Words, layer, shuffled
from envs.native.crafter.objects import WALKABLE, add
from envs.native.crafter.twister import below, sow, uniform

_MIDDLE = AREA // 2
_DOWN = 3
_TUNNEL = -1  # a path where skeletons live

WAVES = np.array(
    [
        *((8, 3, 1, 1, 0), (3, 15, 1, 1, 0), (3, 5, 1, 1, 0), (0, 15, 1, 1, 0), (0, 5, 1, 1, 0)),
        *((6, 7, 1, 1, 0.15), (7, 3, 1 / 2, 5, 0.4), (7, 3, 5, 1 / 2, 0.4), (1, 8, 1, 1, 0), (2, 6, 1, 1, 0.4)),
        *((6, 5, 1, 1, 0.35), (4, 9, 1, 1, -0.2), (5, 7, 1, 1, 0)),
    ]
)
"""float64 [13, 5], of each layer: z, size, what x and y are divided by before they are divided by size, threshold. The
first `_MIXED` have none of their own: they are the start, water twice and mountains twice."""
_MIXED = 5
_CAVE, _TUNNEL_RIGHT, _TUNNEL_DOWN, _COAL, _IRON, _LAVA, _SAND, _TREE = (1 << wave for wave in range(_MIXED, 13))
"""Facts, a bit each: the layer is above its threshold. Those of mixed layers follow."""
_MEADOW, _ROCK, _HIGH, _PEAK, _DAMP, _WET, _DEEP = (1 << bit for bit in (0, 1, 2, 3, 4, 13, 14))

DOUBT = 5e-4
"""What is closer to its threshold is computed exactly. Mountains err most: by `noise.ERROR` once for their own layers,
4 / 2 times for the start and 0.3 * (1.15 + 2 / 2) times for the water, and by 4e-6 as the start counts as 0 far off."""
_FAR = 20  # cells from the middle; the start is below exp(6 - 20) there, whatever its noise

Facts = NDArray[np.int16]  # [64, 64]
Numbers = NDArray[np.float64]


def generate(rows: Rows, randoms: Randoms, index: Index, seeds: NDArray[np.int64], doubt: float = DOUBT) -> None:
    """New worlds in `rows[index]` and `randoms[index]`: the first episodes of simulators seeded with `seeds`, [M].
    More `doubt` than `DOUBT` costs time and changes nothing."""
    facts = np.empty((AREA, AREA), np.int16)
    for i, seed in zip(index.tolist(), seeds.tolist(), strict=True):
        noise = shuffled(_begin(rows[i], randoms[i], world_seed(seed)))
        doubtful = _survey(doubt, *noise, facts)
        if len(doubtful):
            facts.flat[doubtful] |= _exactly(doubtful, *noise)
        _settle(rows[i], randoms[i], facts)


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


# ---- facts ----------------------------------------------------------------------------------------------------------


@compiled
def _survey(doubt: float, grid: Words, gradients: Words, facts: Facts) -> Index:
    """Find all facts. Returns the cells, as x * 64 + y, where those of mixed layers are doubtful and left out."""
    layers = np.empty((len(WAVES), AREA, AREA), np.float32)
    for wave in range(len(WAVES)):
        z, size = int(WAVES[wave, 0]), WAVES[wave, 1]
        layer(z, WAVES[wave, 2] * size, WAVES[wave, 3] * size, grid, gradients, layers[wave])
    doubtful = np.empty(AREA * AREA, np.bool_)
    start = np.empty(AREA)
    for x in range(AREA):
        for y in range(AREA):
            distance = sqrt((x - _MIDDLE) ** 2 + (y - _MIDDLE) ** 2)
            start[y] = 1 / (1 + exp(distance - 4 - 2 * layers[0, x, y])) if distance < _FAR else 0
        for y in range(AREA):
            water = layers[1, x, y] + 0.15 * layers[2, x, y] + 0.1 - 2 * start[y]
            mountain = (layers[3, x, y] + 0.3 * layers[4, x, y]) / 1.3 - 4 * start[y] - 0.3 * water
            least = _mixed(start[y] - doubt, water - doubt, mountain - doubt)
            sure = least == _mixed(start[y] + doubt, water + doubt, mountain + doubt)
            facts[x, y] = least * sure
            doubtful[x * AREA + y] = not sure
    for wave in range(_MIXED, len(WAVES)):
        _mark(wave, layers[wave], doubt, grid, gradients, facts)
    return np.flatnonzero(doubtful)


@compiled
def _mixed(start: Any, water: Any, mountain: Any) -> Any:
    """Facts of mixed layers, of one cell or an array."""
    land = (start > 0.5) * _MEADOW | (mountain > 0.15) * _ROCK | (mountain > 0.18) * _HIGH | (mountain > 0.3) * _PEAK
    return land | (water > 0.25) * _DAMP | (water > 0.3) * _WET | (water > 0.35) * _DEEP


@compiled
def _mark(wave: int, noise: Layer, doubt: float, grid: Words, gradients: Words, facts: Facts) -> None:
    """Find the fact of a layer."""
    threshold = WAVES[wave, 4]
    for x in range(AREA):
        doubtful = False
        for y in range(AREA):
            facts[x, y] |= (noise[x, y] > threshold) << wave
            doubtful |= abs(noise[x, y] - threshold) < doubt
        if doubtful:
            for y in range(AREA):
                if abs(noise[x, y] - threshold) < doubt:
                    facts[x, y] &= ~(1 << wave)
                    facts[x, y] |= (_noise(wave, x, y, grid, gradients) > threshold) << wave


@compiled
def _noise(wave: int, x: int, y: int, grid: Words, gradients: Words) -> float:
    """The simulator's noise."""
    z, size = WAVES[wave, 0], WAVES[wave, 1]
    value: float = _noise3(x / WAVES[wave, 2] / size, y / WAVES[wave, 3] / size, z, grid, gradients)
    return value


def _exactly(cells: Index, grid: Words, gradients: Words) -> Facts:
    """Facts of mixed layers, int [n], by the simulator's numbers; cells are x * 64 + y, [n]."""
    x, y = cells // AREA, cells % AREA
    noise = _noises(x, y, grid, gradients)
    start = 1 / (1 + np.exp(-(4 - np.sqrt((x - _MIDDLE) ** 2 + (y - _MIDDLE) ** 2) + 2 * noise[0])))
    water = noise[1] + 0.15 * noise[2] + 0.1 - 2 * start
    mountain = (noise[3] + 0.3 * noise[4]) / 1.3 - (4 * start + 0.3 * water)
    facts: Facts = _mixed(start, water, mountain)
    return facts


@compiled
def _noises(x: Index, y: Index, grid: Words, gradients: Words) -> Numbers:
    """The simulator's noise of mixed layers, [5, n]."""
    noise = np.empty((_MIXED, len(x)))
    for wave in range(_MIXED):
        for i in range(len(x)):
            noise[wave, i] = _noise(wave, x[i], y[i], grid, gradients)
    return noise


# ---- materials and creatures ----------------------------------------------------------------------------------------


@compiled
def _settle(row: Row, random: Random, facts: Facts) -> None:
    tunnels = np.empty((AREA, AREA), np.bool_)
    for x in range(AREA):
        for y in range(AREA):
            material = _material(random, facts[x, y])
            tunnels[x, y] = material == _TUNNEL
            row[MATERIAL + x * AREA + y] = PATH if material == _TUNNEL else material
    for x in range(AREA):
        for y in range(AREA):
            material = row[MATERIAL + x * AREA + y]
            if not WALKABLE >> material & 1:
                continue
            square = (x - _MIDDLE) ** 2 + (y - _MIDDLE) ** 2
            if square > 3**2 and material == GRASS and uniform(random) > 0.985:
                add(row, COW, x, y, COW_HEALTH, 0)
            elif square > 10**2 and uniform(random) > 0.993:
                add(row, ZOMBIE, x, y, ZOMBIE_HEALTH, 0)
            elif tunnels[x, y] and uniform(random) > 0.95:
                add(row, SKELETON, x, y, SKELETON_HEALTH, 0)


@compiled
def _material(random: Random, facts: int) -> int:
    """Material of a cell, or _TUNNEL."""
    if facts & _MEADOW:
        return GRASS
    if facts & _ROCK:
        if facts & _PEAK and facts & _CAVE:
            return PATH
        if facts & (_TUNNEL_RIGHT | _TUNNEL_DOWN):
            return _TUNNEL
        if facts & _COAL and uniform(random) > 0.85:
            return COAL
        if facts & _IRON and uniform(random) > 0.75:
            return IRON
        if facts & _HIGH and uniform(random) > 0.994:
            return DIAMOND
        return LAVA if facts & _PEAK and facts & _LAVA else STONE
    if facts & _DAMP and not facts & _DEEP and facts & _SAND:
        return SAND
    if facts & _WET:
        return WATER
    return TREE if facts & _TREE and uniform(random) > 0.8 else GRASS
