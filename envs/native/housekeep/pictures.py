"""Pictures, and how they are drawn: first walls, floor and ceiling by rows, then what is before them, strip by strip.

    _march (see `sight`) ──> Sketch ──┬─> draw_ids ─────────────────────────> ids
                                      ├─> hang, draw_depth ─────────────────> depth
                                      └─> mix, hang, dye, draw_rgb ──> pack ──> rgb

Rows of a strip are bits of one word, of which the lowest is the first row of the band that the strip belongs to.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.layout import OBJECT
from envs.native.housekeep.lens import KINDS, PER_METRE, SHADES, WALL

BAND = 64
"""Rows, one bit each."""
BOTTOM, TOP, ENTRY = range(3)
"""Columns of shapes."""

_ONE, _BYTE, _EIGHT = np.uint64(1), np.uint64(255), np.uint64(8)
_LOW, _GREEN, _BLUE = np.uint32(255), np.uint32(8), np.uint32(16)

Bytes = NDArray[np.uint8]
Shorts = NDArray[np.int16]
Rows = NDArray[np.int32]
Colours = NDArray[np.uint32]
Bits = NDArray[np.uint64]
Floats = NDArray[np.float32]
Numbers = NDArray[np.float64]


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
    wall: Floats  # [S] depth of the wall in each column
    edges: Rows  # [2, S] the first and the last row that it fills, if nothing is before it
    paint: Colours  # [S] its colour
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
        np.empty(size, np.float32),
        np.empty((2, size), np.int32),
        np.empty(size, np.uint32),
        np.empty((size, size), np.uint32),
    )


@compiled
def hang(edges: Rows, value: Any, beyond: Any, out: Any) -> None:
    """Fill a picture with walls, and with floor and ceiling where these end. Numbers are of 32 bits: eight at a time.

    Args:
        edges: [2, S], first and last row of the wall in each column.
        value: [S], what to write there.
        beyond: [S], what to write elsewhere, by row.
        out: [S, S], written.
    """
    first, last = edges[0], edges[1]
    for row in range(len(beyond)):
        line, other = np.int32(row), beyond[row]
        for column in range(len(value)):
            out[row, column] = value[column] if (line >= first[column]) & (line <= last[column]) else other


@compiled
def draw_ids(rows: Bits, columns: Shorts, instances: Shorts, start: int, size: int, ids: Bytes) -> None:
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
def draw_depth(rows: Bits, columns: Shorts, shapes: Numbers, start: int, per_slope: Numbers, depth: Floats) -> None:
    size = len(per_slope)
    for k in range(len(rows)):
        bits, row, at = rows[k], start, start * size + columns[k]
        low, high, entry = shapes[k, BOTTOM], shapes[k, TOP], shapes[k, ENTRY]
        while bits:
            if bits & _ONE:
                depth[at] = max(entry, (high if per_slope[row] < 0 else low) * per_slope[row])
            bits >>= _ONE
            row += 1
            at += size


@compiled
def draw_rgb(
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
        low, high, entry = shapes[k, BOTTOM], shapes[k, TOP], shapes[k, ENTRY]
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
def mix(wall: Floats, palette: Colours, paint: Colours) -> None:
    """Write the colours of walls."""
    for column in range(len(wall)):
        paint[column] = palette[WALL, _shade(wall[column])]


@compiled
def dye(name: Shorts, kind: Shorts, instances: Shorts) -> None:
    """Write rows of the palette in the place of instances; `name` and `kind` are those of pieces and of objects."""
    for k in range(len(instances)):
        instance = instances[k]
        instances[k] = name[instance] % KINDS if instance < OBJECT else KINDS + kind[instance - OBJECT]


@compiled
def pack(pixels: Colours, rgb: Bytes) -> None:
    for k in range(len(pixels)):
        pixel = pixels[k]
        rgb[3 * k], rgb[3 * k + 1], rgb[3 * k + 2] = pixel & _LOW, pixel >> _GREEN & _LOW, pixel >> _BLUE & _LOW
