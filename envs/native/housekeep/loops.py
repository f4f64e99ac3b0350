"""Many players, many steps. Players do not meet: each has its own house, or its own copy of one.

    begin ──> _place ──┐
    advance ──> _act ──┴──> _see ──> State, Pictures

Nothing in a step is drawn by chance. Pictures must be the same arrays in every call: a player whose step changed
neither its pose nor where objects lie keeps the picture that it has. Houses must be closed by walls, as nothing else
ends what a player sees. Neither is checked.

What moves players and what draws for them are compiled apart: together they would take twice as long to compile.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.hands import grip, put, rest
from envs.native.housekeep.layout import NOWHERE, Houses, State
from envs.native.housekeep.lens import Lens
from envs.native.housekeep.motion import GRAB_RELEASE, move
from envs.native.housekeep.pictures import Pictures, sketch
from envs.native.housekeep.sight import look

Index = NDArray[np.int64]


def begin(houses: Houses, which: Index, state: State, index: Index, lens: Lens, pictures: Pictures) -> None:
    """Players `index` start: their rows of `state` and `pictures` are written.

    Args:
        which: [N], the house of each player.
        index: [M].
        lens: of the pictures' size.
    """
    _place(houses, which, state, index)
    _see(houses, which, state, index, lens, pictures)


def advance(
    houses: Houses,
    which: Index,
    state: State,
    index: Index,
    actions: Index,
    see_through: bool,
    lens: Lens,
    pictures: Pictures,
) -> None:
    """One step of players `index`: their rows of `state` and of `pictures` are changed.

    Args:
        which: [N], the house of each player.
        index, actions: [M], see `motion`.
        see_through: whether hands reach through walls.
        lens: of the pictures' size.
    """
    changed = _act(houses, which, state, index, actions, see_through)
    _see(houses, which, state, index[changed], lens, pictures)


@compiled
def _place(houses: Houses, which: Index, state: State, index: Index) -> None:
    """Bring players to where they start, and objects to where they lie at first."""
    for i in index:
        p = which[i]
        state.x[i], state.y[i] = houses.start[p, 0], houses.start[p, 1]
        state.heading[i], state.tilt[i] = houses.heading[p], 0
        state.holding[i] = NOWHERE
        state.place[i], state.slot[i], state.on[i] = 0, NOWHERE, NOWHERE
        state.known[i], state.met[i] = 0, 0
        rest(state, i)
        for k in range(houses.objects[p]):
            lies = houses.lies[p, k]
            if lies == 0:
                state.holding[i] = k
                state.met[i] |= np.uint16(1 << k)
            elif lies != NOWHERE:
                put(houses, p, state, i, k, lies)


@compiled
def _act(
    houses: Houses, which: Index, state: State, index: Index, actions: Index, see_through: bool
) -> NDArray[np.bool_]:
    """Players `index` [M] do `actions` [M]; returns whether each changed its pose or where an object lies, [M]."""
    changed, drawn = np.empty(len(index), np.bool_), sketch(1)
    for j in range(len(index)):
        i, action = index[j], actions[j]
        if action == GRAB_RELEASE:
            changed[j] = grip(houses, which[i], state, i, see_through, drawn)
        else:
            rest(state, i)
            changed[j] = move(houses, which[i], state, i, action)
    return changed


@compiled
def _see(houses: Houses, which: Index, state: State, index: Index, lens: Lens, pictures: Pictures) -> None:
    """Players `index` look: their rows of `pictures` are written, and what they know is noted."""
    drawn = sketch(pictures.ids.shape[1])
    for i in index:
        look(houses, which[i], state, i, lens, drawn, pictures)
