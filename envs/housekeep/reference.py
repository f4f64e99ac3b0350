"""What a player sees, pixel by pixel and box by box: slow and plain, for the compiled engine to be compared with.

It knows nothing of cells: every wall, piece and object is one box, and a pixel shows the box that its ray meets first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.native.housekeep import lens
from envs.native.housekeep.layout import (
    CELL,
    EDGE,
    EYE,
    HEADINGS,
    OBJECT,
    OBJECT_HEIGHT,
    OBJECT_SIDE,
    TILT,
    Houses,
    State,
)


class Box(NamedTuple):
    """Metres; instance 0 is a wall."""

    instance: int
    colour: int  # row of the palette
    x: tuple[float, float]
    y: tuple[float, float]
    z: tuple[float, float]


class Sight(NamedTuple):
    """One picture."""

    ids: NDArray[np.uint8]  # [S, S]
    depth: NDArray[np.float64]  # [S, S] metres ahead
    rgb: NDArray[np.uint8]  # [S, S, 3]


def sight(houses: Houses, p: int, state: State, i: int, size: int) -> Sight:
    """What player i sees in house p, in a picture of `size` x `size`."""
    x, y = float(state.x[i]), float(state.y[i])
    turn, middle = math.tau * int(state.heading[i]) / HEADINGS, math.tan(math.radians(TILT * int(state.tilt[i])))
    everything = list(boxes(houses, p, state, i))
    ids, depths = np.zeros((size, size), np.uint8), np.zeros((size, size))
    rgb = np.zeros((size, size, 3), np.uint8)
    for column in range(size):
        aside = (2 * column + 1 - size) / size
        dx, dy = math.cos(turn) + aside * math.sin(turn), math.sin(turn) - aside * math.cos(turn)
        crossed = []
        for box in everything:
            entry, out = _between(x, dx, box.x, *_between(y, dy, box.y, lens.NEAR, math.inf))
            if entry <= out:
                crossed.append((entry, out, box))
        for row in range(size):
            slope = middle - (2 * row + 1 - size) / size
            if slope < 0:
                nearest, instance, colour = -EYE / slope, 0, lens.FLOOR
            else:
                nearest, instance, colour = (lens.CEILING - EYE) / slope if slope else math.inf, 0, lens.ABOVE
            for entry, out, box in crossed:
                depth = meets(entry, out, box.z[0] - EYE, box.z[1] - EYE, slope)
                if depth < nearest:
                    nearest, instance, colour = depth, box.instance, box.colour
            ids[row, column], depths[row, column] = instance, nearest
            rgb[row, column] = lens.palette()[colour, min(int(nearest * lens.PER_METRE), lens.SHADES - 1)]
    return Sight(ids, depths, rgb)


def boxes(houses: Houses, p: int, state: State, i: int) -> Iterator[Box]:
    """Walls, a run of cells each; pieces; and the objects on them, no higher than what hangs over them allows."""
    for r in range(int(houses.size[p, 0])):
        c, columns = 0, int(houses.size[p, 1])
        while c < columns:
            first = c
            while c < columns and not houses.room[p, r, c]:
                c += 1
            if c > first:
                yield Box(0, lens.WALL, (first * CELL, c * CELL), (r * CELL, (r + 1) * CELL), (0, lens.CEILING))
            c += 1
    pieces = range(1, int(houses.pieces[p]) + 1)
    plans, bottom, top = houses.box[p].tolist(), houses.bottom[p].tolist(), houses.top[p].tolist()
    for n in pieces:
        r0, c0, r1, c1 = plans[n]
        colour = int(houses.name[p, n]) % lens.KINDS
        yield Box(n, colour, (c0 * CELL, c1 * CELL), (r0 * CELL, r1 * CELL), (bottom[n], top[n]))
    for k in range(int(houses.objects[p])):
        n = int(state.place[i, k])
        if not n:
            continue
        r, c = divmod(int(houses.slots[p, n, state.slot[i, k]]), EDGE)
        x, y, half = (c + 0.5) * CELL, (r + 0.5) * CELL, OBJECT_SIDE / 2
        highest = top[n] + OBJECT_HEIGHT
        for m in pieces:
            r0, c0, r1, c1 = plans[m]
            if m != n and r0 <= r < r1 and c0 <= c < c1 and bottom[m] >= top[n]:
                highest = min(highest, bottom[m])
        colour = lens.KINDS + int(houses.object[p, k])
        yield Box(OBJECT + k, colour, (x - half, x + half), (y - half, y + half), (top[n], highest))


def _between(start: float, each: float, span: tuple[float, float], entry: float, out: float) -> tuple[float, float]:
    """The part of the depths from `entry` to `out` in which start + each * depth is within a span."""
    if abs(each) < 1e-12:
        return (entry, out) if span[0] <= start <= span[1] else (1.0, 0.0)
    a, b = (span[0] - start) / each, (span[1] - start) / each
    return max(entry, min(a, b)), min(out, max(a, b))


def meets(entry: float, out: float, low: float, high: float, slope: float) -> float:
    """The depth at which a ray of a slope meets a box, infinite if nowhere; heights are metres above the eye."""
    at_entry, at_exit = slope * entry, slope * out
    if max(at_entry, at_exit) < low or min(at_entry, at_exit) > high:
        return math.inf
    if at_entry < low:
        return low / slope
    return high / slope if at_entry > high else entry
