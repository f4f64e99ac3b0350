"""Pictures: what a player of Crafter sees, pixel by pixel as the simulator draws it, compiled.

    row ── 9 x 7 tiles: a material, what stands on it ──> light, noise at night, sleep ──> below it the inventory

No two objects share a cell, so every tile that there can be is blended once, when pictures of a size are first asked
for, and likewise every item with its amount. Drawing copies tiles and computes the light. Wherever the simulator cuts
fractions off, we do: the blends are in its float32, the light is in its float64.

One thing differs. The simulator draws the noise of the night from the stream that moves its world, so that looking at
a game changes it. Our noise follows from the episode's seed and the step.

On one core, a picture of 64 x 64 pixels takes about 22 us by day and 25 us at night.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from envs.compiler import compiled
from envs.crafter.rules import ARROW, ITEMS, MATERIALS, MOST, NOTHING, PLANT, PLAYER, VIEW
from envs.native.crafter.layout import FACING, FIRST, ITEM, KIND, SLEEPING, STEP, Index, Row, Rows, X, Y
from envs.native.crafter.objects import material_at, object_at
from envs.native.crafter.player import RIPE_AGE
from envs.native.random import uniform

SIDE = 64  # pixels of the simulator's own pictures

_LOOKS = (
    *("player-left", "player-right", "player-up", "player-down", "player-sleep"),
    *("cow", "zombie", "skeleton"),
    *("arrow-left", "arrow-right", "arrow-up", "arrow-down"),
    *("plant", "plant-ripe"),
)
"""How objects look, by texture; look 0 is an empty cell, these are 1 and on."""
_LOOK = np.array([0, 1, 6, 7, 8, 9, 13])  # the first look of each kind of object
_ASLEEP = 4  # looks after the player's first

_COLUMNS, _LINES = VIEW
_BEYOND = 127  # grey of cells beyond the map
_STEPS = 1 << 15  # that a row can count

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.float64]


def draw(rows: Rows, index: Index, seeds: NDArray[np.int64], out: Bytes) -> None:
    """Pictures of worlds `rows[index]`, red, green and blue at [row, column].

    Args:
        rows: [N, ROW], see `layout`.
        index: [M].
        seeds: [M], of the episodes that are played in them; they decide the noise.
        out: [M, S, S, 3], is filled. A cell has S // 9 pixels a side, what is left over is a black frame. The
            simulator's own pictures have S = `SIDE`.

    Raises:
        ValueError: `out` is of another shape, or S is below 18.
    """
    side = out.shape[1]
    if out.shape != (len(index), side, side, 3) or side < 2 * _COLUMNS:
        raise ValueError(f"pictures of {len(index)} worlds fill [{len(index)}, S, S, 3], S from 18: got {out.shape}")
    _draw(rows, index, seeds, daylight(), *_tables(side // _COLUMNS), out)


@compiled
def noise(seed: int, step: int, out: Numbers) -> None:
    """The noise of a night's picture: `out`, of any [width, height], is filled with numbers of [32, 127)."""
    state = np.empty(1, np.uint64)
    state[0] = np.uint64(seed) * np.uint64(_STEPS) + np.uint64(step)
    for x in range(out.shape[0]):
        for y in range(out.shape[1]):
            out[x, y] = 32 + 95 * uniform(state)


@cache
def daylight() -> Numbers:
    """How bright it is after each number of steps, [32768], of [0, 1]; below 0.5 it is night."""
    progress = np.arange(_STEPS) / 300 % 1 + 0.3
    darkness = np.abs(np.cos(np.pi * progress)).tolist()
    return 1 - np.array([dark**3 for dark in darkness])  # powers of arrays differ from the simulator's in the last bit


# ---- what is copied -------------------------------------------------------------------------------------------------


@cache
def _tables(unit: int) -> tuple[Bytes, Bytes, Numbers]:
    """For cells of `unit` pixels: tiles [look, material, 3, y, x], items [item, amount, 3, y, x], and how much of a
    picture is noise when it is darkest, [7 * unit, 9 * unit], of [0, 1]."""
    beyond = np.full((3, unit, unit), _BEYOND, np.uint8)
    grounds = np.stack([beyond, *(_texture(name, unit)[:3] for name in MATERIALS[NOTHING + 1 :])])
    tiles = np.stack([grounds, *(_over(grounds, _texture(name, unit)) for name in _LOOKS)])
    items = np.zeros((len(ITEMS), MOST + 1, 3, unit, unit), np.uint8)
    for item, name in enumerate(ITEMS):
        for amount in range(1, MOST + 1):
            for texture, corner, share in ((name, 0.1, 0.8), (str(amount), 0.4, 0.6)):
                first, side = int(corner * unit), int(share * unit)
                part = items[item, amount, :, first : first + side, first : first + side]
                part[:] = _over(part, _texture(texture, side))
    x, y = np.linspace(-1, 1, _COLUMNS * unit), np.linspace(-1, 1, _LINES * unit)
    return tiles, items, 1 - np.exp(-0.5 * (x**2 + y[:, None] ** 2) / 0.5**2)


@cache
def _texture(name: str, side: int) -> Bytes:
    """A texture of the simulator, [4, side, side]: red, green, blue, and how opaque it is."""
    with (files("crafter") / "assets" / f"{name}.png").open("rb") as file, Image.open(file) as image:
        pixels: Bytes = np.asarray(image.convert("RGBA").resize((side, side), Image.Resampling.NEAREST))
    return pixels.transpose(2, 0, 1)


def _over(below: Bytes, texture: Bytes) -> Bytes:
    """A texture blended over [..., 3, side, side]."""
    white = np.float32(255)
    colour, opaque = texture[:3] / white, texture[3] / white
    blended: Bytes = (white * (opaque * colour + (1 - opaque) * (below / white))).astype(np.uint8)
    return blended


# ---- drawing --------------------------------------------------------------------------------------------------------


@compiled
def _draw(
    rows: Rows,
    index: Index,
    seeds: NDArray[np.int64],
    daylights: Numbers,
    tiles: Bytes,
    items: Bytes,
    edges: Numbers,
    out: Bytes,
) -> None:
    unit = tiles.shape[3]
    picture = np.zeros((3, _COLUMNS * unit, _COLUMNS * unit), np.uint8)  # in planes, which the processor lights faster
    grain = np.zeros_like(edges)
    for j in range(len(index)):
        row = rows[index[j]]
        for line in range(_LINES):
            for column in range(_COLUMNS):
                x, y = row[X] + column - _COLUMNS // 2, row[Y] + line - _LINES // 2
                _lay(tiles[_look(row, object_at(row, x, y)), material_at(row, x, y)], picture, column, line)
        bright = daylights[row[STEP]]
        if bright < 0.5:
            noise(seeds[j], row[STEP], grain.T)
        _light(picture, bright, edges, grain)
        if row[SLEEPING]:
            _close_eyes(picture, edges)
        for item in range(len(ITEMS)):
            _lay(items[item, row[ITEM + item]], picture, item % _COLUMNS, _LINES + item // _COLUMNS)
        _frame(picture, out[j])


@compiled
def _look(row: Row, thing: int) -> int:
    """How an object looks; 0 if there is none."""
    if thing < 0:
        return 0
    kind, state = row[KIND + thing], row[FIRST + thing]
    look: int = _LOOK[kind]
    if kind == PLAYER:
        look += _ASLEEP if row[SLEEPING] else row[FACING]
    elif kind == ARROW:
        look += state
    elif kind == PLANT:
        look += state > RIPE_AGE
    return look


@compiled
def _lay(tile: Bytes, picture: Bytes, column: int, line: int) -> None:
    unit = tile.shape[1]
    picture[:, line * unit : (line + 1) * unit, column * unit : (column + 1) * unit] = tile


@compiled
def _light(picture: Bytes, bright: float, edges: Numbers, grain: Numbers) -> None:
    """Mix the view with what it is at night: noisy towards its edges, washed out and bluish."""
    dark = max(0.0, 2 * (0.5 - bright))  # 0 by day, when the grain is of no meaning
    for y in range(edges.shape[0]):
        for x in range(edges.shape[1]):
            red, green, blue = picture[0, y, x], picture[1, y, x], picture[2, y, x]
            noisy = dark * edges[y, x]
            clear, added = 1 - noisy, noisy * grain[y, x]
            night_red, night_green = int(clear * red + added), int(clear * green + added)
            night_blue = int(clear * blue + added)
            grey = _grey(night_red, night_green, night_blue)
            picture[0, y, x] = int(bright * red + (1 - bright) * (0.5 * _washed(grey, night_red)))
            picture[1, y, x] = int(bright * green + (1 - bright) * (0.5 * _washed(grey, night_green) + 8))
            picture[2, y, x] = int(bright * blue + (1 - bright) * (0.5 * _washed(grey, night_blue) + 32))


@compiled
def _close_eyes(picture: Bytes, edges: Numbers) -> None:
    """Make the view grey, half as bright and a little blue."""
    for y in range(edges.shape[0]):
        for x in range(edges.shape[1]):
            half = _grey(picture[0, y, x], picture[1, y, x], picture[2, y, x]) // 2
            picture[0, y, x] = picture[1, y, x] = half
            picture[2, y, x] = half + 8


@compiled
def _grey(red: int, green: int, blue: int) -> int:
    """Brightness of a colour, as Pillow rounds it."""
    return (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16


@compiled
def _washed(grey: int, colour: int) -> int:
    """A colour with two fifths of its difference from grey, as Pillow rounds it."""
    return int(grey + 0.4 * (colour - grey))


@compiled
def _frame(picture: Bytes, out: Bytes) -> None:
    """Planes to pixels, in the middle of `out`; the rest of it is black."""
    side = picture.shape[1]
    first = (out.shape[0] - side) // 2
    out[:] = 0
    inner = out[first : first + side, first : first + side]
    for y in range(side):
        for x in range(side):
            for channel in range(3):
                inner[y, x, channel] = picture[channel, y, x]
