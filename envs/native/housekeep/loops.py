"""Many players, many steps. Players do not meet: each has its own house, or its own copy of one.

    begin ──> advance, advance, ... ──> State, Pictures        begin ──> replay ──> the same

Nothing in a step is drawn by chance. Pictures must be the same arrays in every call, as a player whose step changed
neither its pose nor where objects lie keeps the picture that it has.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.hands import grip, put, rest
from envs.native.housekeep.layout import NOWHERE, Houses, State
from envs.native.housekeep.lens import Lens
from envs.native.housekeep.motion import GRAB_RELEASE, move
from envs.native.housekeep.sight import Pictures, Sketch, look, sketch


@compiled
def begin(
    houses: Houses, which: NDArray[np.int64], state: State, index: NDArray[np.int64], lens: Lens, pictures: Pictures
) -> None:
    """Players `index` start: their rows of `state` and `pictures` are written.

    Args:
        which: [N], the house of each player.
        index: [M].
        lens: of the pictures' size.
    """
    drawn = sketch(pictures.ids.shape[1])
    for i in index:
        p = which[i]
        state.x[i], state.y[i] = houses.start[p, 0], houses.start[p, 1]
        state.heading[i], state.tilt[i] = houses.heading[p], 0
        state.holding[i] = NOWHERE
        state.place[i], state.slot[i], state.on[i] = 0, NOWHERE, NOWHERE
        state.known[i], state.met[i] = 0, 0
        rest(state, i)
        for k in range(houses.objects[p]):
            put(houses, p, state, i, k, houses.lies[p, k])
        look(houses, p, state, i, lens, drawn, pictures)


@compiled
def advance(
    houses: Houses,
    which: NDArray[np.int64],
    state: State,
    actions: NDArray[np.int64],
    see_through: bool,
    lens: Lens,
    pictures: Pictures,
) -> None:
    """One step of all: rows of `state` and of `pictures` are changed.

    Args:
        which: [N], the house of each player.
        actions: [N], see `motion`.
        see_through: whether hands reach through walls.
        lens: of the pictures' size.
    """
    drawn = sketch(pictures.ids.shape[1])
    for i in range(len(actions)):
        _step(houses, which[i], state, i, actions[i], see_through, lens, drawn, pictures)


@compiled
def replay(
    houses: Houses,
    which: NDArray[np.int64],
    state: State,
    lengths: NDArray[np.int32],
    actions: NDArray[np.int64],
    see_through: bool,
    lens: Lens,
    pictures: Pictures,
) -> None:
    """Player i, who has just begun, makes its first `lengths[i]` steps of actions [N, T]; see `advance`.

    Depths and colours are drawn once, in the end: only what was visible on the way makes a difference.
    """
    drawn = sketch(pictures.ids.shape[1])
    plain = Pictures(pictures.ids, pictures.depth[:0], pictures.rgb[:0])
    for i in range(len(lengths)):
        for t in range(lengths[i]):
            _step(houses, which[i], state, i, actions[i, t], see_through, lens, drawn, plain)
        if lengths[i]:
            look(houses, which[i], state, i, lens, drawn, pictures)


@compiled
def _step(
    houses: Houses,
    p: int,
    state: State,
    i: int,
    action: int,
    see_through: bool,
    lens: Lens,
    drawn: Sketch,
    pictures: Pictures,
) -> None:
    if action == GRAB_RELEASE:
        changed = grip(houses, p, state, i, see_through, drawn)
    else:
        rest(state, i)
        changed = move(houses, p, state, i, action)
    if changed:
        look(houses, p, state, i, lens, drawn, pictures)
