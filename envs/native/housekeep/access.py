"""Where a player can stand, and what it can grip from there.

A circle of 0.18 m holds the corner of the plan that is nearest to its middle, as that is at most 0.177 m away; and from
its place it can move straight onto that corner. So a player fits at a corner if and only if the four cells around are
free, and gets from one place to another if and only if such corners lead there, side by side.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.layout import (
    CELL,
    CLIMB,
    EDGE,
    EYE,
    HEADINGS,
    OBJECT_HEIGHT,
    OBJECT_SIDE,
    REACH,
    STACKED,
    TILT,
    TILTS,
    Houses,
)

Plan = NDArray[np.uint8]

_TURN = 2 * math.pi / HEADINGS
_COSINE = np.array([math.cos(_TURN * heading) for heading in range(HEADINGS)]).round(12)
_SINE = np.array([math.sin(_TURN * heading) for heading in range(HEADINGS)]).round(12)
_SLOPE = np.array([math.tan(math.radians(TILT * tilt)) for tilt in range(-TILTS, TILTS + 1)])
_FAR = 2.75  # metres: how far pieces are looked at from when they are tried
_REACHED = np.array([REACH * math.cos(math.radians(TILT * tilt)) for tilt in range(-TILTS, TILTS + 1)])


@compiled
def is_solid(bottom: float, top: float) -> bool:
    """Does a box between these heights stop players?"""
    return bottom < EYE and top > CLIMB


@compiled
def obstruct(houses: Houses, p: int, solid: Plan) -> None:
    """What stops players in house p: solid [EDGE, EDGE], written; 1 for walls and solid pieces, else 0."""
    for r in range(EDGE):
        for c in range(EDGE):
            solid[r, c] = houses.room[p, r, c] == 0
            for k in range(STACKED):
                n = houses.stacked[p, r, c, k]
                if n and is_solid(houses.bottom[p, n], houses.top[p, n]):
                    solid[r, c] = 1


@compiled
def is_free(solid: Plan, r: int, c: int) -> bool:
    """Can a player stand on corner (r, c), at x = 0.25 c and y = 0.25 r? Not for corners on the edge of the plan."""
    return not (solid[r - 1, c - 1] or solid[r - 1, c] or solid[r, c - 1] or solid[r, c])


@compiled
def in_one_piece(solid: Plan, r0: int, c0: int, r1: int, c1: int, marks: NDArray[np.int32], spare: Plan) -> bool:
    """Are all free corners from (r0, c0) to (r1, c1), both included, connected within these; and is there one?

    Args:
        marks: [EDGE * EDGE], overwritten.
        spare: [EDGE, EDGE], overwritten there.
    """
    free = 0
    for r in range(r0, r1 + 1):
        for c in range(c0, c1 + 1):
            spare[r, c] = is_free(solid, r, c)
            if spare[r, c]:
                free += 1
                marks[0] = r * spare.shape[1] + c
    if not free:
        return False
    waiting, reached = 1, 1
    spare[marks[0] // spare.shape[1], marks[0] % spare.shape[1]] = 0
    while waiting:
        waiting -= 1
        r, c = marks[waiting] // spare.shape[1], marks[waiting] % spare.shape[1]
        for way in range(4):
            nr, nc = r + (way == 0) - (way == 1), c + (way == 2) - (way == 3)
            if r0 <= nr <= r1 and c0 <= nc <= c1 and spare[nr, nc]:
                spare[nr, nc] = 0
                marks[waiting] = nr * spare.shape[1] + nc
                waiting += 1
                reached += 1
    return reached == free


@compiled
def ray(houses: Houses, p: int, x: float, y: float, heading: int, tilt: int) -> tuple[int, float]:
    """The first piece on the centre ray of a player, and how far away in metres on the plan; 0 where nothing is met.

    The distance without a piece is that of the wall, the floor or the end of the reach.
    """
    dx, dy, slope, reach = _COSINE[heading], _SINE[heading], _SLOPE[tilt + TILTS], _REACHED[tilt + TILTS]
    r, c = int(y / CELL), int(x / CELL)
    if y == r * CELL and dy < 0:
        r -= 1
    if x == c * CELL and dx < 0:
        c -= 1
    near = 0.0
    while near < reach:
        if not houses.room[p, r, c]:
            return 0, near
        across = ((c + (dx > 0)) * CELL - x) / dx if dx else 1e9
        along = ((r + (dy > 0)) * CELL - y) / dy if dy else 1e9
        far = min(across, along, reach)
        first, found = far, 0
        for k in range(STACKED):
            n = houses.stacked[p, r, c, k]
            if not n:
                break
            bottom, top = houses.bottom[p, n], houses.top[p, n]
            height = EYE + slope * near
            met = far
            if bottom <= height <= top:
                met = near
            elif height > top and slope < 0:
                met = max(near, (top - EYE) / slope)
            elif height < bottom and slope > 0:
                met = max(near, (bottom - EYE) / slope)
            if met < first:
                first, found = met, n
        if found:
            return found, first
        if across < along:
            c += 1 if dx > 0 else -1
        else:
            r += 1 if dy > 0 else -1
        near = far
    return 0, reach


@compiled
def _towards(dx: float, dy: float) -> int:
    """The heading nearest to a direction. Along y is between two: which it is must not hang on rounding."""
    return round(math.atan2(dy, dx) / _TURN + 1e-6) % HEADINGS


@compiled
def can_grip(houses: Houses, p: int, solid: Plan, n: int) -> bool:
    """Does the centre ray meet piece n from some corner where a player can stand?"""
    box = houses.box[p, n]
    bottom, top = houses.bottom[p, n], houses.top[p, n]
    r, c = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    half = (box[2] - box[0] + box[3] - box[1]) / 2 * CELL
    rows, columns = houses.size[p]
    around = int(_FAR / CELL + half)
    for row in range(max(1, int(r) - around), min(rows, int(r) + around)):
        for column in range(max(1, int(c) - around), min(columns, int(c) + around)):
            if not is_free(solid, row, column):
                continue
            dx, dy = (c - column) * CELL, (r - row) * CELL
            away = math.hypot(dx, dy)
            heading = _towards(dx, dy)
            for tilt in range(-TILTS, TILTS + 1):
                near = EYE + _SLOPE[tilt + TILTS] * max(away - half, 0.0)
                far = EYE + _SLOPE[tilt + TILTS] * (away + half)
                if (
                    min(near, far) <= top
                    and max(near, far) >= bottom
                    and ray(houses, p, column * CELL, row * CELL, heading, tilt)[0] == n
                ):
                    return True
    return False


@compiled
def can_lift(houses: Houses, p: int, solid: Plan, n: int, slot: int) -> bool:
    """Does the centre ray meet an object in a slot of piece n, were it alone, from some corner to stand on?"""
    cell = houses.slots[p, n, slot]
    r, c = cell // houses.room.shape[2] + 0.5, cell % houses.room.shape[2] + 0.5
    bottom = houses.top[p, n]
    rows, columns = houses.size[p]
    around = int(_FAR / CELL)
    for row in range(max(1, int(r) - around), min(rows, int(r) + around + 1)):
        for column in range(max(1, int(c) - around), min(columns, int(c) + around + 1)):
            if not is_free(solid, row, column):
                continue
            dx, dy = (c - column) * CELL, (r - row) * CELL
            heading = _towards(dx, dy)
            away = dx * _COSINE[heading] + dy * _SINE[heading]
            if abs(dy * _COSINE[heading] - dx * _SINE[heading]) > 0.45 * OBJECT_SIDE:
                continue
            for tilt in range(-TILTS, TILTS + 1):
                height = EYE + _SLOPE[tilt + TILTS] * away
                if bottom + 0.03 < height < bottom + OBJECT_HEIGHT - 0.03:
                    _, distance = ray(houses, p, column * CELL, row * CELL, heading, tilt)
                    if away < distance:
                        return True
    return False
