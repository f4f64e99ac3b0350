"""Levels about things and doors in mazes: Minigrid's `gen_mission` line by line, each named after its class."""

from __future__ import annotations

import numpy as np

from envs.compiler import compiled
from envs.native.babyai.drawing import (
    ANYWHERE,
    CLOSED,
    add_distractors,
    add_door,
    add_object,
    connect_all,
    lay_rooms,
    look_like,
    named,
    noun_of,
    place_agent,
)
from envs.native.babyai.instructions import instruct, settle
from envs.native.babyai.layout import (
    ANY_COLOUR,
    ANY_NOUN,
    ANY_PLACE,
    CODE,
    OPEN,
    PICK_UP,
    Index,
    Row,
    Rows,
    describe_code,
)
from envs.native.babyai.plan import (
    FAMILY,
    NUMBER,
    PARAMETERS,
    REJECTED,
    UP,
    Plan,
    Seeds,
    State,
    all_reachable,
    any_room,
    check_objs_reachable,
    middle_room,
    wide,
)
from envs.native.random import draw

SEEK, OPEN_ANY, PICKUP_ABOVE, FIND_OBJ = range(4)

ASKED, ALL_REACHABLE, DOORS_OPEN = range(PARAMETERS, PARAMETERS + 3)
"""The verb; whether all things must be reachable, or must not; whether doors are open."""


@compiled
def fill(rows: Rows, index: Index, seeds: Seeds, plan: Plan, state: State) -> None:
    """Draw rows[index[j]] from seeds[j]."""
    for j in range(len(index)):
        row = rows[index[j]]
        state[0] = np.uint64(seeds[j])
        accepted = False
        while not accepted:
            lay_rooms(row, plan, state)
            family = plan[FAMILY]
            if family == SEEK:
                _seek(row, plan, state)
            elif family == OPEN_ANY:
                _open_any(row, plan, state)
            elif family == PICKUP_ABOVE:
                _pickup_above(row, plan, state)
            elif family == FIND_OBJ:
                _find_obj(row, plan, state)
            accepted = settle(row, plan)


@compiled
def _seek(row: Row, plan: Plan, state: State) -> None:
    """GoTo, Pickup, UnblockPickup."""
    number = plan[NUMBER]
    place_agent(row, plan, state, ANYWHERE)
    connect_all(row, plan, state, ANY_COLOUR)
    first = add_distractors(row, plan, state, ANYWHERE, number, False)
    if all_reachable(row, plan) != plan[ALL_REACHABLE]:
        plan[REJECTED] = 1
    instruct(row, 0, plan[ASKED], named(row, first + draw(state, number)), 0)
    if plan[DOORS_OPEN]:
        for door in range(first):
            look_like(row, door, wide(row, CODE + door) - 1)


@compiled
def _open_any(row: Row, plan: Plan, state: State) -> None:
    """Open."""
    place_agent(row, plan, state, ANYWHERE)
    connect_all(row, plan, state, ANY_COLOUR)
    doors = add_distractors(row, plan, state, ANYWHERE, plan[NUMBER], False)
    check_objs_reachable(row, plan)
    instruct(row, 0, OPEN, named(row, draw(state, doors)), 0)


@compiled
def _pickup_above(row: Row, plan: Plan, state: State) -> None:
    thing = add_object(row, plan, state, 1, ANY_NOUN, ANY_COLOUR)
    add_door(row, plan, state, middle_room(plan), UP, ANY_COLOUR, CLOSED)
    place_agent(row, plan, state, middle_room(plan))
    connect_all(row, plan, state, ANY_COLOUR)
    instruct(row, 0, PICK_UP, named(row, thing), 0)


@compiled
def _find_obj(row: Row, plan: Plan, state: State) -> None:
    """FindObjS5."""
    thing = add_object(row, plan, state, any_room(plan, state), ANY_NOUN, ANY_COLOUR)
    place_agent(row, plan, state, middle_room(plan))
    connect_all(row, plan, state, ANY_COLOUR)
    instruct(row, 0, PICK_UP, describe_code(noun_of(row, thing), ANY_COLOUR, ANY_PLACE, 0), 0)
