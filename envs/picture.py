"""Worlds of square cells as pictures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LONGEST, _SMALLEST = 160, 4  # pixels of the longer side, if cells are not smaller than this then
_EDGED = 8  # pixels of a cell that has an edge
_EDGE, _PLAYER = (112, 112, 120), (64, 128, 240)


def draw(colours: NDArray[np.uint8], row: int, column: int) -> NDArray[np.uint8]:
    """uint8 [k H, k W, 3] of cells in these colours, uint8 [H, W, 3], with a player in one of them."""
    k = max(_SMALLEST, _LONGEST // max(colours.shape[:2]))
    picture = colours.repeat(k, axis=0).repeat(k, axis=1)
    if k >= _EDGED:
        picture[::k] = picture[:, ::k] = _EDGE
    top, left, rim = k * row, k * column, k // 4  # what is in the player's cell shows around it
    picture[top + rim : top + k - rim + (rim > 1), left + rim : left + k - rim + (rim > 1)] = _PLAYER
    return picture
