"""Levels about locked doors: Minigrid's `gen_mission` line by line, each named after its class."""

from __future__ import annotations

import numpy as np

from envs.compiler import compiled
from envs.native.babyai.drawing import (
    A_DOOR,
    ANY_DOOR,
    ANYWHERE,
    BALL,
    BOX,
    KEY,
    LOCKED_DOOR,
    N_COLOURS,
    add_distractors,
    add_door,
    add_object,
    add_thing,
    code_of_thing,
    colour_of,
    connect_all,
    lay_rooms,
    named,
    place_agent,
    remove_wall,
)
from envs.native.babyai.instructions import instruct, settle
from envs.native.babyai.layout import (
    ANY_COLOUR,
    ANY_PLACE,
    CONTAINS,
    GO_TO,
    NOWHERE,
    OPEN,
    PICK_UP,
    POSITION,
    Index,
    Row,
    Rows,
    describe_code,
)
from envs.native.babyai.plan import (
    COLUMNS,
    FAMILY,
    LEFT,
    NUMBER,
    PARAMETERS,
    RIGHT,
    ROWS,
    UP,
    Plan,
    Seeds,
    State,
    any_room,
    check_objs_reachable,
    middle_room,
    two_of,
    wide,
)
from envs.native.random import draw

(
    UNLOCK,
    GO_TO_IMP_UNLOCK,
    UNLOCK_LOCAL,
    KEY_IN_BOX,
    UNLOCK_PICKUP,
    BLOCKED_UNLOCK_PICKUP,
    UNLOCK_TO_UNLOCK,
    KEY_CORRIDOR,
) = range(8)

NOUN = PARAMETERS
"""What lies beyond the corridor."""


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
            if family == UNLOCK:
                _unlock(row, plan, state)
            elif family == GO_TO_IMP_UNLOCK:
                _go_to_imp_unlock(row, plan, state)
            elif family == UNLOCK_LOCAL:
                _unlock_local(row, plan, state)
            elif family == KEY_IN_BOX:
                _key_in_box(row, plan, state)
            elif family == UNLOCK_PICKUP:
                _unlock_pickup(row, plan, state)
            elif family == BLOCKED_UNLOCK_PICKUP:
                _blocked_unlock_pickup(row, plan, state)
            elif family == UNLOCK_TO_UNLOCK:
                _unlock_to_unlock(row, plan, state)
            elif family == KEY_CORRIDOR:
                _key_corridor(row, plan, state)
            accepted = settle(row, plan)


@compiled
def _lock_a_room(row: Row, plan: Plan, state: State) -> int:
    """A locked door, thing 0, and its key. Returns the room.

    The key may lie in that very room: Minigrid wants it elsewhere, but asks `is not` of numbers that never are.
    """
    room = any_room(plan, state)
    door = add_door(row, plan, state, room, ANY_DOOR, ANY_COLOUR, LOCKED_DOOR)
    add_object(row, plan, state, any_room(plan, state), KEY, colour_of(row, door))
    return room


@compiled
def _distract_and_place_agent(row: Row, plan: Plan, state: State, locked: int) -> None:
    """Distractors in every room, the locked one too for the same reason, and the agent in another."""
    for room in range(plan[COLUMNS] * plan[ROWS]):
        add_distractors(row, plan, state, room, plan[NUMBER], False)
    while place_agent(row, plan, state, ANYWHERE) == locked:
        pass
    check_objs_reachable(row, plan)


@compiled
def _unlock(row: Row, plan: Plan, state: State) -> None:
    locked = _lock_a_room(row, plan, state)
    connect_all(row, plan, state, colour_of(row, 0) if draw(state, 2) == 0 else ANY_COLOUR)
    _distract_and_place_agent(row, plan, state, locked)
    instruct(row, 0, OPEN, named(row, 0), 0)


@compiled
def _go_to_imp_unlock(row: Row, plan: Plan, state: State) -> None:
    locked = _lock_a_room(row, plan, state)
    connect_all(row, plan, state, ANY_COLOUR)
    _distract_and_place_agent(row, plan, state, locked)
    target = add_distractors(row, plan, state, locked, 1, False)
    instruct(row, 0, GO_TO, named(row, target), 0)


@compiled
def _unlock_local(row: Row, plan: Plan, state: State) -> None:
    door = add_door(row, plan, state, middle_room(plan), ANY_DOOR, ANY_COLOUR, LOCKED_DOOR)
    add_object(row, plan, state, middle_room(plan), KEY, colour_of(row, door))
    add_distractors(row, plan, state, middle_room(plan), plan[NUMBER], True)
    place_agent(row, plan, state, middle_room(plan))
    instruct(row, 0, OPEN, describe_code(A_DOOR, ANY_COLOUR, ANY_PLACE, 0), 0)


@compiled
def _key_in_box(row: Row, plan: Plan, state: State) -> None:
    door = add_door(row, plan, state, middle_room(plan), ANY_DOOR, ANY_COLOUR, LOCKED_DOOR)
    key = add_thing(row, code_of_thing(KEY, colour_of(row, door)), NOWHERE)
    box = add_object(row, plan, state, middle_room(plan), BOX, ANY_COLOUR)
    row[CONTAINS + box] = key
    place_agent(row, plan, state, middle_room(plan))
    instruct(row, 0, OPEN, describe_code(A_DOOR, ANY_COLOUR, ANY_PLACE, 0), 0)


@compiled
def _unlock_pickup(row: Row, plan: Plan, state: State) -> None:
    box = add_object(row, plan, state, 1, BOX, ANY_COLOUR)
    door = add_door(row, plan, state, 0, RIGHT, ANY_COLOUR, LOCKED_DOOR)
    add_object(row, plan, state, 0, KEY, colour_of(row, door))
    add_distractors(row, plan, state, ANYWHERE, plan[NUMBER], True)
    place_agent(row, plan, state, 0)
    instruct(row, 0, PICK_UP, named(row, box), 0)


@compiled
def _blocked_unlock_pickup(row: Row, plan: Plan, state: State) -> None:
    add_object(row, plan, state, 1, BOX, ANY_COLOUR)
    door = add_door(row, plan, state, 0, RIGHT, ANY_COLOUR, LOCKED_DOOR)
    add_thing(row, code_of_thing(BALL, draw(state, N_COLOURS)), wide(row, POSITION + door) - 1)
    add_object(row, plan, state, 0, KEY, colour_of(row, door))
    place_agent(row, plan, state, 0)
    instruct(row, 0, PICK_UP, describe_code(BOX, ANY_COLOUR, ANY_PLACE, 0), 0)


@compiled
def _unlock_to_unlock(row: Row, plan: Plan, state: State) -> None:
    one, other = two_of(state, N_COLOURS)
    add_door(row, plan, state, 0, RIGHT, one, LOCKED_DOOR)
    add_object(row, plan, state, 2, KEY, one)
    add_door(row, plan, state, 1, RIGHT, other, LOCKED_DOOR)
    add_object(row, plan, state, 1, KEY, other)
    add_object(row, plan, state, 0, BALL, ANY_COLOUR)
    place_agent(row, plan, state, 1)
    instruct(row, 0, PICK_UP, describe_code(BALL, ANY_COLOUR, ANY_PLACE, 0), 0)


@compiled
def _key_corridor(row: Row, plan: Plan, state: State) -> None:
    columns, lines = plan[COLUMNS], plan[ROWS]
    for line in range(1, lines):
        remove_wall(row, plan, 1 + line * columns, UP)
    locked = 2 + draw(state, lines) * columns
    door = add_door(row, plan, state, locked, LEFT, ANY_COLOUR, LOCKED_DOOR)
    add_object(row, plan, state, locked, plan[NOUN], ANY_COLOUR)
    add_object(row, plan, state, draw(state, lines) * columns, KEY, colour_of(row, door))
    place_agent(row, plan, state, 1 + lines // 2 * columns)
    connect_all(row, plan, state, ANY_COLOUR)
    instruct(row, 0, PICK_UP, describe_code(plan[NOUN], ANY_COLOUR, ANY_PLACE, 0), 0)
