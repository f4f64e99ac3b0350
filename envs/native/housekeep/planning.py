"""What to do next to put a house in order: the nearest object that lies wrong, the nearest place where it is right.

    decide: which instances the hand may meet ──> field: how far each cell is from them ──> search: a way of true steps

The search is A* over positions and headings as steps lead to them, so a way that it finds is a way that there is. Two
positions in the same eighth of a metre count as one. A way ends where the centre ray meets what is wanted.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.hands import DROPPED, NONE, PICKED, grip
from envs.native.housekeep.layout import (
    CELL,
    EDGE,
    HEADINGS,
    NOWHERE,
    OBJECT,
    OBJECT_SIDE,
    OBJECTS,
    REACH,
    TILTS,
    Houses,
    State,
    players,
)
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
from envs.native.housekeep.sight import aim, spare

LONGEST = 1024
"""Steps of a way."""
_FINE = 0.125  # metres
_SIDE = int(EDGE * CELL / _FINE)
_STRAIGHT, _ASLANT, _OVER = 5, 7, 4  # costs of the field: to a cell beside, to one aslant, times as much over furniture
_CLOSE = 6  # cells from which a hand often reaches what is wanted: nearer than that is no better
_FAR = 1 << 30
_BUCKETS = 4 * LONGEST


class Ways(NamedTuple):
    """Of N players: the way that each follows, and how it must find itself to go on."""

    actions: NDArray[np.int8]  # [N, LONGEST]
    length: NDArray[np.int64]  # [N]
    at: NDArray[np.int64]  # [N] actions that were done
    pose: NDArray[np.float64]  # [N, 4] x, y, heading, tilt after them
    place: NDArray[np.uint8]  # [N, OBJECTS] where objects lie meanwhile
    failures: NDArray[np.int64]  # [N] grips in a row that came to nothing


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
    closed: NDArray[np.bool_]  # [HEADINGS, _SIDE, _SIDE]
    field: NDArray[np.int32]  # [EDGE, EDGE]
    queue: NDArray[np.int32]  # [8 EDGE EDGE] cells
    targets: NDArray[np.float64]  # [EDGE, 3] middle x, y and half of the width of what is wanted
    trial: State  # of one player


def ways(count: int) -> Ways:
    """Of `count` players, none of whom has one yet."""
    return Ways(
        actions=np.zeros((count, LONGEST), np.int8),
        length=np.zeros(count, np.int64),
        at=np.zeros(count, np.int64),
        pose=np.zeros((count, 4)),
        place=np.zeros((count, OBJECTS), np.uint8),
        failures=np.zeros(count, np.int64),
    )


def search() -> Search:
    """Room for searches, one after the other; about 20 MB."""
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
        closed=np.empty((HEADINGS, _SIDE, _SIDE), np.bool_),
        field=np.empty((EDGE, EDGE), np.int32),
        queue=np.empty(8 * EDGE * EDGE, np.int32),
        targets=np.empty((2 * OBJECT, 3)),
        trial=players(1),
    )


@compiled
def act(
    houses: Houses,
    which: NDArray[np.int64],
    state: State,
    suits: NDArray[np.bool_],
    ways: Ways,
    search: Search,
    actions: NDArray[np.int64],
) -> None:
    """The next action of each player, written to actions [N]; who has nothing to do turns left.

    Args:
        which: [N], the house of each.
        suits: [len(OBJECTS), len(NAMES)] which object is right on a piece of which name.
        ways: kept from step to step.
        search: overwritten.
    """
    trial = search.trial
    wanted = np.empty(2 * OBJECT, np.bool_)
    for i in range(len(actions)):
        p = which[i]
        _copy(state, i, trial)
        if not _on_its_way(state, i, ways):
            failed = state.outcome[i] != NONE and state.outcome[i] != PICKED and state.outcome[i] != DROPPED
            ways.failures[i] = ways.failures[i] + 1 if failed else 0
            ways.at[i], ways.length[i] = 0, 0
            if decide(houses, p, state, i, suits, wanted):
                ways.length[i] = find(houses, p, wanted, ways.failures[i], search, ways.actions[i])
            if not ways.length[i]:
                ways.actions[i, :HEADINGS] = TURN_LEFT
                ways.length[i] = HEADINGS
            _copy(state, i, trial)
        action = ways.actions[i, ways.at[i]]
        actions[i] = action
        if action != GRAB_RELEASE:
            move(houses, p, trial, 0, action)
        ways.at[i] += 1
        pose = ways.pose[i]
        pose[0], pose[1], pose[2], pose[3] = trial.x[0], trial.y[0], trial.heading[0], trial.tilt[0]
        ways.place[i] = state.place[i]


@compiled
def _on_its_way(state: State, i: int, ways: Ways) -> bool:
    pose = ways.pose[i]
    if ways.at[i] >= ways.length[i] or state.x[i] != pose[0] or state.y[i] != pose[1]:
        return False
    if state.heading[i] != pose[2] or state.tilt[i] != pose[3]:
        return False
    return bool((state.place[i] == ways.place[i]).all())


@compiled
def _copy(state: State, i: int, trial: State) -> None:
    """Player i as the only one of `trial`, who sees everything."""
    trial.x[0], trial.y[0], trial.heading[0], trial.tilt[0] = state.x[i], state.y[i], state.heading[i], state.tilt[i]
    trial.holding[0] = state.holding[i]
    trial.place[0], trial.slot[0], trial.on[0] = state.place[i], state.slot[i], state.on[i]
    trial.visible[0] = ~np.uint64(0)
    trial.seen[0] = np.uint16(0xFFFF)


@compiled
def decide(houses: Houses, p: int, state: State, i: int, suits: NDArray[np.bool_], wanted: NDArray[np.bool_]) -> bool:
    """What player i's hand should meet next: wanted [256], written, by instance; returns whether there is anything.

    With an empty hand these are the objects that lie wrong and for which a right place has room; with a full hand the
    right places that have room, or where there are none, any places that have room.
    """
    wanted[:] = False
    found = False
    held = state.holding[i]
    if held != NOWHERE:
        for right in range(2):
            for n in range(1, houses.pieces[p] + 1):
                if (right or suits[houses.object[p, held], houses.name[p, n]]) and _has_room(houses, p, state, i, n):
                    wanted[n] = found = True
            if found:
                return True
        return False
    for k in range(houses.objects[p]):
        kind = houses.object[p, k]
        if suits[kind, houses.name[p, state.place[i, k]]]:
            continue
        for n in range(1, houses.pieces[p] + 1):
            if suits[kind, houses.name[p, n]] and _has_room(houses, p, state, i, n):
                wanted[OBJECT + k] = found = True
                break
    return found


@compiled
def _has_room(houses: Houses, p: int, state: State, i: int, n: int) -> bool:
    return bool((state.on[i, n, : houses.capacity[p, n]] == NOWHERE).any())


@compiled
def find(
    houses: Houses, p: int, wanted: NDArray[np.bool_], skipped: int, search: Search, actions: NDArray[np.int8]
) -> int:
    """A short way to where the hand of `search.trial` meets what is wanted; its length, 0 if there is none.

    Args:
        wanted: [256].
        skipped: how many of the ways that are found are left aside: their grips did not do.
        actions: [LONGEST], written: they end with a grip.
    """
    trial, boxes = search.trial, spare(1)
    tilt = int(trial.tilt[0])
    targets = _targets(houses, p, wanted, search)
    _measure(houses, p, search)
    search.closed[:] = False
    search.bucket[:] = -1
    count = _add(search, 0, trial, 0, -1, 0)
    for b in range(_BUCKETS):
        while search.bucket[b] >= 0:
            node = search.bucket[b]
            search.bucket[b] = search.after[node]
            _stand(search, trial, node)
            if _is_ahead(search, trial, targets):
                for nearer in range(4 * TILTS + 1):
                    change = (nearer + 1) // 2 * (1 - 2 * (nearer % 2))
                    if abs(tilt + change) > TILTS:
                        continue
                    trial.tilt[0] = tilt + change
                    if not wanted[aim(houses, p, trial, 0, False, boxes)]:
                        continue
                    if skipped:
                        skipped -= 1
                        continue
                    grip(houses, p, trial, 0, False, boxes)
                    if trial.outcome[0] == PICKED or trial.outcome[0] == DROPPED:
                        return _trace(search, node, change, actions)
            if search.steps[node] >= LONGEST - 2 * TILTS - 2:
                continue
            for action in (MOVE_FORWARD, TURN_LEFT, TURN_RIGHT):
                _stand(search, trial, node)
                if move(houses, p, trial, 0, action):
                    count = _add(search, count, trial, action, node, b)
    return 0


@compiled
def _stand(search: Search, trial: State, node: int) -> None:
    trial.x[0], trial.y[0], trial.heading[0] = search.x[node], search.y[node], search.heading[node]


@compiled
def _add(search: Search, count: int, trial: State, action: int, parent: int, least: int) -> int:
    """Put the pose of `trial` among the nodes, if it is new there; how many there are then."""
    x, y, heading = trial.x[0], trial.y[0], trial.heading[0]
    r, c = int(y / _FINE), int(x / _FINE)
    if search.closed[heading, r, c]:
        return count
    search.closed[heading, r, c] = True
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
def _targets(houses: Houses, p: int, wanted: NDArray[np.bool_], search: Search) -> int:
    """Write the middles of what is wanted; how many. Cells of the field are 0 there, and far elsewhere."""
    search.field[:] = _FAR
    found = 0
    for instance in range(1, len(wanted)):
        if not wanted[instance]:
            continue
        if instance < OBJECT:
            box = houses.box[p, instance]
            r0, c0, r1, c1 = int(box[0]), int(box[1]), int(box[2]), int(box[3])
            half = math.hypot(r1 - r0, c1 - c0) / 2 * CELL
        else:
            place, slot = search.trial.place[0, instance - OBJECT], search.trial.slot[0, instance - OBJECT]
            cell = int(houses.slots[p, place, slot])
            r0, c0 = cell // EDGE, cell % EDGE
            r1, c1, half = r0 + 1, c0 + 1, OBJECT_SIDE * math.sqrt(0.5)
        search.field[r0:r1, c0:c1] = 0
        target = search.targets[found]
        target[0], target[1], target[2] = (c0 + c1) / 2 * CELL, (r0 + r1) / 2 * CELL, half
        found += 1
    return found


@compiled
def _is_ahead(search: Search, trial: State, targets: int) -> bool:
    """May the centre ray meet one of the targets?"""
    x, y = trial.x[0], trial.y[0]
    dx, dy = AHEAD[trial.heading[0]], ASIDE[trial.heading[0]]
    for t in range(targets):
        right, up, half = search.targets[t, 0] - x, search.targets[t, 1] - y, search.targets[t, 2]
        along = right * dx + up * dy
        if abs(up * dx - right * dy) <= half and -half < along < REACH + half:
            return True
    return False


@compiled
def _measure(houses: Houses, p: int, search: Search) -> None:
    """How far each cell is from where the field is 0, around walls; over furniture it counts as a detour."""
    field, queue = search.field, search.queue
    rows, columns = houses.size[p]
    first, last, size = 0, 0, len(search.queue)
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
