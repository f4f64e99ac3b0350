"""Houses and players as arrays, of which each row is one. All that the compiled functions read and write.

    Houses [P, ...]   walls, furniture, where objects lie at first; written when an episode begins
    State  [N, ...]   where the players are, what they hold and know; `which[i]` is the house of player i

A house is a plan of cells of 0.25 m, of which rows run along y and columns along x: cell (r, c) is the square from
(0.25 c, 0.25 r) to (0.25 c + 0.25, 0.25 r + 0.25). Walls fill their cells to the ceiling. A piece of furniture is a
box over whole cells between two heights; several may stand over each other. Objects lie on top of pieces, each in a
slot: a cell of its own of the piece's footprint, in whose middle it is a small box.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CELL = 0.25
"""Metres."""
EDGE = 96
"""Rows and columns of the largest plan, 24 m."""
PIECES = 127
"""The most pieces of furniture in a house; they are numbered from 1."""
OBJECT = 128
"""Object k of a house is instance OBJECT + k."""
OBJECTS = 10
"""The most objects in a house."""
SLOTS = 6
"""The most objects on a piece."""
STACKED = 3
"""The most pieces over a cell."""
NOWHERE = 255
"""No slot; no object."""
OBJECT_SIDE, OBJECT_HEIGHT = 0.15, 0.2
"""Metres: of the box of an object, in the middle of its cell."""
EYE, RADIUS, CLIMB, REACH = 1.5, 0.18, 0.1, 3.0
"""Metres: height of the camera, half the width of a player, what it steps over, how far it grips."""
STRIDE = 0.25
"""Metres that a step forward is long."""
HEADINGS, TILT, TILTS = 18, 10, 3
"""Headings of a full turn, 20 degrees apart, 0 along x and rising towards y; degrees of a look, and most looks up or
down."""


class Houses(NamedTuple):
    """P houses. Piece n of a house has row n of the arrays of pieces; row 0 is unused."""

    size: NDArray[np.int16]  # [P, 2] rows and columns in use
    room: NDArray[np.uint8]  # [P, EDGE, EDGE] 0: a wall, else which room of the plan, from 1
    stacked: NDArray[np.uint8]  # [P, EDGE, EDGE, STACKED] pieces over a cell, from low to high; 0: none
    slot: NDArray[np.uint8]  # [P, EDGE, EDGE, STACKED] which slot of each of these the cell is, or NOWHERE
    pieces: NDArray[np.uint8]  # [P] how many
    name: NDArray[np.int16]  # [P, PIECES + 1] number in envs.housekeep.names.NAMES
    box: NDArray[np.int16]  # [P, PIECES + 1, 4] first row, first column, row and column after the last
    bottom: NDArray[np.float32]  # [P, PIECES + 1] metres
    top: NDArray[np.float32]  # [P, PIECES + 1]
    capacity: NDArray[np.uint8]  # [P, PIECES + 1] clip(floor(area / 0.1 m2), 1, SLOTS)
    slots: NDArray[np.int16]  # [P, PIECES + 1, SLOTS] cells, row * EDGE + column, of the first `capacity` slots
    start: NDArray[np.float32]  # [P, 2] x, y in metres
    heading: NDArray[np.int8]  # [P]
    objects: NDArray[np.uint8]  # [P] how many
    object: NDArray[np.int16]  # [P, OBJECTS] number in envs.housekeep.names.OBJECTS
    lies: NDArray[np.uint8]  # [P, OBJECTS] the piece that each lies on at first; 0, of one: held; NOWHERE: away


class State(NamedTuple):
    """N players. Bits are numbered by piece, of two words the first has pieces 0 to 63, and by object."""

    x: NDArray[np.float32]  # [N] metres
    y: NDArray[np.float32]  # [N]
    heading: NDArray[np.int8]  # [N] of HEADINGS
    tilt: NDArray[np.int8]  # [N] looks up from level, -TILTS to TILTS
    holding: NDArray[np.uint8]  # [N] object k, or NOWHERE
    place: NDArray[np.uint8]  # [N, OBJECTS] the piece that each object lies on; 0: it is held
    slot: NDArray[np.uint8]  # [N, OBJECTS] in which slot
    on: NDArray[np.uint8]  # [N, PIECES + 1, SLOTS] the object in each slot, or NOWHERE
    visible: NDArray[np.uint64]  # [N, 2] pieces with a pixel in the picture
    known: NDArray[np.uint64]  # [N, 2] pieces that were visible in the episode
    seen: NDArray[np.uint16]  # [N] objects with a pixel in the picture
    met: NDArray[np.uint16]  # [N] objects that were visible in the episode
    outcome: NDArray[np.uint8]  # [N] of the last action, as `hands` numbers them
    target: NDArray[np.uint8]  # [N, 2] object and piece of a grip or release that succeeded; NOWHERE, 0 else


def houses(count: int) -> Houses:
    """Room for `count` houses, all zero."""
    shapes = {
        "size": ((2,), np.int16),
        "room": ((EDGE, EDGE), np.uint8),
        "stacked": ((EDGE, EDGE, STACKED), np.uint8),
        "slot": ((EDGE, EDGE, STACKED), np.uint8),
        "pieces": ((), np.uint8),
        "name": ((PIECES + 1,), np.int16),
        "box": ((PIECES + 1, 4), np.int16),
        "bottom": ((PIECES + 1,), np.float32),
        "top": ((PIECES + 1,), np.float32),
        "capacity": ((PIECES + 1,), np.uint8),
        "slots": ((PIECES + 1, SLOTS), np.int16),
        "start": ((2,), np.float32),
        "heading": ((), np.int8),
        "objects": ((), np.uint8),
        "object": ((OBJECTS,), np.int16),
        "lies": ((OBJECTS,), np.uint8),
    }
    return Houses(**{name: np.zeros((count, *shape), dtype) for name, (shape, dtype) in shapes.items()})


def players(count: int) -> State:
    """Room for `count` players, all zero: `loops.begin` writes what an episode begins with."""
    shapes = {
        "x": ((), np.float32),
        "y": ((), np.float32),
        "heading": ((), np.int8),
        "tilt": ((), np.int8),
        "holding": ((), np.uint8),
        "place": ((OBJECTS,), np.uint8),
        "slot": ((OBJECTS,), np.uint8),
        "on": ((PIECES + 1, SLOTS), np.uint8),
        "visible": ((2,), np.uint64),
        "known": ((2,), np.uint64),
        "seen": ((), np.uint16),
        "met": ((), np.uint16),
        "outcome": ((), np.uint8),
        "target": ((2,), np.uint8),
    }
    return State(**{name: np.zeros((count, *shape), dtype) for name, (shape, dtype) in shapes.items()})
