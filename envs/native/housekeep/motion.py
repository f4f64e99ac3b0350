"""Steps, turns and looks. A player is a disc that slides along walls and furniture: along x first, then along y.

An object is in nobody's way, and neither is a piece that a player can step over or that hangs over its eyes.
"""

from __future__ import annotations

import numpy as np

from envs.compiler import compiled
from envs.native.housekeep.layout import CELL, CLIMB, EYE, HEADINGS, RADIUS, STACKED, STRIDE, TILTS, Houses, State
from envs.native.housekeep.lens import AHEAD, ASIDE

MOVE_FORWARD, TURN_LEFT, TURN_RIGHT, LOOK_UP, LOOK_DOWN, GRAB_RELEASE = range(6)
"""Actions. A turn to the left is one from x towards y."""

_STEP = np.float32(CLIMB)  # as tops are: 0.1 is not above 0.1


@compiled
def move(houses: Houses, p: int, state: State, i: int, action: int) -> bool:
    """Player i of house p does one of the first five actions, or nothing; returns whether its pose changed."""
    heading, tilt = state.heading[i], state.tilt[i]
    if action == TURN_LEFT:
        state.heading[i] = (heading + 1) % HEADINGS
    elif action == TURN_RIGHT:
        state.heading[i] = (heading + HEADINGS - 1) % HEADINGS
    elif action == LOOK_UP:
        state.tilt[i] = min(tilt + 1, TILTS)
    elif action == LOOK_DOWN:
        state.tilt[i] = max(tilt - 1, -TILTS)
    elif action == MOVE_FORWARD:
        x, y = state.x[i], state.y[i]
        onward = np.float32(x + STRIDE * AHEAD[heading])
        if stands(houses, p, float(onward), float(y)):
            state.x[i] = onward
        onward = np.float32(y + STRIDE * ASIDE[heading])
        if stands(houses, p, float(state.x[i]), float(onward)):
            state.y[i] = onward
        return bool(state.x[i] != x or state.y[i] != y)
    return bool(state.heading[i] != heading or state.tilt[i] != tilt)


@compiled
def stands(houses: Houses, p: int, x: float, y: float) -> bool:
    """Whether a player has room at (x, y) of house p."""
    for r in range(int((y - RADIUS) / CELL), int((y + RADIUS) / CELL) + 1):
        for c in range(int((x - RADIUS) / CELL), int((x + RADIUS) / CELL) + 1):
            beside = max(c * CELL - x, x - (c + 1) * CELL, 0.0)
            before = max(r * CELL - y, y - (r + 1) * CELL, 0.0)
            if beside * beside + before * before < RADIUS * RADIUS and solid(houses, p, r, c):
                return False
    return True


@compiled
def solid(houses: Houses, p: int, r: int, c: int) -> bool:
    """Whether cell (r, c) of house p is in a player's way."""
    if not houses.room[p, r, c]:
        return True
    for k in range(STACKED):
        piece = houses.stacked[p, r, c, k]
        if piece and houses.bottom[p, piece] < EYE and houses.top[p, piece] > _STEP:
            return True
    return False
