"""Many players, many steps. Players do not meet: each has its own house, or its own copy of one.

    begin ──> advance, advance, ... ──> State, Pictures

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
from envs.native.housekeep.sight import Pictures, look, spare


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
    strips = spare(pictures.ids.shape[1])
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
        look(houses, p, state, i, lens, strips, pictures)


@compiled
def advance(
    houses: Houses,
    which: NDArray[np.int64],
    state: State,
    index: NDArray[np.int64],
    actions: NDArray[np.int64],
    see_through: bool,
    lens: Lens,
    pictures: Pictures,
) -> None:
    """One step of players `index` [M]: their rows of `state` and of `pictures` are changed.

    Args:
        which: [N], the house of each player.
        actions: [M], see `motion`.
        see_through: whether hands reach through walls.
        lens: of the pictures' size.
    """
    strips = spare(pictures.ids.shape[1])
    for m in range(len(index)):
        i = index[m]
        p = which[i]
        if actions[m] == GRAB_RELEASE:
            changed = grip(houses, p, state, i, see_through, strips)
        else:
            rest(state, i)
            changed = move(houses, p, state, i, actions[m])
        if changed:
            look(houses, p, state, i, lens, strips, pictures)
