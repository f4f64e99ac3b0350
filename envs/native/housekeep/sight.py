"""What a player sees: one pass over the plan for each column of the picture, from the player to the first wall.

    column ──> cells that its plane crosses, near to far ──> boxes in a cell ──> strips: rows that they fill and
               nothing nearer fills ──> pixels, and what is visible

A ray of slope s is at height EYE + s t at depth t, so the rays that meet a box between two depths and two heights are
those of an interval of rows. Within a cell, rays that climb meet what is lower first, and rays that sink what is
higher: boxes over one another need no sorting. Rows that are still free are bits of one word, so what is hidden costs
next to nothing; pictures of more than 64 rows are drawn in bands.

What the hand points at is a picture of one pixel.

Small functions get arrays rather than tuples of many: what is not compiled into its caller is handed over field by
field.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.layout import (
    CELL,
    EYE,
    NOWHERE,
    OBJECT,
    OBJECT_HEIGHT,
    OBJECT_SIDE,
    REACH,
    STACKED,
    TILTS,
    Houses,
    State,
)
from envs.native.housekeep.lens import AHEAD, ASIDE, CEILING, KINDS, NEAR, PER_METRE, SHADES, STEEP, WALL, Lens, over

BAND = 64  # rows, one bit each

_BOTTOM, _TOP, _ENTRY = range(3)  # columns of shapes
_MARGIN = OBJECT_SIDE / 2
_NONE, _ALL, _ONE = np.uint64(0), np.uint64(2**64 - 1), np.uint64(1)
_BYTE, _EIGHT = np.uint64(255), np.uint64(8)
_LOW, _GREEN, _BLUE = np.uint32(255), np.uint32(8), np.uint32(16)

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Numbers = NDArray[np.float64]
Bits = NDArray[np.uint64]
Shorts = NDArray[np.int16]
Colours = NDArray[np.uint32]


class Pictures(NamedTuple):
    """Of N players, S x S pixels at [row, column]."""

    ids: Bytes  # [N, S, S] the instance in each pixel; 0: none
    depth: Floats  # [N, S, S] metres ahead; or [0, S, S]: not wanted
    rgb: Bytes  # [N, S, S, 3]; or [0, S, S, 3]: not wanted


class Sketch(NamedTuple):
    """What a picture is drawn from, overwritten by each: strips, which are parts of columns, and walls behind them."""

    rows: Bits  # [K] of a strip, as bits; the first row of the band is bit 0
    column: Shorts  # [K]
    instance: Shorts  # [K]
    shape: Numbers  # [K, 3] of the box: bottom and top, metres above the eye, and the depth at which rays enter it
    wall: Numbers  # [S] depth of the wall in each column
    paint: Colours  # [S] and its colour
    pixels: Colours  # [S, S]


def pictures(count: int, size: int, depth: bool = False, rgb: bool = False) -> Pictures:
    """Room for pictures of `count` players."""
    return Pictures(
        ids=np.zeros((count, size, size), np.uint8),
        depth=np.zeros((count * depth, size, size), np.float32),
        rgb=np.zeros((count * rgb, size, size, 3), np.uint8),
    )


@compiled
def sketch(size: int) -> Sketch:
    """Room for the sketch of a picture: no two strips of a band share a pixel."""
    most = size * min(size, BAND)
    return Sketch(
        np.empty(most, np.uint64),
        np.empty(most, np.int16),
        np.empty(most, np.int16),
        np.empty((most, 3)),
        np.empty(size),
        np.empty(size, np.uint32),
        np.empty((size, size), np.uint32),
    )


@compiled
def look(houses: Houses, p: int, state: State, i: int, lens: Lens, drawn: Sketch, pictures: Pictures) -> None:
    """Draw what player i sees and note what that is: its rows of `visible`, `known`, `seen` and `met`.

    Its house must be closed by walls: nothing else ends a ray.

    Args:
        p: the player's house.
        lens: of the pictures' size.
        drawn: overwritten.
        pictures: rows i are written.
    """
    size, tilt = pictures.ids.shape[1], state.tilt[i] + TILTS
    deep, coloured = len(pictures.depth) > 0, len(pictures.rgb) > 0
    slope, per_slope = lens.slope[tilt], lens.per_slope[tilt]
    ids = pictures.ids[i].reshape(-1)
    ids[:] = 0
    seen = np.zeros(4, np.uint64)  # bits of instances
    for start in range(0, size, BAND):
        count = _march(
            houses.room[p],
            houses.stacked[p],
            houses.slot[p],
            houses.bottom[p],
            houses.top[p],
            state.on[i],
            np.float64(state.x[i]),
            np.float64(state.y[i]),
            lens.per[state.heading[i]],
            lens.level[tilt],
            start,
            0,
            0,
            drawn.rows,
            drawn.column,
            drawn.instance,
            drawn.shape,
            drawn.wall,
        )
        rows, columns, shapes = drawn.rows[:count], drawn.column[:count], drawn.shape[:count]
        instances = drawn.instance[:count]
        for instance in instances:
            seen[instance >> 6] |= _ONE << np.uint64(instance & 63)
        _draw_ids(rows, columns, instances, start, size, ids)
        if deep:
            if not start:
                _hang(slope, drawn.wall, drawn.wall, lens.depth[tilt], pictures.depth[i])
            _draw_depth(rows, columns, shapes, start, per_slope, pictures.depth[i].reshape(-1))
        if coloured:
            if not start:
                _mix(drawn.wall, lens.palette, drawn.paint)
                _hang(slope, drawn.wall, drawn.paint, lens.rgb[tilt], drawn.pixels)
            _dye(houses.name[p], houses.object[p], instances)
            _draw_rgb(rows, columns, instances, shapes, start, per_slope, lens.palette, drawn.pixels.reshape(-1))
    if coloured:
        _pack(drawn.pixels.reshape(-1), pictures.rgb[i].reshape(-1))
    state.visible[i, 0], state.visible[i, 1], state.seen[i] = seen[0], seen[1], seen[2]
    state.known[i, 0] |= state.visible[i, 0]
    state.known[i, 1] |= state.visible[i, 1]
    state.met[i] |= state.seen[i]


@compiled
def aim(houses: Houses, p: int, state: State, i: int, see_through: bool, drawn: Sketch) -> int:
    """The first instance on the ray through the middle of player i's picture, within REACH of its eye; 0: none.

    Args:
        p: the player's house.
        see_through: whether walls do not end the ray.
        drawn: overwritten.
    """
    heading, slope = state.heading[i], STEEP[state.tilt[i] + TILTS]
    per = np.empty((1, 2))
    per[0, 0], per[0, 1] = over(AHEAD[heading]), over(ASIDE[heading])
    count = _march(
        houses.room[p],
        houses.stacked[p],
        houses.slot[p],
        houses.bottom[p],
        houses.top[p],
        state.on[i],
        np.float64(state.x[i]),
        np.float64(state.y[i]),
        per,
        slope / 2,
        0,
        houses.size[p, 0] if see_through else 0,
        houses.size[p, 1] if see_through else 0,
        drawn.rows,
        drawn.column,
        drawn.instance,
        drawn.shape,
        drawn.wall,
    )
    if not count:
        return 0
    low, high, entry = drawn.shape[0, _BOTTOM], drawn.shape[0, _TOP], drawn.shape[0, _ENTRY]
    depth = max(entry, (high if slope < 0 else low) * over(slope))
    return int(drawn.instance[0]) if depth * math.sqrt(1 + slope * slope) <= REACH else 0


@compiled
def _march(
    room: Bytes,
    stacked: Bytes,
    slot: Bytes,
    bottom: Floats,
    top: Floats,
    on: Bytes,
    x: float,
    y: float,
    per: Numbers,
    level: float,
    start: int,
    rim_row: int,
    rim_column: int,
    rows: Bits,
    columns: Shorts,
    instances: Shorts,
    shapes: Numbers,
    walls: Numbers,
) -> int:
    """Write the strips of a band, column by column and each from near to far; returns how many.

    Args:
        room, stacked, slot, bottom, top: of one house.
        on: of one player.
        x, y: where it is.
        per: [S, 2], of its heading.
        level: of its tilt.
        start: the first row of the band.
        rim_row, rim_column: walls in rows and columns below both do not end rays.
        rows, columns, instances, shapes, walls: written, see `Sketch`.
    """
    size, half = len(per), len(per) / 2
    climbing = _rows(0.0, level, start)
    there, box, filled = np.empty(2 * STACKED, np.int16), np.empty((2 * STACKED, 3)), np.empty(2 * STACKED, np.uint64)
    found = 0
    for column in range(size):
        free = _ALL >> np.uint64(max(start + BAND - size, 0))
        per_x, per_y = per[column, 0], per[column, 1]
        r, c = int(y / CELL), int(x / CELL)
        right, up = 1 if per_x > 0 else -1, 1 if per_y > 0 else -1
        next_x, next_y = ((c + (right > 0)) * CELL - x) * per_x, ((r + (up > 0)) * CELL - y) * per_y
        each_x, each_y = CELL * abs(per_x), CELL * abs(per_y)
        near = NEAR
        while room[r, c] or (0 <= r < rim_row and 0 <= c < rim_column):
            across = next_x < next_y
            far = max(next_x if across else next_y, near)
            count = 0
            for k in range(STACKED):
                piece = stacked[r, c, k]
                if not piece:
                    break
                low, high = bottom[piece] - EYE, top[piece] - EYE
                there[count], filled[count] = piece, _filled(low, high, near, far, level, half, start)
                box[count, _BOTTOM], box[count, _TOP], box[count, _ENTRY] = low, high, near
                count += 1
                s = slot[r, c, k]
                if s == NOWHERE or on[piece, s] == NOWHERE:
                    continue
                entry, out = _middle((c + 0.5) * CELL - x, (r + 0.5) * CELL - y, per_x, per_y)
                if entry > out:
                    continue
                low, high = high, high + OBJECT_HEIGHT
                if k + 1 < STACKED and stacked[r, c, k + 1]:
                    high = min(high, bottom[stacked[r, c, k + 1]] - EYE)
                there[count], filled[count] = OBJECT + on[piece, s], _filled(low, high, entry, out, level, half, start)
                box[count, _BOTTOM], box[count, _TOP], box[count, _ENTRY] = low, high, entry
                count += 1
            for j in range(2 * count):
                climbs = j < count
                k = j if climbs else 2 * count - 1 - j
                bits = filled[k] & free & (climbing if climbs else ~climbing)
                if bits:
                    free &= ~bits
                    rows[found], columns[found], instances[found] = bits, column, there[k]
                    for field in range(3):
                        shapes[found, field] = box[k, field]
                    found += 1
            near = far
            c += right if across else 0
            r += 0 if across else up
            next_x += each_x if across else 0.0
            next_y += 0.0 if across else each_y
        walls[column] = near
    return found


@compiled
def _middle(x: float, y: float, per_x: float, per_y: float) -> tuple[float, float]:
    """Depths at which a ray enters and leaves the box of an object; it misses it if it enters after it leaves.

    Args:
        x, y: from the ray's beginning to the middle of the box.
    """
    x0, x1 = (x - _MARGIN) * per_x, (x + _MARGIN) * per_x
    y0, y1 = (y - _MARGIN) * per_y, (y + _MARGIN) * per_y
    return max(min(x0, x1), min(y0, y1), NEAR), min(max(x0, x1), max(y0, y1))


@compiled
def _filled(low: float, high: float, entry: float, out: float, level: float, half: float, start: int) -> np.uint64:
    """The rows whose rays meet a box, as bits."""
    first = level - high * half / (entry if high > 0 else out)
    last = level - low * half / (out if low > 0 else entry)
    return _rows(first, last, start)


@compiled
def _rows(first: float, last: float, start: int) -> np.uint64:
    """Bits of the rows from `first` to `last`, of which `start` is bit 0."""
    low, high = max(math.ceil(first) - start, 0), min(math.floor(last) - start, BAND - 1)
    if low > high:
        return _NONE
    return (_ALL << np.uint64(low)) & (_ALL >> np.uint64(BAND - 1 - high))


# ---- pixels ---------------------------------------------------------------------------------------------------------


@compiled
def _hang(slope: Numbers, wall: Numbers, value: Any, beyond: Any, out: Any) -> None:
    """Fill a picture with walls, and floor and ceiling where these end.

    Args:
        slope: [S], of rows.
        wall: [S], their depth by column.
        value: [S], what to write where there is a wall, by column.
        beyond: [S], what to write elsewhere, by row.
        out: [S, S], written.
    """
    for row in range(len(slope)):
        for column in range(len(wall)):
            height = slope[row] * wall[column]
            out[row, column] = value[column] if (height >= -EYE) & (height <= CEILING - EYE) else beyond[row]


@compiled
def _draw_ids(rows: Bits, columns: Shorts, instances: Shorts, start: int, size: int, ids: Bytes) -> None:
    for k in range(len(rows)):
        bits, at, instance = rows[k], start * size + columns[k], instances[k]
        while not bits & _BYTE:
            bits >>= _EIGHT
            at += 8 * size
        while bits:
            if bits & _ONE:
                ids[at] = instance
            bits >>= _ONE
            at += size


@compiled
def _draw_depth(rows: Bits, columns: Shorts, shapes: Numbers, start: int, per_slope: Numbers, depth: Floats) -> None:
    size = len(per_slope)
    for k in range(len(rows)):
        bits, row, at = rows[k], start, start * size + columns[k]
        low, high, entry = shapes[k, _BOTTOM], shapes[k, _TOP], shapes[k, _ENTRY]
        while bits:
            if bits & _ONE:
                depth[at] = max(entry, (high if per_slope[row] < 0 else low) * per_slope[row])
            bits >>= _ONE
            row += 1
            at += size


@compiled
def _draw_rgb(
    rows: Bits,
    columns: Shorts,
    kinds: Shorts,
    shapes: Numbers,
    start: int,
    per_slope: Numbers,
    palette: Colours,
    pixels: Colours,
) -> None:
    size = len(per_slope)
    for k in range(len(rows)):
        bits, row, at, kind = rows[k], start, start * size + columns[k], kinds[k]
        low, high, entry = shapes[k, _BOTTOM], shapes[k, _TOP], shapes[k, _ENTRY]
        while bits:
            if bits & _ONE:
                depth = max(entry, (high if per_slope[row] < 0 else low) * per_slope[row])
                pixels[at] = palette[kind, _shade(depth)]
            bits >>= _ONE
            row += 1
            at += size


@compiled
def _shade(depth: float) -> int:
    return min(int(depth * PER_METRE), SHADES - 1)


@compiled
def _mix(wall: Numbers, palette: Colours, paint: Colours) -> None:
    """Write the colours of walls."""
    for column in range(len(wall)):
        paint[column] = palette[WALL, _shade(wall[column])]


@compiled
def _dye(name: Shorts, kind: Shorts, instances: Shorts) -> None:
    """Write rows of the palette in the place of instances; `name` and `kind` are those of pieces and of objects."""
    for k in range(len(instances)):
        instance = instances[k]
        instances[k] = name[instance] % KINDS if instance < OBJECT else KINDS + kind[instance - OBJECT]


@compiled
def _pack(pixels: Colours, rgb: Bytes) -> None:
    for k in range(len(pixels)):
        pixel = pixels[k]
        rgb[3 * k], rgb[3 * k + 1], rgb[3 * k + 2] = pixel & _LOW, pixel >> _GREEN & _LOW, pixel >> _BLUE & _LOW
