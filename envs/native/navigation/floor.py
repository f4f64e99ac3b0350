"""A map as the compiled loops want it: tables by pixel.

    walls [H, W] ──> clear: how far a laser may jump      (four tables, one for each way it may look)
                 ──> touching: where a robot would touch  (so that a free robot searches nothing)

A table is read once where the published simulator walks pixel by pixel. Both are exact: they skip only pixels that are
known to be free.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled

RADIUS = 10.0  # of the robot, world units
MARGIN = 4.0  # what the search for collisions adds to the radius on each side
REACH = 100.0  # of a laser
FARTHEST = 255  # the largest entry of a table of uint8


class Floor(NamedTuple):
    """Tables of one map; a pixel is y * width + x."""

    clear: NDArray[np.uint8]
    """[4 * H * W] by quadrant and pixel: side of the largest free square that has its corner there and extends to
    the right and down (0), left and down (1), right and up (2), left and up (3); at most 255. 0: a wall."""
    touching: NDArray[np.bool_]
    """[H * W] whether a robot with its centre there has a wall within its radius; beyond the map all is wall."""
    disc: NDArray[np.int64]
    """[K, 2] (dx, dy) of the pixels within the radius."""
    bearings: NDArray[np.float64]
    """[K] atan2(dy, dx) of each."""
    width: int
    height: int
    scale: np.float32
    """Pixels a world unit."""
    doubt: float
    """How near to the edge of a pixel, in pixels, an approximate position must not lie to be trusted."""


def floor(walls: NDArray[np.bool_], world_size: float) -> Floor:
    """The tables of a map; those of the last few maps are kept.

    Args:
        walls: [H, W], with a closed border: nothing else keeps robots and lasers within the tables.
        world_size: width of the map in world units.
    """
    return _floor(walls.tobytes(), *walls.shape, float(world_size))


@lru_cache(8)
def _floor(content: bytes, height: int, width: int, world_size: float) -> Floor:
    walls = np.frombuffer(content, np.bool_).reshape(height, width)
    clear = np.zeros((4, height, width), np.uint8)
    for quadrant in range(4):
        across, down = slice(None, None, -1 if quadrant & 1 else 1), slice(None, None, -1 if quadrant & 2 else 1)
        _squares(np.ascontiguousarray(walls[down, across]), clear[quadrant])
        clear[quadrant] = clear[quadrant, down, across].copy()
    scale = np.float32(width) / np.float32(world_size)
    radius = int(float(np.float32(RADIUS) * scale) + 0.5)
    around = range(-radius, radius + 1)
    disc = [(x, y) for x in around for y in around if x * x + y * y <= radius * radius]
    touching = np.zeros_like(walls)
    walls_to_the_left = np.pad(np.pad(walls, radius, constant_values=True).cumsum(1, np.int32), ((0, 0), (1, 0)))
    for dy in around:
        half = math.isqrt(radius * radius - dy * dy)  # of the disc's width in this line
        line = walls_to_the_left[radius + dy : radius + dy + height]
        first, last = radius - half, radius + half + 1
        touching |= line[:, last : last + width] > line[:, first : first + width]
    return Floor(
        clear=clear.ravel(),
        touching=touching.ravel(),
        disc=np.array(disc, np.int64),
        bearings=np.array([math.atan2(y, x) for x, y in disc]),
        width=width,
        height=height,
        scale=scale,
        # Positions and sums of angles are float32: some 1e-7 of the largest pixel number that occurs, a few times.
        doubt=1e-6 * (max(width, height) + REACH * float(scale)),
    )


@compiled
def _squares(walls: NDArray[np.bool_], side: NDArray[np.uint8]) -> None:
    """Side of the largest free square that extends from each pixel to the right and down; [H, W] both."""
    height, width = walls.shape
    for y in range(height - 1, -1, -1):
        for x in range(width - 1, -1, -1):
            if walls[y, x]:
                side[y, x] = 0
            elif y == height - 1 or x == width - 1:
                side[y, x] = 1
            else:
                smallest = min(side[y + 1, x], side[y, x + 1], side[y + 1, x + 1])
                side[y, x] = min(smallest + 1, FARTHEST)
