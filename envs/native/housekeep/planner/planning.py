"""What to do next to put a house in order: the nearest object that lies wrong, the nearest place where it is right.

decide: which instances the hand may meet ──> searching.find: a way to one of them ──> its actions, one a step
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.housekeep.hands import DROPPED, NONE, PICKED
from envs.native.housekeep.layout import HEADINGS, NOWHERE, OBJECT, OBJECTS, PIECES, SLOTS, Houses, State
from envs.native.housekeep.motion import GRAB_RELEASE, TURN_LEFT, move
from envs.native.housekeep.planner.searching import GRIDS, LONGEST, Search, find

_ALL = np.uint64(2**64 - 1)


class Ways(NamedTuple):
    """Of N players: the way that each follows, and how it must find itself to go on."""

    actions: NDArray[np.int8]  # [N, LONGEST]
    length: NDArray[np.int64]  # [N]
    at: NDArray[np.int64]  # [N] actions that were done
    pose: NDArray[np.float64]  # [N, 4] x, y, heading, tilt after them
    place: NDArray[np.uint8]  # [N, OBJECTS] where objects lie meanwhile
    failures: NDArray[np.int64]  # [N] grips in a row that came to nothing


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


@compiled
def act(
    houses: Houses,
    which: NDArray[np.int64],
    state: State,
    suits: NDArray[np.bool_],
    ways: Ways,
    search: Search,
    trial: State,
    actions: NDArray[np.int64],
) -> None:
    """The next action of each player, written to actions [N]; who has nothing to do turns left.

    Args:
        which: [N], the house of each.
        suits: [len(OBJECTS), len(NAMES)] which object is right on a piece of which name.
        ways: kept from step to step.
        search, trial: overwritten; `trial` is one player.
    """
    wanted = np.empty(2 * OBJECT, np.bool_)
    for i in range(len(actions)):
        p = which[i]
        _copy(state, i, trial)
        if not _on_its_way(state, i, ways):
            failed = state.outcome[i] != NONE and state.outcome[i] != PICKED and state.outcome[i] != DROPPED
            ways.failures[i] = ways.failures[i] + 1 if failed else 0
            ways.at[i], ways.length[i] = 0, 0
            if decide(houses, p, state, i, suits, wanted):
                for per_metre in GRIDS:
                    if not ways.length[i]:
                        _copy(state, i, trial)
                        ways.length[i] = find(
                            houses, p, wanted, ways.failures[i], per_metre, search, trial, ways.actions[i]
                        )
            if not ways.length[i]:
                ways.length[i] = HEADINGS
                for k in range(HEADINGS):
                    ways.actions[i, k] = TURN_LEFT
            _copy(state, i, trial)
        action = ways.actions[i, ways.at[i]]
        actions[i] = action
        if action != GRAB_RELEASE:
            move(houses, p, trial, 0, action)
        ways.at[i] += 1
        ways.pose[i, 0], ways.pose[i, 1] = trial.x[0], trial.y[0]
        ways.pose[i, 2], ways.pose[i, 3] = trial.heading[0], trial.tilt[0]
        for k in range(OBJECTS):
            ways.place[i, k] = state.place[i, k]


@compiled
def _on_its_way(state: State, i: int, ways: Ways) -> bool:
    same: bool = ways.at[i] < ways.length[i] and state.x[i] == ways.pose[i, 0] and state.y[i] == ways.pose[i, 1]
    same = same and state.heading[i] == ways.pose[i, 2] and state.tilt[i] == ways.pose[i, 3]
    for k in range(OBJECTS):
        same = same and state.place[i, k] == ways.place[i, k]
    return same


@compiled
def _copy(state: State, i: int, trial: State) -> None:
    """Player i as the only one of `trial`, who sees everything."""
    trial.x[0], trial.y[0], trial.heading[0], trial.tilt[0] = state.x[i], state.y[i], state.heading[i], state.tilt[i]
    trial.holding[0] = state.holding[i]
    for k in range(OBJECTS):
        trial.place[0, k], trial.slot[0, k] = state.place[i, k], state.slot[i, k]
    for n in range(PIECES + 1):
        for slot in range(SLOTS):
            trial.on[0, n, slot] = state.on[i, n, slot]
    trial.visible[0, 0], trial.visible[0, 1] = _ALL, _ALL
    trial.seen[0] = np.uint16(0xFFFF)


@compiled
def decide(houses: Houses, p: int, state: State, i: int, suits: NDArray[np.bool_], wanted: NDArray[np.bool_]) -> bool:
    """What player i's hand should meet next: wanted [256], written, by instance; returns whether there is anything.

    With an empty hand these are the objects that lie wrong and for which a right place has room, or where there are
    none, all that lie wrong. With a full hand they are right places that have room and that no other object needs, or
    where there are none, any right places that have room; and where there are none, places that are right for nothing.
    """
    for instance in range(len(wanted)):
        wanted[instance] = False
    found = False
    held = state.holding[i]
    needed = _needed(houses, p, state, i, suits) if held != NOWHERE else 0
    for resort in range(3):
        if held != NOWHERE:
            for n in range(1, houses.pieces[p] + 1):
                fits = _suited(houses, p, suits, n)
                right = fits == 0 if resort == 2 else fits >> held & 1 and (resort or not fits & needed)
                if right and _has_room(houses, p, state, i, n):
                    wanted[n] = found = True
        else:
            for k in range(houses.objects[p]):
                kind, place = houses.object[p, k], state.place[i, k]
                if place and not suits[kind, houses.name[p, place]]:
                    for n in range(1, houses.pieces[p] + 1):
                        if resort or (suits[kind, houses.name[p, n]] and _has_room(houses, p, state, i, n)):
                            wanted[OBJECT + k] = found = True
        if found:
            return True
    return False


@compiled
def _suited(houses: Houses, p: int, suits: NDArray[np.bool_], n: int) -> int:
    """The objects of house p that piece n is right for, as bits."""
    bits = 0
    for k in range(houses.objects[p]):
        if suits[houses.object[p, k], houses.name[p, n]]:
            bits |= 1 << k
    return bits


@compiled
def _needed(houses: Houses, p: int, state: State, i: int, suits: NDArray[np.bool_]) -> int:
    """The objects, as bits, that need every slot that is right for them: of some set, all have no slot to spare.

    Objects that lie wrong will make room, so their slots count.
    """
    wrong, needed = 0, 0
    for k in range(houses.objects[p]):
        place = state.place[i, k]
        if place and not suits[houses.object[p, k], houses.name[p, place]]:
            wrong |= 1 << k
    for together in range(1, wrong + 1):
        if together & wrong != together:
            continue
        spare = 0
        for k in range(houses.objects[p]):
            spare -= together >> k & 1
        for n in range(1, houses.pieces[p] + 1):
            if _suited(houses, p, suits, n) & together:
                spare += houses.capacity[p, n]
                for slot in range(houses.capacity[p, n]):
                    k = state.on[i, n, slot]
                    spare -= k != NOWHERE and not wrong >> k & 1
        if spare <= 0:
            needed |= together
    return needed


@compiled
def _has_room(houses: Houses, p: int, state: State, i: int, n: int) -> bool:
    free: bool = False
    for slot in range(houses.capacity[p, n]):
        free = free or state.on[i, n, slot] == NOWHERE
    return free
