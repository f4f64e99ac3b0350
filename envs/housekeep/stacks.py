"""Heights of furniture of which only footprints and the height of the middle are known; what stands on what.

What usually stands on the floor does, and is as high as others of its kind, unless its middle is too high for that:
then it is a board there. What usually hangs or stands on other pieces has its usual height around its middle. Pieces
over one another are lifted until none is within another.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

STANDS = 0.85
"""Metres: what has its middle lower than this stands on the floor."""
BOARD = 0.1
"""Metres that a piece is thick at least."""
ROOM = 0.21
"""Metres over a piece that another one covers, for objects on it: their height and a little."""
_ASIDE = sorted(itertools.product(range(-2, 3), repeat=2), key=lambda move: abs(move[0]) + abs(move[1]))


def stacked(
    boxes: NDArray[np.int64],
    kinds: NDArray[np.integer],
    middle: NDArray[np.float64],
    keys: Sequence[str],
    where: str,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Boxes [R, 4] in cells, and bottoms and tops [R] in metres: at most `STACKED` over a cell, none within another.

    A piece that would be one too many over a cell is moved by as little as possible.

    Args:
        boxes: [R, 4] first row and column, row and column after the last.
        kinds: [R], in `KINDS`.
        middle: [R], metres over the floor.
        keys, where: of the pieces, and of the house, for messages.

    Raises:
        ValueError: one sentence: too many pieces are over a cell.
    """
    from envs.native.housekeep.furniture import HEIGHTS  # here, because it brings the compiler along
    from envs.native.housekeep.layout import STACKED

    low, high = (HEIGHTS[kinds, side].astype(np.float64) for side in (0, 1))
    stands = (low == 0) & (middle <= np.maximum(high, STANDS))
    half = np.where(low == 0, BOARD, high - low) / 2
    bottom = np.where(stands, 0, np.maximum(middle - half, 0))
    top = np.where(stands, high, bottom + 2 * half)
    boxes = boxes.copy()
    size = boxes[:, 2:].max(0) + 3
    over = np.full((*size, STACKED), -1)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for n in np.lexsort((-area, bottom)).tolist():
        for move in _ASIDE:
            r0, c0, r1, c1 = (boxes[n] + move * 2).tolist()
            there = over[r0:r1, c0:c1]
            if r0 > 0 and c0 > 0 and there.shape[:2] == (r1 - r0, c1 - c0) and (there[:, :, -1] < 0).all():
                break
        else:
            raise ValueError(f"{where} has more than {STACKED} pieces over one another where {keys[n]} is")
        boxes[n] = r0, c0, r1, c1
        _lift(n, boxes, bottom, top, sorted(set(there[there >= 0].tolist())), over)
        for cell in itertools.product(range(r0, r1), range(c0, c1)):
            over[cell][(over[cell] >= 0).sum()] = n
    return boxes, bottom, top


def _lift(
    n: int,
    boxes: NDArray[np.int64],
    bottom: NDArray[np.float64],
    top: NDArray[np.float64],
    under: list[int],
    over: NDArray[np.int64],
) -> None:
    """Lift piece n onto those under it; from one that it hides wholly it keeps away, or makes that one lower."""
    r0, c0, r1, c1 = boxes[n].tolist()
    floor = 0.0
    for m in under:
        first, left, end, right = boxes[m].tolist()
        inner = over[first:end, left:right]
        hidden = (inner == m).argmax(-1) < (inner >= 0).sum(-1) - 1  # something else is over it there
        hidden[max(r0 - first, 0) : max(r1 - first, 0), max(c0 - left, 0) : max(c1 - left, 0)] = True
        if hidden.all():
            lower = bottom[n] - ROOM
            if bottom[m] == 0 and top[m] / 2 < lower < top[m]:
                top[m] = lower
            floor = max(floor, top[m] + ROOM)
        else:
            floor = max(floor, top[m])
    if bottom[n] < floor:
        top[n] = max(top[n], floor + BOARD) if bottom[n] == 0 else top[n] + floor - bottom[n]
        bottom[n] = floor
