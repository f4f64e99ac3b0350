"""What a row means. A world of Crafter is one row, int16[`ROW`], and one row of random state, uint32[`RANDOM`].

    player           X Y FACING SLEEPING HUNGER THIRST FATIGUE RECOVER LAST_HEALTH
    clocks           STEP
    inventory        ITEM + 16, as `rules.ITEMS`
    achievements     ACHIEVED + 22, how often, as `rules.ACHIEVEMENTS`
    chunks           CHUNKS known ones, in order of their first object, then 36 numbers
    objects          COUNT of them, oldest first, then for each KIND AT_X AT_Y HEALTH FIRST
    map              MATERIAL + x * 64 + y: `rules.MATERIALS`; OBJECT + x * 64 + y: 1 + place among the objects, or 0

Hunger, thirst and recovery are counted in halves, because a sleeper's grow by half. Objects keep the order in which
they were made, which is the order they act in; the player is the first, and its health is in the inventory. FIRST is a
zombie's cooldown, a skeleton's reload, an arrow's facing (0..3), a plant's age. A chunk is a square of 12 cells; its
number is x // 12 * 6 + y // 12. A chunk that has never held an object is not known, and nothing is born in it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.crafter.rules import ACHIEVEMENTS, AREA, ITEMS

Row = NDArray[np.int16]  # [ROW]
Rows = NDArray[np.int16]  # [N, ROW]
Random = NDArray[np.uint32]  # [RANDOM]
Randoms = NDArray[np.uint32]  # [N, RANDOM]
Index = NDArray[np.int64]  # [M], of rows

# ---- player and clocks
X, Y, FACING, SLEEPING = 0, 1, 2, 3
HUNGER, THIRST, FATIGUE, RECOVER, LAST_HEALTH = 4, 5, 6, 7, 8
STEP = 9
# ---- inventory and achievements
ITEM = 10
ACHIEVED = ITEM + len(ITEMS)
# ---- chunks
CHUNK = 12
CHUNK_SIDE = -(-AREA // CHUNK)
CHUNKS = ACHIEVED + len(ACHIEVEMENTS)
CHUNK_NUMBER = CHUNKS + 1
# ---- objects
OBJECTS_MOST = 512  # a place more is refused, as where there is no room
COUNT = CHUNK_NUMBER + CHUNK_SIDE * CHUNK_SIDE
KIND = COUNT + 1
AT_X = KIND + OBJECTS_MOST
AT_Y = AT_X + OBJECTS_MOST
HEALTH = AT_Y + OBJECTS_MOST
FIRST = HEALTH + OBJECTS_MOST
# ---- map
MATERIAL = FIRST + OBJECTS_MOST
OBJECT = MATERIAL + AREA * AREA
ROW = OBJECT + AREA * AREA

RANDOM = 625  # the words of a Mersenne Twister, and how many of them are used up
