"""Rooms around furniture, where nobody says where walls are: a plan of cells that all hangs together.

    boxes, and which room each is in ──> convex hulls ──> walls between them ──> doors where walls are thinnest

A room is the convex hull of its pieces, and a cell more where no other room is. Where hulls overlap, a cell is of the
room that has a piece nearest to it, and rooms stand open to each other. A player stands on corners of cells, as in
`envs.native.housekeep.access`: on those whose four cells are free.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Box = Sequence[int] | NDArray[np.integer]
"""First row and column, row and column after the last."""
Cells = NDArray[np.bool_]
Plan = NDArray[np.uint8]
Corner = tuple[int, int]

MARGIN = 1
"""Cells of floor around a hull."""
POCKET = 4
"""Corners to stand on that are too few for a door of their own."""
_STEP = 0.01  # what a step costs of a way that is dug; a cell of wall costs 1


def enclose(boxes: NDArray[np.integer], rooms: NDArray[np.integer], size: tuple[int, int]) -> Plan:
    """Floor around boxes: uint8 [rows, columns], 0 for walls, else which room.

    Args:
        boxes: [R, 4].
        rooms: [R], from 1; 0: whatever room is nearest, the boxes of which have numbers.
        size: rows and columns of the plan.
    """
    rooms = _nearest(boxes, rooms)
    numbers = np.unique(rooms).tolist()
    away = np.stack([_distance(boxes[rooms == room], size) for room in numbers])
    inside, around = (
        np.stack([_hull(_corners(boxes[rooms == room]), grown, size) for room in numbers]) for grown in (0, MARGIN)
    )
    own = np.array(numbers, np.uint8)
    plan = np.zeros(size, np.uint8)
    for mask in (around, inside):
        nearest = own[np.where(mask, away, np.inf).argmin(0)]
        plan = np.where(mask.any(0), nearest, plan)
    plan[[0, -1]] = 0
    plan[:, [0, -1]] = 0
    for r, c in np.argwhere((plan > 0) & ~inside.any(0)).tolist():
        beside = plan[[r - 1, r + 1, r, r], [c, c, c - 1, c + 1]]
        if ((beside != 0) & (beside != plan[r, c])).any():
            plan[r, c] = 0
    return plan


def _nearest(boxes: NDArray[np.integer], rooms: NDArray[np.integer]) -> NDArray[np.integer]:
    """[R], each piece in a room: one that has none is in that of the nearest which has."""
    found, known = rooms.copy(), np.flatnonzero(rooms)
    if not len(known):
        return np.ones_like(rooms)
    for n in np.flatnonzero(rooms == 0):
        apart = np.maximum(boxes[known, :2] - boxes[n, 2:], boxes[n, :2] - boxes[known, 2:]).clip(0)
        found[n] = rooms[known[np.hypot(apart[:, 0], apart[:, 1]).argmin()]]
    return found


def _distance(boxes: NDArray[np.integer], size: tuple[int, int]) -> NDArray[np.float64]:
    """[rows, columns], from the middle of each cell to the nearest box, in cells."""
    r, c = (np.arange(count) + 0.5 for count in size)
    down = np.maximum(boxes[:, 0, None] - r, r - boxes[:, 2, None]).clip(0)
    aside = np.maximum(boxes[:, 1, None] - c, c - boxes[:, 3, None]).clip(0)
    nearest: NDArray[np.float64] = np.hypot(down[:, :, None], aside[:, None, :]).min(0)
    return nearest


def _corners(boxes: NDArray[np.integer]) -> list[Corner]:
    return sorted({(int(box[i]), int(box[j])) for box in boxes for i in (0, 2) for j in (1, 3)})


def _hull(points: list[Corner], grown: float, size: tuple[int, int]) -> Cells:
    """Cells whose middle is within the convex hull of points, sorted and not on one line, or so far outside."""
    halves = []
    for way in (points, points[::-1]):
        half: list[Corner] = []
        for point in way:
            while len(half) > 1 and _turn(half[-2], half[-1], point) <= 0:
                half.pop()
            half.append(point)
        halves.append(half[:-1])
    outline = halves[0] + halves[1]
    r, c = np.arange(size[0])[:, None] + 0.5, np.arange(size[1]) + 0.5
    cells = np.ones(size, np.bool_)
    for (r0, c0), (r1, c1) in zip(outline, outline[1:] + outline[:1], strict=True):
        cells &= (r1 - r0) * (c - c0) - (c1 - c0) * (r - r0) >= -grown * np.hypot(r1 - r0, c1 - c0) - 1e-9
    return cells


def _turn(a: Corner, b: Corner, point: Corner) -> int:
    """Above 0 if the way from a over b to a point turns to the left."""
    return (b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0])


# ---- where a player gets to ------------------------------------------------------------------------------------------


def free(plan: Plan, solid: Cells) -> Cells:
    """bool [rows, columns]: can a player stand on the corner of this row and column?"""
    return _clear((plan == 0) | solid)


def passable(solid: Cells) -> Cells:
    """Corners where a player could stand if there were no walls but the outer ones, at the rim of the plan."""
    blocked = np.ones_like(solid)
    blocked[1:-1, 1:-1] = solid[1:-1, 1:-1]
    return _clear(blocked)


def _clear(blocked: Cells) -> Cells:
    """Corners around which no cell is blocked."""
    found = np.zeros_like(blocked)
    found[1:, 1:] = ~(blocked[1:, 1:] | blocked[:-1, 1:] | blocked[1:, :-1] | blocked[:-1, :-1])
    return found


def reached(standing: Cells, start: Corner) -> Cells:
    """The corners that hang together with `start`, side by side."""
    left = standing.tolist()  # lists, as single values are read from those much faster
    found = np.zeros_like(standing)
    waiting, there = [start], []
    while waiting:
        r, c = waiting.pop()
        if left[r][c]:
            left[r][c] = False
            there.append((r, c))
            waiting += [(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)]
    if there:
        found[tuple(np.array(there).T)] = True
    return found


def parts(standing: Cells) -> list[Cells]:
    """Corners that hang together, the largest part first."""
    left, found = standing.copy(), []
    while left.any():
        r, c = np.argwhere(left)[0].tolist()
        found.append(reached(left, (r, c)))
        left &= ~found[-1]
    return sorted(found, key=lambda part: -int(part.sum()))


class Ways:
    """What it costs to dig from the corners that are reached to any other, around furniture.

    Args:
        plan: as `enclose` makes it.
        solid: [rows, columns], cells where furniture stands in a player's way.
        here: corners from which one may dig.

    Attributes:
        cost: [rows, columns]; infinite where no way leads.
    """

    def __init__(self, plan: Plan, solid: Cells, here: Cells) -> None:
        walls = plan == 0
        price = np.full(plan.shape, np.inf)  # in lists below, as single numbers are read from those much faster
        price[1:, 1:] = _STEP + walls[1:, 1:] + walls[:-1, 1:] + walls[1:, :-1] + walls[:-1, :-1]
        prices = np.where(passable(solid), price, np.inf).tolist()
        costs = np.where(here, 0.0, np.inf).tolist()
        self._before: dict[Corner, Corner] = {}
        waiting = [(0.0, r, c) for r, c in np.argwhere(here).tolist()]
        while waiting:
            cost, r, c = heapq.heappop(waiting)
            if cost > costs[r][c]:
                continue
            for row, column in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
                onward = cost + prices[row][column]
                if onward < costs[row][column]:
                    costs[row][column] = onward
                    self._before[row, column] = (r, c)
                    heapq.heappush(waiting, (onward, row, column))
        self.cost = np.array(costs)

    def dig(self, plan: Plan, corner: Corner) -> Plan:
        """The plan with a way to a corner that one can dig to: what was wall is of the room that the way comes from."""
        way = [corner]
        while way[-1] in self._before:
            way.append(self._before[way[-1]])
        dug = plan.copy()
        for r, c in reversed(way):
            cells = dug[r - 1 : r + 1, c - 1 : c + 1]
            cells[cells == 0] = cells.max() or 1
        return dug


def connect(plan: Plan, solid: Cells, covered: Cells, start: Corner) -> Plan:
    """The plan with doors, so that a player gets from `start` to wherever it can stand.

    Doors lead to each part of some size, through as little wall as possible. What lies behind furniture that cannot be
    passed, or is tiny, becomes wall.

    Args:
        solid: [rows, columns], cells where furniture stands in a player's way.
        covered: where any is.
    """
    plan = Ways(plan, solid, np.zeros_like(solid)).dig(plan, start)
    while True:
        standing = free(plan, solid)
        here = reached(standing, start)
        rest = np.zeros_like(here)
        for part in parts(standing & ~here):
            if part.sum() >= POCKET:
                rest |= part
        ways = Ways(plan, solid, here)
        cost = np.where(rest, ways.cost, np.inf)
        if not np.isfinite(cost).any():
            return fill(plan, solid, covered, start)
        r, c = divmod(int(cost.argmin()), plan.shape[1])
        plan = ways.dig(plan, (r, c))


def fill(plan: Plan, solid: Cells, covered: Cells, start: Corner) -> Plan:
    """The plan with walls where a player could stand but cannot get to from `start`; rather not in covered cells."""
    standing = free(plan, solid)
    here = reached(standing, start)
    used = _around(here)
    filled = plan.copy()
    for r, c in np.argwhere(standing & ~here).tolist():
        cells = [cell for cell in itertools.product((r - 1, r), (c - 1, c)) if not used[cell]]
        rather = [cell for cell in cells if not covered[cell]]
        for cell in rather or cells[:1]:
            filled[cell] = 0
    return filled


def _around(corners: Cells) -> Cells:
    """Cells that have one of these corners."""
    found = corners.copy()
    found[:-1] |= corners[1:]
    found[:, :-1] |= found[:, 1:]
    return found


def nearest(corners: Cells, row: float, column: float) -> Corner | None:
    """The one of these corners that is nearest to a place, in cells; None: there is none."""
    found = np.argwhere(corners)
    if not len(found):
        return None
    r, c = found[np.hypot(*(found - (row, column)).T).argmin()].tolist()
    return r, c


def over(boxes: Iterable[Box], size: tuple[int, int]) -> Cells:
    """Cells in any of these boxes."""
    cells = np.zeros(size, np.bool_)
    for r0, c0, r1, c1 in boxes:
        cells[r0:r1, c0:c1] = True
    return cells
