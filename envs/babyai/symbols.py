"""Grid cells as numbers: the tables that captions, views and engines share.

A cell is a triple (object, colour, state) as Minigrid encodes it, or one `code` below 198 = 11 * 6 * 3 that stands for
the triple. Codes index tables, so nothing has to branch on what a cell holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

OBJECTS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
STATES = ("open", "closed", "locked")

UNSEEN, EMPTY, WALL, FLOOR, DOOR = range(5)
LAVA = 9

CODES = len(OBJECTS) * len(COLOURS) * len(STATES)

VIEW = 7  # side of the square that the agent sees
AGENT_COLUMN, AGENT_ROW = 3, 6  # its own cell in that square; row 0 is farthest ahead


def code_of(kind: int, colour: int, state: int) -> int:
    """(object, colour, state) -> code."""
    return (kind * len(COLOURS) + colour) * len(STATES) + state


EMPTY_CODE = code_of(EMPTY, 0, 0)
WALL_CODE = code_of(WALL, COLOURS.index("grey"), 0)  # also what lies outside the map

TRIPLE: NDArray[np.uint8] = np.stack(
    np.unravel_index(np.arange(CODES), (len(OBJECTS), len(COLOURS), len(STATES))), axis=-1
).astype(np.uint8)
"""[198, 3]: code -> (object, colour, state)."""

TRANSPARENT: NDArray[np.bool_] = (TRIPLE[:, 0] != WALL) & ((TRIPLE[:, 0] != DOOR) | (TRIPLE[:, 2] == 0))
"""[198]: can one see past the cell? Walls hide, and so do doors that are not open."""


def code_of_cell(cell: Any) -> int:
    """Code of a Minigrid `WorldObj`, or of None for an empty cell."""
    return EMPTY_CODE if cell is None else code_of(*cell.encode())
