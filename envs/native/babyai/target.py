"""How far it is to what the mission is about now: for those who may know, not for the one who plays.

    mission ──> the clause whose turn it is ──> its things ──> cells to the nearest one

Equal to `envs.babyai.reference.cells_to_target`. Walls and doors on the way do not count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.babyai.world import FAR
from envs.compiler import compiled
from envs.native.babyai.layout import (
    AFTER,
    ALONE,
    AT,
    CARRYING,
    COUNT,
    DONE,
    KNOWN,
    LINK,
    MEMBER,
    NO_VERB,
    NONE,
    NOWHERE,
    ORDER,
    PUT_NEXT,
    STRIDE,
    VERB,
    Index,
    Row,
    Rows,
)


@compiled
def cells_to_targets(rows: Rows, index: Index, cells: NDArray[np.int32]) -> None:
    """Write how many cells lie between the agent of each world `index` and its target, 0 where it is carried."""
    for i in range(len(index)):
        cells[i] = _cells(rows[index[i]])


@compiled
def _cells(row: Row) -> int:
    clause = _turn(row)
    description, carrying = 2 * clause, row[CARRYING]
    if carrying != NONE and row[MEMBER + carrying] >> description & 1:
        if row[VERB + clause] != PUT_NEXT:
            return 0
        description += 1
    nearest, stride = FAR, row[STRIDE]
    for thing in range(row[COUNT]):
        at = row[KNOWN + thing]
        if row[MEMBER + thing] >> description & 1 and at != NOWHERE:
            apart = abs(at // stride - row[AT] // stride) + abs(at % stride - row[AT] % stride)
            nearest = min(nearest, max(apart - 1, 0))
    return nearest


@compiled
def _turn(row: Row) -> int:
    """The first clause that is not done, of the group whose turn it is."""
    group = 0
    if row[LINK] != ALONE:
        earlier = 1 if row[LINK] == AFTER else 0
        group = 1 - earlier if row[ORDER] else earlier
    first = 2 * group
    return first + 1 if row[VERB + first + 1] != NO_VERB and row[DONE + first] else first
