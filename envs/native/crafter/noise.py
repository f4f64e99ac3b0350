"""OpenSimplex noise of three dimensions on a map of cells, ten times as fast as cell by cell.

Noise is a sum over the points of a lattice, max(0, 2 - d.d)^4 * (g.d) / 103, where d leads from a point to the place,
and g is the point's gradient, which follows from the seed (K. Spencer 2014, as in the package opensimplex). The points
that reach a plane of whole z are

    (u + w, v + w, w),   w = z + k/3,   k in -4..4,   u and v whole,   u + v = 3z + k modulo 6.

So the points of one k and u lie six apart along y, and at most one of them, the nearest, reaches a cell. A row of cells
is summed at once, without a branch, and the compiler makes vector instructions of it.

A layer is not quite opensimplex's: its sums are float32, and in up to 5 of 100 cells opensimplex leaves out a point,
which adds 1.2e-4 at most. `ERROR` bounds both. Where less than that decides, ask opensimplex's own `_noise3`.
"""

from __future__ import annotations

from math import ceil, floor, sqrt

import numpy as np
from numpy.typing import NDArray
from opensimplex.constants import GRADIENTS3, NORM_CONSTANT3

from envs.compiler import compiled
from envs.crafter.rules import AREA

ERROR = 1.3e-4
"""The most by which `layer` differs from opensimplex in any layer of `terrain.WAVES`, whatever the seed."""

Words = NDArray[np.int64]  # [256]
Layer = NDArray[np.float32]  # [64, 64]
Line = NDArray[np.float32]  # [4, 64]

_SHARES = (GRADIENTS3 / NORM_CONSTANT3).astype(np.float32)
_GRADIENTS = len(GRADIENTS3) // 3
_HIGHEST = 4  # k, the last with a distance below the square root of 2 from the plane


@compiled
def shuffled(seed: int) -> tuple[Words, Words]:
    """The tables that opensimplex makes of a seed, of [0, 2**31): a permutation of 256 numbers, and for each of them
    where its gradient begins among all. `layer` and opensimplex's `_noise3` take them."""
    grid, gradients, source = np.empty(256, np.int64), np.empty(256, np.int64), np.arange(256)
    for i in range(258, -1, -1):
        seed = seed * 6364136223846793005 + 1442695040888963407  # its low 64 bits
        if i < 256:
            chosen = (seed % (i + 1) + 31) % (i + 1)
            grid[i] = source[chosen]
            gradients[i] = grid[i] % _GRADIENTS * 3
            source[chosen] = source[i]
    return grid, gradients


@compiled
def layer(z: int, across: float, down: float, grid: Words, gradients: Words, out: Layer) -> None:
    """Write the noise at (x / across, y / down, z) into cells [x, y] of `out`; it is of [-1, 1]."""
    out[:] = 0
    nearest = np.empty((4, AREA), np.float32)
    away, along_x, along_y, along_z = nearest[0], nearest[1], nearest[2], nearest[3]
    for k in range(-_HIGHEST, _HIGHEST + 1):
        w, room = z + k / 3, 2 - k * k / 9
        reach = sqrt(room)
        for u in range(ceil(-reach - w), floor((AREA - 1) / across + reach - w) + 1):
            _find(z, k, u, down, grid, gradients, nearest)
            first, last = ceil((u + w - reach) * across), floor((u + w + reach) * across)
            for x in range(max(first, 0), min(last, AREA - 1) + 1):
                dx = np.float32(x / across - (u + w))
                left = np.float32(room) - dx * dx
                row = out[x]
                for y in range(AREA):
                    dy = away[y]
                    near = left - dy * dy
                    near = near if near > 0 else np.float32(0)
                    near *= near
                    row[y] += near * near * (along_x[y] * dx + along_y[y] * dy + along_z[y])


@compiled
def _find(z: int, k: int, u: int, down: float, grid: Words, gradients: Words, nearest: Line) -> None:
    """For each cell of a row, which of the points of k and u is nearest: how far along y it is from there, and its
    gradient's share per unit of d along x, along y and, times the distance to the plane, along z."""
    w, step = z + k / 3, np.float32(1 / down)
    c = (3 * z + k - u - floor(-3 - w)) // 6
    first = 0
    while first < AREA:
        v = 3 * z + k - u - 6 * c
        last = min(max(first, ceil((v + w + 3) * down)), AREA)
        place = gradients[(grid[(grid[(u + c) & 255] + v + c) & 255] + c) & 255]  # of (u + c, v + c, c)
        dy = np.float32(first / down - (v + w))
        away = nearest[0][first:last]
        for i in range(last - first):
            away[i] = dy + np.float32(i) * step
        nearest[1][first:last] = _SHARES[place]
        nearest[2][first:last] = _SHARES[place + 1]
        nearest[3][first:last] = _SHARES[place + 2] * np.float32(-k / 3)
        first, c = last, c - 1
