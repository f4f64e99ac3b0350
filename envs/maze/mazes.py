"""Mazes: the published ones of 15 x 15 cells, and our own of odd sizes.

    published(seed) ──┐
                      ├──> Maze: walls and goals ──> moves, sensors, ways: all that a step or an expert looks up
    own(size, n, ..) ─┘

Both are mazes of walls between cells at odd coordinates, with 1 to 3 goals, and are entered at the bottom.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

PUBLISHED = 15
"""Size of the published mazes."""
TEST = tuple(range(300, 320))
"""Seeds of the published test mazes."""
_DROPPED = {2, 5, 10, 13, 15, 21, 24, 27, 29, 31, 36, 39, 52, 53, 57, 59, 78, 94, 105, 107, 114, 115}
TRAINING = tuple(seed for seed in range(122) if seed not in _DROPPED)
"""Seeds of the 100 published training mazes: of the first 122 those that were learned in part."""

STEPS = ((0, -1), (-1, 0), (0, 1), (1, 0), (0, 0))
"""Rows and columns that an action moves: west, north, east, south, stay."""
MOST_GOALS = 3
_KEPT = 256  # mazes that a process keeps: 22 MiB of 51 x 51 cells, 32 with an expert's ways


@dataclass(frozen=True, eq=False)
class Maze:
    """One maze. A cell is the number row * size + column.

    Attributes:
        walls: bool [size, size].
        start: cell where episodes begin.
        goals: cells to be visited, in this order.
    """

    walls: NDArray[np.bool_]
    start: int
    goals: tuple[int, ...]

    @cached_property
    def moves(self) -> NDArray[np.int16]:
        """[cells, 5], the cell that an action leads to; at a wall, one stays."""
        size = len(self.walls)
        cells = np.arange(size * size)
        rows, columns = np.divmod(cells, size)
        ends = np.stack([(rows + d) % size * size + (columns + r) % size for d, r in STEPS], axis=1)
        return np.where(self.walls.ravel()[ends], cells[:, None], ends).astype(np.int16)

    @cached_property
    def sensors(self) -> NDArray[np.float32]:
        """[cells, 6], what is sensed there: row, column, and free cells to the west, north, east and south, before the
        first wall; each divided by the size."""
        size = len(self.walls)
        free = np.zeros((4, size, size), np.int64)
        open_, seen = ~self.walls, range(1, size)
        for k in seen:  # each cell sees one more than its neighbour, if that is free
            free[0, :, k] = open_[:, k - 1] * (1 + free[0, :, k - 1])
            free[1, k] = open_[k - 1] * (1 + free[1, k - 1])
            free[2, :, -1 - k] = open_[:, -k] * (1 + free[2, :, -k])
            free[3, -1 - k] = open_[-k] * (1 + free[3, -k])
        return (np.concatenate([np.indices((size, size)), free]).reshape(6, -1).T / size).astype(np.float32)

    @cached_property
    def distance(self) -> NDArray[np.int32]:
        """[goals, cells], steps to each goal; 2**30 where there is no way."""
        found = np.full((len(self.goals), self.walls.size), 1 << 30, np.int32)
        found[np.arange(len(self.goals)), self.goals] = 0
        while True:  # a cell is one step farther than the nearest that it leads to
            nearer = np.minimum(found, found[:, self.moves].min(2) + 1)
            if np.array_equal(nearer, found):
                return found
            found = nearer

    @cached_property
    def ways(self) -> NDArray[np.int8]:
        """[goals, cells], the action that leads nearer to each goal."""
        nearest: NDArray[np.int8] = self.distance[:, self.moves].argmin(2).astype(np.int8)
        return nearest


@lru_cache(maxsize=_KEPT)
def published(seed: int) -> Maze:
    """The maze of a published seed, number by number as it was drawn: walls grow from random places, a random way on.

    Source: the recipe of mazelab and AMAGO, as used by Schmied et al. 2024 (arXiv 2410.07071).
    """
    random, size = np.random.RandomState(seed), PUBLISHED
    walls = np.zeros((size, size), np.bool_)
    walls[[0, -1]] = walls[:, [0, -1]] = True
    for _ in range(36):
        column, row = 2 * random.randint(0, 8), 2 * random.randint(0, 8)
        walls[row, column] = True
        for _ in range(112):
            ways = [
                (down, right)
                for down, right in ((0, -1), (0, 1), (-1, 0), (1, 0))
                if 0 <= row + 2 * down < size and 0 <= column + 2 * right < size
            ]
            down, right = ways[random.randint(0, len(ways))]
            if not walls[row + 2 * down, column + 2 * right]:
                walls[row + down, column + right] = walls[row + 2 * down, column + 2 * right] = True
                row, column = row + 2 * down, column + 2 * right
    walls[10:14, 1:14] = False  # a hall at the bottom, in which the start has a wall on either side
    walls[11:14, [6, 8]] = True
    return _with_goals(walls, 13 * size + 7, np.random.RandomState(seed))


@lru_cache(maxsize=_KEPT)
def own(size: int, number: int, held_out: bool) -> Maze:
    """A maze of an odd size, at least 7: a random walk that backtracks (depth first), then half of the walls that still
    part two of its cells are opened, so that there are several ways.

    Which side a maze is on follows from its walls, so that none is both trained on and held out.
    """
    for attempt in range(1000):
        random = np.random.RandomState([size, number, attempt])
        walls = _walls(size, random)
        if hashlib.blake2b(walls.tobytes(), digest_size=1).digest()[0] % 2 == held_out:
            return _with_goals(walls, (size - 2) * size + (size // 2 | 1), random)
    raise AssertionError(f"of {attempt + 1} mazes of size {size}, none is held_out={held_out}")


def _walls(size: int, random: np.random.RandomState) -> NDArray[np.bool_]:
    walls = np.ones((size, size), np.bool_)
    first: tuple[int, int] = tuple(2 * random.randint(size // 2, size=2) + 1)
    walls[first] = False
    path = [first]
    while path:
        row, column = path[-1]
        ways = [
            (down, right)
            for down, right in STEPS[:4]
            if 0 < row + 2 * down < size and 0 < column + 2 * right < size and walls[row + 2 * down, column + 2 * right]
        ]
        if not ways:
            path.pop()
            continue
        down, right = ways[random.randint(len(ways))]
        walls[row + down, column + right] = walls[row + 2 * down, column + 2 * right] = False
        path.append((row + 2 * down, column + 2 * right))
    rows, columns = np.indices((size, size))[:, 1:-1, 1:-1]
    parting = (rows + columns) % 2 == 1  # the cells between two at odd coordinates
    walls[1:-1, 1:-1] &= ~(parting & (random.random_sample(parting.shape) < 0.5))
    return walls


def _with_goals(walls: NDArray[np.bool_], start: int, random: np.random.RandomState) -> Maze:
    free = np.flatnonzero(~walls)
    free = free[free != start]
    count = random.randint(1, MOST_GOALS + 1)
    chosen = random.choice(len(free), count, replace=False)
    return Maze(walls, start, tuple(free[chosen].tolist()))
