"""What a player sees and holds and where it stands as numbers, as a detector and a compass would tell.

    boxes   [(1 + K) * 4 + M]   of the nearest object in the picture, and of each of K names of furniture, see
                                `envs.native.housekeep.boxes.BOX`; and which of M objects that is, 0 or 1
    hand    [3 + 3 * M + K]     is an object held, is one in the middle of the picture and in reach, is furniture there;
                                then which is held, which is there, and which were held in the episode: 0 or 1
    pose    [19]                cosine and sine of x and y in waves of 16, 8, 4 and 2 m, cosine and sine of the heading,
                                tilt from -1 to 1

All are float32. Objects come in the order of their numbers, names in that of the alphabet. With these, small networks
learn in minutes on two cores, where those that look at pictures need hours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from envs.api import Field

if TYPE_CHECKING:
    from envs.native.housekeep.layout import Houses, State

SENSES: tuple[Literal["boxes", "hand", "pose"], ...] = ("boxes", "hand", "pose")
"""Fields that are made here."""
WAVES = (16.0, 8.0, 4.0, 2.0)
"""Metres. A small network hardly tells places apart by two numbers, and well by these (Tancik et al. 2020)."""
_BOX = 4  # numbers


def field(name: str, objects: int, places: int) -> Field:
    """What the field is in a house of so many objects and names of furniture."""
    sizes = {
        "boxes": (1 + places) * _BOX + objects,
        "hand": 3 + 3 * objects + places,
        "pose": 4 * len(WAVES) + 3,
    }
    return Field("vector", (sizes[name],))


def sensed(
    name: str,
    houses: Houses,
    which: NDArray[np.int64],
    state: State,
    index: NDArray[np.int64],
    *,
    rank: NDArray[np.uint8],
    ids: NDArray[np.uint8],
    objects: int,
    gripped: NDArray[np.uint16],
    see_through: bool,
    width: int,
) -> NDArray[np.float32]:
    """Field `name` of players `index` [n], float32 [n, width].

    Args:
        which: [N], the house of each player.
        rank: [P, PIECES + 1], the place of a piece's name among those of its house.
        ids: [N, S, S], what they see.
        objects: of each house.
        gripped: [N], objects that were held in the episode, a bit each.
        see_through: whether hands reach through walls.
    """
    from envs.native.housekeep.boxes import framed, pointed  # here, because it brings the compiler along
    from envs.native.housekeep.layout import TILTS
    from envs.native.housekeep.lens import AHEAD, ASIDE

    if name == "pose":
        heading = state.heading[index]
        turns = 2 * np.pi * np.stack([state.x[index], state.y[index]], 1)[..., None] / WAVES  # [n, 2, waves]
        waves = np.concatenate([np.cos(turns), np.sin(turns)], 2).reshape(len(index), -1)
        compass = np.stack([AHEAD[heading], ASIDE[heading], state.tilt[index] / TILTS], 1)
        return np.concatenate([waves, compass], 1).astype(np.float32)
    told = np.empty((len(index), width), np.float32)
    if name == "hand":
        pointed(houses, which, state, rank, index, see_through, objects, told)
        told[:, width - objects :] = gripped[index, None] >> np.arange(objects) & 1
    else:
        each = np.arange(objects)
        put = (gripped[index, None] >> each & 1).astype(np.bool_) & (state.holding[index, None] != each)
        framed(houses, which, state, rank, ids, index, put, told)
    return told
