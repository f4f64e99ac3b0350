"""Pictures: what a player of Crafter sees, pixel by pixel as the simulator draws it, compiled.

    row ── 9 x 7 tiles: a material, what stands on it ──> light, noise at night, sleep ──> below it the inventory

No two objects share a cell, so every tile that there can be is blended once, when pictures of a size are first asked
for, and likewise every item with its amount. They have few colours, 273 in pictures of 64 x 64, so they are kept as
places in a palette, and by day, when the light of a pixel depends on its colour alone, the palette is lit in its place.
Wherever the simulator cuts fractions off, we do: the blends are in its float32, the light is in its float64.

One thing differs. The simulator draws the noise of the night from the stream that moves its world, so that looking at
a game changes it. Our noise follows from the episode's seed and the step.

On one core, a picture of 64 x 64 pixels takes about 9 us by day and 21 us at night.
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
Planes = NDArray[np.uint8]  # [3, height, width]: red, green, blue; a palette is one line
Places = NDArray[np.uint16]  # in a palette
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
def _tables(unit: int) -> tuple[Planes, Places, Places, Numbers]:
    """For cells of `unit` pixels: the palette; by places in it, tiles [look, material, y, x] and items [item, amount,
    y, x]; and how much of a picture is noise when it is darkest, [7 * unit, 9 * unit], of [0, 1]."""
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
    pixels = [np.moveaxis(part, 2, -1).reshape(-1, 3) for part in (tiles, items)]
    palette, places = np.unique(np.concatenate(pixels), axis=0, return_inverse=True)
    of_tiles, of_items = np.split(places.ravel().astype(np.uint16), [len(pixels[0])])
    x, y = np.linspace(-1, 1, _COLUMNS * unit), np.linspace(-1, 1, _LINES * unit)
    return (
        np.ascontiguousarray(palette.T[:, None]),
        of_tiles.reshape(*tiles.shape[:2], unit, unit),
        of_items.reshape(*items.shape[:2], unit, unit),
        1 - np.exp(-0.5 * (x**2 + y[:, None] ** 2) / 0.5**2),
    )


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
    palette: Planes,
    tiles: Places,
    items: Places,
    edges: Numbers,
    out: Bytes,
) -> None:
    unit = tiles.shape[2]
    height, side = _LINES * unit, _COLUMNS * unit
    first = (out.shape[1] - side) // 2
    places = np.zeros((side, side), np.uint16)
    planes, grain = np.empty((3, height, side), np.uint8), np.empty((height, side))
    lit, even = np.empty_like(palette), np.zeros(palette.shape[1:])
    for j in range(len(index)):
        row = rows[index[j]]
        for line in range(_LINES):
            for column in range(_COLUMNS):
                x, y = row[X] + column - _COLUMNS // 2, row[Y] + line - _LINES // 2
                _lay(tiles[_look(row, object_at(row, x, y)), material_at(row, x, y)], places, column, line)
        for item in range(len(ITEMS)):
            _lay(items[item, row[ITEM + item]], places, item % _COLUMNS, _LINES + item // _COLUMNS)
        out[j] = 0
        picture = out[j, first : first + side, first : first + side]
        _paint(places[height:], palette, picture[height:])
        bright, asleep = daylights[row[STEP]], row[SLEEPING] != 0
        if bright < 0.5:
            noise(seeds[j], row[STEP], grain.T)
            _spread(places[:height], palette, planes)
            _light(planes, bright, edges, grain, asleep)
            _interleave(planes, picture[:height])
        else:
            lit[:] = palette
            _light(lit, bright, even, even, asleep)
            _paint(places[:height], lit, picture[:height])


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
def _lay(tile: Places, places: Places, column: int, line: int) -> None:
    unit = len(tile)
    cell = places[line * unit : (line + 1) * unit, column * unit : (column + 1) * unit]
    for y in range(unit):
        for x in range(unit):
            cell[y, x] = tile[y, x]


@compiled
def _paint(places: Places, palette: Planes, out: Bytes) -> None:
    """Write the colours of `places` into pixels [y, x, 3]."""
    red, green, blue = palette[0, 0], palette[1, 0], palette[2, 0]
    for y in range(places.shape[0]):
        for x in range(places.shape[1]):
            place = places[y, x]
            out[y, x, 0], out[y, x, 1], out[y, x, 2] = red[place], green[place], blue[place]


@compiled
def _spread(places: Places, palette: Planes, out: Planes) -> None:
    """Write the colours of `places` into planes, which the processor lights faster than pixels."""
    for channel in range(3):
        for y in range(places.shape[0]):
            for x in range(places.shape[1]):
                out[channel, y, x] = palette[channel, 0, places[y, x]]


@compiled
def _interleave(planes: Planes, out: Bytes) -> None:
    """Write planes into pixels [y, x, 3]."""
    for y in range(planes.shape[1]):
        for x in range(planes.shape[2]):
            out[y, x, 0], out[y, x, 1], out[y, x, 2] = planes[0, y, x], planes[1, y, x], planes[2, y, x]


@compiled
def _light(planes: Planes, bright: float, edges: Numbers, grain: Numbers, asleep: bool) -> None:
    """Mix colours with what they are at night: noisy towards the edges, washed out and bluish. Then close the eyes."""
    dark = max(0.0, 2 * (0.5 - bright))  # 0 by day, when the grain is of no meaning
    for y in range(edges.shape[0]):
        for x in range(edges.shape[1]):
            red, green, blue = planes[0, y, x], planes[1, y, x], planes[2, y, x]
            noisy = dark * edges[y, x]
            clear, added = 1 - noisy, noisy * grain[y, x]
            night_red, night_green = int(clear * red + added), int(clear * green + added)
            night_blue = int(clear * blue + added)
            grey = _grey(night_red, night_green, night_blue)
            planes[0, y, x] = int(bright * red + (1 - bright) * (0.5 * _washed(grey, night_red)))
            planes[1, y, x] = int(bright * green + (1 - bright) * (0.5 * _washed(grey, night_green) + 8))
            planes[2, y, x] = int(bright * blue + (1 - bright) * (0.5 * _washed(grey, night_blue) + 32))
    if asleep:
        _close_eyes(planes)


@compiled
def _close_eyes(planes: Planes) -> None:
    """Make colours grey, half as bright and a little blue."""
    for y in range(planes.shape[1]):
        for x in range(planes.shape[2]):
            half = _grey(planes[0, y, x], planes[1, y, x], planes[2, y, x]) // 2
            planes[0, y, x] = planes[1, y, x] = half
            planes[2, y, x] = half + 8


@compiled
def _grey(red: int, green: int, blue: int) -> int:
    """Brightness of a colour, as Pillow rounds it."""
    return (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16


@compiled
def _washed(grey: int, colour: int) -> int:
    """A colour with two fifths of its difference from grey, as Pillow rounds it."""
    return int(grey + 0.4 * (colour - grey))
