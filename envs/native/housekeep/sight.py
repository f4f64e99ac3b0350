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

import numpy as np

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
from envs.native.housekeep.lens import AHEAD, ASIDE, CEILING, NEAR, STEEP, Lens, over
from envs.native.housekeep.pictures import (
    BAND,
    BOTTOM,
    ENTRY,
    TOP,
    Bits,
    Bytes,
    Floats,
    Numbers,
    Pictures,
    Rows,
    Shorts,
    Sketch,
    draw_depth,
    draw_ids,
    draw_rgb,
    dye,
    hang,
    mix,
    pack,
)

_MARGIN = OBJECT_SIDE / 2
_NONE, _ALL, _ONE = np.uint64(0), np.uint64(2**64 - 1), np.uint64(1)


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
    per_slope = lens.per_slope[tilt]
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
            drawn.edges,
        )
        rows, columns, shapes = drawn.rows[:count], drawn.column[:count], drawn.shape[:count]
        instances = drawn.instance[:count]
        for instance in instances:
            seen[instance >> 6] |= _ONE << np.uint64(instance & 63)
        draw_ids(rows, columns, instances, start, size, ids)
        if deep:
            if not start:
                hang(drawn.edges, drawn.wall, lens.depth[tilt], pictures.depth[i])
            draw_depth(rows, columns, shapes, start, per_slope, pictures.depth[i].reshape(-1))
        if coloured:
            if not start:
                mix(drawn.wall, lens.palette, drawn.paint)
                hang(drawn.edges, drawn.paint, lens.rgb[tilt], drawn.pixels)
            dye(houses.name[p], houses.object[p], instances)
            draw_rgb(rows, columns, instances, shapes, start, per_slope, lens.palette, drawn.pixels.reshape(-1))
    if coloured:
        pack(drawn.pixels.reshape(-1), pictures.rgb[i].reshape(-1))
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
        drawn.edges,
    )
    if not count:
        return 0
    low, high, entry = drawn.shape[0, BOTTOM], drawn.shape[0, TOP], drawn.shape[0, ENTRY]
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
    walls: Floats,
    edges: Rows,
) -> int:
    """Write the strips of a band, column by column and each from near to far; returns how many.

    Args:
        room, stacked, slot, bottom, top: of one house.
        on: of one player.
        x, y: where it is.
        per: [S, 2], of its heading.
        level: of its tilt.
        start: the first row of the band.
        rim_row, rim_column: not walls end rays, but the rim of a plan of so many rows and columns; or 0, 0.
        rows, columns, instances, shapes, walls, edges: written, see `Sketch`.
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
        while rim_row or room[r, c]:
            if rim_row and not (0 <= r < rim_row and 0 <= c < rim_column):
                break
            across = next_x < next_y
            far = max(next_x if across else next_y, near)
            count = 0
            for k in range(STACKED):
                piece = stacked[r, c, k]
                if not piece:
                    break
                low, high = bottom[piece] - EYE, top[piece] - EYE
                there[count], filled[count] = piece, _filled(low, high, near, far, level, half, start)
                box[count, BOTTOM], box[count, TOP], box[count, ENTRY] = low, high, near
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
                box[count, BOTTOM], box[count, TOP], box[count, ENTRY] = low, high, entry
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
        edges[0, column] = math.ceil(level - (CEILING - EYE) * half / near)
        edges[1, column] = math.floor(level + EYE * half / near)
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
