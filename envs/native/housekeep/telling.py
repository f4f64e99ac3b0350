"""What players see and know, by the names of pieces instead of the pieces: a bit for each name of their house."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.layout import NOWHERE, PIECES


@compiled
def named(
    pieces: NDArray[np.uint64],
    which: NDArray[np.int64],
    rank: NDArray[np.uint8],
    index: NDArray[np.int64],
    names: NDArray[np.uint64],
) -> None:
    """Write the names of pieces.

    Args:
        pieces: [N, 2], a bit each, by player.
        which: [N], the house of each player.
        rank: [P, PIECES + 1], the place of a piece's name among the names of its house.
        index: [n], players.
        names: [n], written.
    """
    one = np.uint64(1)
    for row in range(len(index)):
        i = index[row]
        house, found = which[i], np.uint64(0)
        for word in range(2):
            bits = pieces[i, word]
            if not bits:
                continue
            for bit in range(min(64, PIECES + 1 - 64 * word)):
                if bits >> np.uint64(bit) & one:
                    found |= one << np.uint64(rank[house, 64 * word + bit])
        names[row] = found


@compiled
def lying(
    place: NDArray[np.uint8],
    which: NDArray[np.int64],
    rank: NDArray[np.uint8],
    index: NDArray[np.int64],
    names: NDArray[np.uint8],
) -> None:
    """Write on pieces of which names objects lie, as `named`.

    Args:
        place: [N, M], the piece that each object lies on, 0 if it is held.
        names: [n, M], written: the place of its name among those of the house, `NOWHERE` if it is held.
    """
    for row in range(len(index)):
        i = index[row]
        for k in range(names.shape[1]):
            piece = place[i, k]
            names[row, k] = rank[which[i], piece] if piece else NOWHERE
