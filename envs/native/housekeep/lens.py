"""What a picture of a given size needs and no house changes: rays by heading and column, slopes by tilt, colours.

A column of a picture is a vertical plane, and distances are depths: how far ahead of the player, not how far away. So a
pixel of row r is a ray that climbs `slope[tilt, r]` metres a metre, in whichever column it is, and a look up or down
shears the picture. The field of view is 90 degrees, pixels are square.

What lies behind everything, floor and ceiling, depends on tilt and row alone.
"""

from __future__ import annotations

import colorsys
import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.housekeep import names
from envs.native.housekeep.layout import EYE, HEADINGS, TILT, TILTS

CEILING = 2.5
"""Metres."""
NEAR = 1e-6
"""Depth, in metres, at which rays begin: none divides by 0."""
SHADES, PER_METRE = 32, 4
"""How many shades a colour has, and how many of them a metre of depth is worth; the last is for all beyond 8 m."""
KINDS = len(names.KINDS)
FLOOR, WALL, ABOVE = range(KINDS + len(names.OBJECTS), KINDS + len(names.OBJECTS) + 3)
"""Rows of a palette: first the kinds of furniture, then those of objects, then these; the last is the ceiling."""

_DARKEST = 0.3
_ENDLESS = 1e30  # stands for 1 / 0

AHEAD = np.array([math.cos(math.tau / HEADINGS * min(h, HEADINGS - h)) for h in range(HEADINGS)])
"""Along x, by heading. That and the next are exact mirror images of themselves, so a mirrored house is seen as one."""
ASIDE = np.array(
    [math.copysign(math.sin(math.tau / HEADINGS * min(h, HEADINGS - h)), HEADINGS / 2 - h) for h in range(HEADINGS)]
)
"""Along y, by heading."""
STEEP = np.array([math.tan(math.radians(TILT * tilt)) for tilt in range(-TILTS, TILTS + 1)])
"""How much the middle of the picture climbs, by TILTS + tilt."""


class Lens(NamedTuple):
    """Tables for pictures of S x S."""

    ray: NDArray[np.float64]  # [HEADINGS, S, 2] metres along x and y for each metre ahead
    per: NDArray[np.float64]  # [HEADINGS, S, 2] one over these; 1e30 where it would be infinite
    level: NDArray[np.float64]  # [2 TILTS + 1] the row, with a fraction, whose ray is level
    slope: NDArray[np.float64]  # [2 TILTS + 1, S]
    per_slope: NDArray[np.float64]  # [2 TILTS + 1, S] one over these
    depth: NDArray[np.float32]  # [2 TILTS + 1, S] of floor and ceiling
    rgb: NDArray[np.uint32]  # [2 TILTS + 1, S] their colours, red in the lowest byte, then green and blue
    palette: NDArray[np.uint32]  # [ABOVE + 1, SHADES] likewise


@lru_cache(8)
def lens(size: int) -> Lens:
    """The tables for pictures of `size` x `size`; the last few are kept.

    Raises:
        ValueError: the size is below 1.
    """
    if size < 1:
        raise ValueError(f"a picture has at least one pixel a side: got {size}")
    offset = (2 * np.arange(size) + 1 - size) / size  # of the middles of pixels, -1 to 1
    ray = np.stack([AHEAD[:, None] + ASIDE[:, None] * offset, ASIDE[:, None] - AHEAD[:, None] * offset], -1)
    slope = STEEP[:, None] - offset
    per_slope = _all_over(slope)
    depth = np.where(slope < 0, -EYE, CEILING - EYE) * per_slope
    colours = np.where(slope < 0, FLOOR, ABOVE)
    packed = palette().astype(np.uint32) @ np.array([1, 1 << 8, 1 << 16], np.uint32)
    return Lens(
        ray=ray,
        per=_all_over(ray),
        level=(1 + STEEP) * size / 2 - 0.5,
        slope=slope,
        per_slope=per_slope,
        depth=depth.astype(np.float32),
        rgb=packed[colours, np.minimum(depth * PER_METRE, SHADES - 1).astype(int)],
        palette=packed,
    )


@cache
def palette() -> NDArray[np.uint8]:
    """Colours, uint8 [ABOVE + 1, SHADES, 3], from near to far. No two are the same at one depth.

    Furniture is pale and objects are bright; hues of successive kinds are far apart.
    """
    hues = np.arange(ABOVE + 1) * (math.sqrt(5) - 1) / 2 % 1
    bright = [
        colorsys.hsv_to_rgb(hue, 0.35 + 0.1 * (k % 3) if k < KINDS else 0.8 + 0.1 * (k % 3), 1 - 0.1 * (k % 4))
        for k, hue in enumerate(hues)
    ]
    bright[FLOOR], bright[WALL], bright[ABOVE] = (0.45, 0.36, 0.28), (0.85, 0.84, 0.8), (0.97, 0.97, 0.97)
    light = np.linspace(1, _DARKEST, SHADES)
    return (255 * np.array(bright)[:, None] * light[:, None]).round().astype(np.uint8)


@compiled
def over(value: float) -> float:
    """1 / value; what is all but 0 counts as 0, and as positive."""
    return 1 / value if abs(value) > 1e-12 else _ENDLESS


def _all_over(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([over(value) for value in values.ravel().tolist()]).reshape(values.shape)
