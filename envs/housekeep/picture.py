"""A house from above, and beside it what its player sees, for people.

Furniture has the colours of the player's picture. An object is a square, green where it lies right and red where not,
with a white rim; what the player holds is drawn where it stands.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from envs.native.housekeep.layout import CELL, EDGE, HEADINGS, NOWHERE, RADIUS, Houses, State
from envs.native.housekeep.lens import KINDS, lens, palette
from envs.native.housekeep.pictures import pictures, sketch
from envs.native.housekeep.sight import look

PIXELS = 8
"""Of a side of a cell."""
VIEW = 256
"""Pixels of a side of the player's picture, at most."""
_WALL, _FLOOR, _RIM = (64, 62, 60), (226, 218, 206), (255, 255, 255)
_RIGHT, _WRONG, _PLAYER = (46, 160, 67), (220, 53, 69), (33, 96, 196)
_SHADE = 6  # of the palette: not the brightest, so that white shows

Picture = NDArray[np.uint8]


def draw(houses: Houses, p: int, state: State, i: int, right: NDArray[np.bool_]) -> Picture:
    """RGB, uint8 [H, W, 3]: house p with player i.

    Args:
        right: [P, OBJECTS, pieces], whether a piece is right for an object.
    """
    plan = _plan(houses, p)
    for k in range(int(houses.objects[p])):
        piece = int(state.place[i, k])
        if piece:
            cell = int(houses.slots[p, piece, state.slot[i, k]])
            _square(plan, cell // EDGE + 0.5, cell % EDGE + 0.5, _RIGHT if right[p, k, piece] else _WRONG)
    _player(plan, state, i)
    if state.holding[i] != NOWHERE:
        _square(plan, float(state.y[i]) / CELL, float(state.x[i]) / CELL, _WRONG)
    size = min(len(plan), VIEW)
    canvas = np.full((len(plan), plan.shape[1] + PIXELS + size, 3), 255, np.uint8)
    canvas[:, : plan.shape[1]] = plan
    canvas[:size, -size:] = _seen(houses, p, state, i, size)
    return canvas


def _plan(houses: Houses, p: int) -> Picture:
    rows, columns = houses.size[p].tolist()
    cells = np.empty((rows, columns, 3), np.uint8)
    cells[:] = _FLOOR
    cells[houses.room[p, :rows, :columns] == 0] = _WALL
    plan = cells.repeat(PIXELS, 0).repeat(PIXELS, 1)
    pieces = range(1, int(houses.pieces[p]) + 1)
    for piece in sorted(pieces, key=lambda piece: float(houses.top[p, piece])):  # what is higher hides what is lower
        first, left, end, right = (houses.box[p, piece] * PIXELS).tolist()
        plan[first:end, left:right] = palette()[houses.name[p, piece] % KINDS, _SHADE]
        plan[first, left:right] = plan[end - 1, left:right] = _WALL
        plan[first:end, left] = plan[first:end, right - 1] = _WALL
    return plan


def _square(plan: Picture, row: float, column: float, colour: tuple[int, int, int]) -> None:
    top, left, side = round((row - 0.5) * PIXELS), round((column - 0.5) * PIXELS), PIXELS
    plan[top : top + side, left : left + side] = _RIM
    plan[top + 1 : top + side - 1, left + 1 : left + side - 1] = colour


def _player(plan: Picture, state: State, i: int) -> None:
    """A disc, and a line to where it looks."""
    x, y = float(state.x[i]) / CELL * PIXELS, float(state.y[i]) / CELL * PIXELS
    rows, columns = np.mgrid[: len(plan), : plan.shape[1]]
    plan[np.hypot(columns + 0.5 - x, rows + 0.5 - y) <= 2 * RADIUS / CELL * PIXELS] = _PLAYER
    angle = math.tau * int(state.heading[i]) / HEADINGS
    for far in range(5 * PIXELS):
        row, column = int(y + far * math.sin(angle)), int(x + far * math.cos(angle))
        if 0 <= row < len(plan) and 0 <= column < plan.shape[1]:
            plan[row, column] = _PLAYER


def _seen(houses: Houses, p: int, state: State, i: int, size: int) -> Picture:
    """The player's picture, of any size; what it sees in its own stays noted."""
    alone = State._make(column[i : i + 1].copy() for column in state)
    drawn = pictures(1, size, rgb=True)
    look(houses, p, alone, 0, lens(size), sketch(size), drawn)
    seen: Picture = drawn.rgb[0]
    return seen
