"""One hand: it grips the object in the middle of the picture, or releases what it holds onto the piece there.

    the ray through the picture's middle ──> an instance ──> checks, in the published order ──> outcome

Nothing falls and nothing lies on the floor: what is released lies in the first free slot of its piece.
"""

from __future__ import annotations

import math

import numpy as np

from envs.compiler import compiled
from envs.native.housekeep.layout import CELL, EDGE, NOWHERE, OBJECT, OBJECT_SIDE, REACH, Houses, State
from envs.native.housekeep.pictures import Sketch
from envs.native.housekeep.sight import aim

OUTCOMES = (
    *("none", "picked", "dropped"),
    *("nothing there", "in hand", "far", "hand empty", "hand full", "hidden", "no room"),
)
"""What came of an action, by number: nothing to tell, two successes, and why a grip or release failed."""
NONE, PICKED, DROPPED, NOTHING_THERE, IN_HAND, FAR, HAND_EMPTY, HAND_FULL, HIDDEN, NO_ROOM = range(len(OUTCOMES))


@compiled
def rest(state: State, i: int) -> None:
    """Player i's hand does nothing in this step."""
    state.outcome[i] = NONE
    state.target[i, 0], state.target[i, 1] = NOWHERE, 0


@compiled
def grip(houses: Houses, p: int, state: State, i: int, see_through: bool, drawn: Sketch) -> bool:
    """Player i of house p grips or releases: `outcome` and `target` are written; returns whether it succeeded.

    Args:
        see_through: whether the hand reaches through walls, as in the published simulator.
        drawn: overwritten.
    """
    rest(state, i)
    instance = aim(houses, p, state, i, see_through, drawn)
    held = state.holding[i]
    k = instance - OBJECT
    piece = instance if k < 0 else state.place[i, k]
    if instance == 0:
        state.outcome[i] = NOTHING_THERE
    elif k == held:
        state.outcome[i] = IN_HAND
    elif not _near(houses, p, state, i, k, piece):
        state.outcome[i] = FAR
    elif k < 0 and held == NOWHERE:
        state.outcome[i] = HAND_EMPTY
    elif k >= 0 and held != NOWHERE:
        state.outcome[i] = HAND_FULL
    elif not (_visible(state, i, piece) or (k >= 0 and state.seen[i] >> k & 1)):
        state.outcome[i] = HIDDEN
    elif k >= 0:
        state.outcome[i] = PICKED
        state.on[i, piece, state.slot[i, k]] = NOWHERE
        state.place[i, k], state.slot[i, k], state.holding[i] = 0, NOWHERE, k
        state.target[i, 0], state.target[i, 1] = k, piece
    elif put(houses, p, state, i, held, piece):
        state.outcome[i] = DROPPED
        state.holding[i] = NOWHERE
        state.target[i, 0], state.target[i, 1] = held, piece
    else:
        state.outcome[i] = NO_ROOM
    return bool(state.outcome[i] == PICKED or state.outcome[i] == DROPPED)


@compiled
def put(houses: Houses, p: int, state: State, i: int, k: int, piece: int) -> bool:
    """Lay object k into the first free slot of a piece; returns whether there was one."""
    for slot in range(houses.capacity[p, piece]):
        if state.on[i, piece, slot] == NOWHERE:
            state.on[i, piece, slot] = k
            state.place[i, k], state.slot[i, k] = piece, slot
            return True
    return False


@compiled
def _visible(state: State, i: int, piece: int) -> bool:
    return bool(state.visible[i, piece >> 6] >> np.uint64(piece & 63) & np.uint64(1))


@compiled
def _near(houses: Houses, p: int, state: State, i: int, k: int, piece: int) -> bool:
    """Whether a corner or the middle of a piece, or of object k that lies on it, is within REACH on the plan.

    Args:
        k: below 0 for none.
    """
    x, y = np.float64(state.x[i]), np.float64(state.y[i])
    box = houses.box[p, piece]
    if _reached(x, y, box[1] * CELL, box[0] * CELL, box[3] * CELL, box[2] * CELL):
        return True
    if k < 0:
        return False
    cell = houses.slots[p, piece, state.slot[i, k]]
    middle_x, middle_y, half = (cell % EDGE + 0.5) * CELL, (cell // EDGE + 0.5) * CELL, OBJECT_SIDE / 2
    return _reached(x, y, middle_x - half, middle_y - half, middle_x + half, middle_y + half)


@compiled
def _reached(x: float, y: float, x0: float, y0: float, x1: float, y1: float) -> bool:
    """Whether a corner or the middle of a rectangle is within REACH of (x, y)."""
    corner = math.hypot(min(abs(x0 - x), abs(x1 - x)), min(abs(y0 - y), abs(y1 - y)))
    return min(corner, math.hypot((x0 + x1) / 2 - x, (y0 + y1) / 2 - y)) <= REACH
