"""The shortest way, nearly, to where the hand meets what is wanted.

    field: how far each cell is from what is wanted ──> A* over positions and headings ──> turns, steps, looks, a grip

Its steps are the engine's own, so a way that it finds is a way that there is. Two positions in the same small square
count as one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.hands import DROPPED, PICKED, grip
from envs.native.housekeep.layout import CELL, EDGE, HEADINGS, OBJECT, OBJECT_SIDE, REACH, TILTS, Houses, State
from envs.native.housekeep.lens import AHEAD, ASIDE
from envs.native.housekeep.motion import (
    GRAB_RELEASE,
    LOOK_DOWN,
    LOOK_UP,
    MOVE_FORWARD,
    TURN_LEFT,
    TURN_RIGHT,
    move,
    solid,
)
from envs.native.housekeep.pictures import sketch
from envs.native.housekeep.sight import aim

LONGEST = 1024
"""Steps of a way."""
GRIDS = (8, 16)
"""Positions along a metre that count as different: few are tried first, more where they lead nowhere."""
_SIDE = int(EDGE * CELL * max(GRIDS))
_STRAIGHT, _ASLANT, _OVER = 5, 7, 4  # costs of the field: to a cell beside, to one aslant, times as much over furniture
_CLOSE = 6  # cells from which a hand often reaches what is wanted: nearer than that is no better
_FAR = 1 << 30
_BUCKETS = 4 * LONGEST


class Search(NamedTuple):
    """Room for one search."""

    x: NDArray[np.float32]  # [nodes]
    y: NDArray[np.float32]  # [nodes]
    heading: NDArray[np.int8]  # [nodes]
    action: NDArray[np.int8]  # [nodes] that led there
    parent: NDArray[np.int32]  # [nodes]
    steps: NDArray[np.int32]  # [nodes]
    after: NDArray[np.int32]  # [nodes] the next in its bucket, -1: none
    bucket: NDArray[np.int32]  # [_BUCKETS] its first node, by steps done and still expected
    closed: NDArray[np.bool_]  # [_SIDE * _SIDE * HEADINGS]
    field: NDArray[np.int32]  # [EDGE, EDGE]
    queue: NDArray[np.int32]  # [8 EDGE EDGE] cells
    targets: NDArray[np.float64]  # [256, 3] middle x, y and half of the width of what is wanted


def search() -> Search:
    """Room for searches, one after the other; about 60 MB, of which few are touched."""
    nodes = HEADINGS * _SIDE * _SIDE
    return Search(
        x=np.empty(nodes, np.float32),
        y=np.empty(nodes, np.float32),
        heading=np.empty(nodes, np.int8),
        action=np.empty(nodes, np.int8),
        parent=np.empty(nodes, np.int32),
        steps=np.empty(nodes, np.int32),
        after=np.empty(nodes, np.int32),
        bucket=np.empty(_BUCKETS, np.int32),
        closed=np.empty(nodes, np.bool_),
        field=np.empty((EDGE, EDGE), np.int32),
        queue=np.empty(8 * EDGE * EDGE, np.int32),
        targets=np.empty((2 * OBJECT, 3)),
    )


@compiled
def find(
    houses: Houses,
    p: int,
    wanted: NDArray[np.bool_],
    skipped: int,
    per_metre: int,
    search: Search,
    trial: State,
    actions: NDArray[np.int8],
) -> int:
    """A short way to where the hand of `trial` meets what is wanted; its length, 0 if there is none.

    Args:
        wanted: [256].
        per_metre: one of GRIDS.
        skipped: how many of the ways that are found are left aside: their grips did not do.
        actions: [LONGEST], written: they end with a grip.
    """
    drawn = sketch(1)
    tilt = int(trial.tilt[0])
    targets = _targets(houses, p, wanted, trial, search.field, search.targets)
    _measure(houses, p, search.field, search.queue)
    for bit in range(len(search.closed)):
        search.closed[bit] = False
    for b in range(_BUCKETS):
        search.bucket[b] = -1
    count = _add(search, 0, trial.x[0], trial.y[0], trial.heading[0], per_metre, 0, -1, 0)
    for b in range(_BUCKETS):
        while search.bucket[b] >= 0:
            node = search.bucket[b]
            search.bucket[b] = search.after[node]
            trial.x[0], trial.y[0], trial.heading[0] = search.x[node], search.y[node], search.heading[node]
            if _is_ahead(trial.x[0], trial.y[0], trial.heading[0], search.targets, targets):
                for nearer in range(4 * TILTS + 1):
                    change = (nearer + 1) // 2 * (1 - 2 * (nearer % 2))
                    if abs(tilt + change) > TILTS:
                        continue
                    trial.tilt[0] = tilt + change
                    if not wanted[aim(houses, p, trial, 0, False, drawn)]:
                        continue
                    if skipped:
                        skipped -= 1
                        continue
                    grip(houses, p, trial, 0, False, drawn)
                    if trial.outcome[0] == PICKED or trial.outcome[0] == DROPPED:
                        return _trace(search, node, change, actions)
            if search.steps[node] >= LONGEST - 2 * TILTS - 2:
                continue
            for action in (MOVE_FORWARD, TURN_LEFT, TURN_RIGHT):
                trial.x[0], trial.y[0], trial.heading[0] = search.x[node], search.y[node], search.heading[node]
                if move(houses, p, trial, 0, action):
                    count = _add(search, count, trial.x[0], trial.y[0], trial.heading[0], per_metre, action, node, b)
    return 0


@compiled
def _add(
    search: Search, count: int, x: float, y: float, heading: int, per_metre: int, action: int, parent: int, least: int
) -> int:
    """Put a pose among the nodes, if it is new there; how many there are then."""
    bit = (int(y * per_metre) * _SIDE + int(x * per_metre)) * HEADINGS + heading
    if search.closed[bit]:
        return count
    search.closed[bit] = True
    search.x[count], search.y[count], search.heading[count] = x, y, heading
    search.action[count], search.parent[count] = action, parent
    steps = 0 if parent < 0 else search.steps[parent] + 1
    search.steps[count] = steps
    expected = max(search.field[int(y / CELL), int(x / CELL)] // _STRAIGHT - _CLOSE, 0)
    bucket = min(max(steps + expected, least), _BUCKETS - 1)
    search.after[count] = search.bucket[bucket]
    search.bucket[bucket] = count
    return count + 1


@compiled
def _trace(search: Search, node: int, change: int, actions: NDArray[np.int8]) -> int:
    """The actions that lead to a node, then looks, then a grip."""
    steps = int(search.steps[node])
    for step in range(steps - 1, -1, -1):
        actions[step] = search.action[node]
        node = search.parent[node]
    for _ in range(abs(change)):
        actions[steps] = LOOK_UP if change > 0 else LOOK_DOWN
        steps += 1
    actions[steps] = GRAB_RELEASE
    return steps + 1


@compiled
def _targets(
    houses: Houses,
    p: int,
    wanted: NDArray[np.bool_],
    trial: State,
    field: NDArray[np.int32],
    targets: NDArray[np.float64],
) -> int:
    """Write the middles of what is wanted; how many. Cells of the field are 0 there, and far elsewhere."""
    for r in range(EDGE):
        for c in range(EDGE):
            field[r, c] = _FAR
    found = 0
    for instance in range(1, len(wanted)):
        if not wanted[instance]:
            continue
        if instance < OBJECT:
            box = houses.box[p, instance]
            r0, c0, r1, c1 = int(box[0]), int(box[1]), int(box[2]), int(box[3])
            half = math.hypot(r1 - r0, c1 - c0) / 2 * CELL
        else:
            place, slot = trial.place[0, instance - OBJECT], trial.slot[0, instance - OBJECT]
            cell = int(houses.slots[p, place, slot])
            r0, c0 = cell // EDGE, cell % EDGE
            r1, c1, half = r0 + 1, c0 + 1, OBJECT_SIDE * math.sqrt(0.5)
        for r in range(r0, r1):
            for c in range(c0, c1):
                field[r, c] = 0
        targets[found, 0], targets[found, 1] = (c0 + c1) / 2 * CELL, (r0 + r1) / 2 * CELL
        targets[found, 2] = half
        found += 1
    return found


@compiled
def _is_ahead(x: float, y: float, heading: int, targets: NDArray[np.float64], count: int) -> bool:
    """May the centre ray meet one of the targets?"""
    dx, dy = AHEAD[heading], ASIDE[heading]
    for t in range(count):
        right, up, half = targets[t, 0] - x, targets[t, 1] - y, targets[t, 2]
        along = right * dx + up * dy
        if abs(up * dx - right * dy) <= half and -half < along < REACH + half:
            return True
    return False


@compiled
def _measure(houses: Houses, p: int, field: NDArray[np.int32], queue: NDArray[np.int32]) -> None:
    """How far each cell is from where the field is 0, around walls; over furniture it counts as a detour."""
    rows, columns = houses.size[p]
    first, last, size = 0, 0, len(queue)
    for r in range(rows):
        for c in range(columns):
            if not field[r, c]:
                queue[last] = r * EDGE + c
                last += 1
    while first != last:
        r, c = queue[first] // EDGE, queue[first] % EDGE
        first = (first + 1) % size
        for dr in range(-1, 2):
            for dc in range(-1, 2):
                nr, nc = r + dr, c + dc
                if not houses.room[p, nr, nc]:
                    continue
                cost = _ASLANT if dr and dc else _STRAIGHT
                if solid(houses, p, nr, nc):
                    cost *= _OVER
                if field[r, c] + cost < field[nr, nc]:
                    field[nr, nc] = field[r, c] + cost
                    queue[last] = nr * EDGE + nc
                    last = (last + 1) % size
