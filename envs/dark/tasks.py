"""What is hidden where: the published tasks of Dark-Room and Key-Door, and our own.

A cell is the number row * width + column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PUBLISHED = ((10, 10), (20, 20), (40, 20))
"""Sizes, (width, height), of the rooms that were published."""
_GOALS, _KEYS = 43, 42  # seeds of the published tasks
_TASKS, _TRAINING = 100, 80  # how many there are, and how many of these are trained on
_SHARE = 5  # of our own tasks, one in so many is held out


@dataclass(frozen=True)
class Tasks:
    """T tasks of one room.

    Attributes:
        goal: int64 [T], the cell that pays, or the door's.
        key: int64 [T], the key's cell.
        held_out: how many of them, the last ones, only held-out seeds name.
    """

    goal: NDArray[np.int64]
    key: NDArray[np.int64]
    held_out: int = 0


def published(width: int, height: int, training: bool) -> Tasks:
    """The 20 tasks that Schmied et al. 2024 (arXiv 2410.07071) test on, or the 80 that they train on.

    A goal is not kept from being its task's key, nor either from being the start.
    """
    chosen = slice(_TRAINING) if training else slice(_TRAINING, _TASKS)
    goal, key = (
        column_first(np.random.RandomState(seed).permutation(width * height)[chosen], width, height)
        for seed in (_GOALS, _KEYS)
    )
    return Tasks(goal, key)


def column_first(numbers: NDArray[np.int64], width: int, height: int) -> NDArray[np.int64]:
    """Cells of numbers that count down each column, one column after another: the order in which they were drawn."""
    column, row = np.divmod(numbers, height)
    return row * width + column


def own(width: int, height: int) -> Tasks:
    """Every cell of the room is the goal of one task, and a fifth of the tasks is held out.

    The keys of a side are its goals, moved on by one, so that no cell that pays in a held-out task pays in another one.
    The corner at the top left is a goal in training: at the usual start, it would tell nothing of a player's search.
    """
    cells = np.append(0, 1 + np.random.RandomState(0).permutation(width * height - 1))
    held_out = max(2, len(cells) // _SHARE)
    sides = np.split(cells, [len(cells) - held_out])
    return Tasks(cells, np.concatenate([np.roll(side, 1) for side in sides]), held_out)
