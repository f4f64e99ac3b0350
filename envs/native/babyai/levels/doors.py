"""Levels about a room and its doors: Minigrid's `gen_mission` line by line, each named after its class."""

from __future__ import annotations

import numpy as np

from envs.compiler import compiled
from envs.native.babyai.drawing import (
    A_DOOR,
    ANY_DOOR,
    ANY_STATE,
    CLOSED,
    N_COLOURS,
    RED,
    add_distractors,
    add_door,
    code_of_door,
    is_there,
    lay_rooms,
    named,
    place_agent,
)
from envs.native.babyai.instructions import instruct, settle
from envs.native.babyai.layout import (
    ANY_COLOUR,
    ANY_PLACE,
    GO_TO,
    LINK,
    OPEN,
    PICK_UP,
    THEN,
    Index,
    Row,
    Rows,
    describe_code,
)
from envs.native.babyai.plan import (
    FAMILY,
    LEFT,
    NUMBER,
    PARAMETERS,
    RIGHT,
    Plan,
    Seeds,
    State,
    check_objs_reachable,
    middle_room,
    rand_elem,
    two_of,
)
from envs.native.random import draw

(
    GO_TO_DOOR,
    GO_TO_OBJ_DOOR,
    ACTION_OBJ_DOOR,
    OPEN_RED_DOOR,
    OPEN_DOOR,
    OPEN_TWO_DOORS,
    OPEN_DOORS_ORDER,
) = range(7)

COLOUR_1, COLOUR_2 = range(PARAMETERS, PARAMETERS + 2)
"""Of doors, or ANY_COLOUR. The list: BY_COLOUR, BY_PLACE."""

BY_COLOUR, BY_PLACE = 0, 1
"""How a door is named."""


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
            if family == GO_TO_DOOR:
                _go_to_door(row, plan, state)
            elif family == GO_TO_OBJ_DOOR:
                _go_to_obj_door(row, plan, state)
            elif family == ACTION_OBJ_DOOR:
                _action_obj_door(row, plan, state)
            elif family == OPEN_RED_DOOR:
                _open_red_door(row, plan, state)
            elif family == OPEN_DOOR:
                _open_door(row, plan, state)
            elif family == OPEN_TWO_DOORS:
                _open_two_doors(row, plan, state)
            elif family == OPEN_DOORS_ORDER:
                _open_doors_order(row, plan, state)
            accepted = settle(row, plan)


@compiled
def _any_doors(row: Row, plan: Plan, state: State, door_state: int) -> None:
    """A door in every wall of the middle room."""
    for _ in range(4):
        add_door(row, plan, state, middle_room(plan), ANY_DOOR, ANY_COLOUR, door_state)


@compiled
def _new_colour(row: Row, state: State) -> int:
    """A colour that no closed door has."""
    while True:
        colour = draw(state, N_COLOURS)
        if not is_there(row, code_of_door(colour, CLOSED)):
            return colour


@compiled
def _go_to_door(row: Row, plan: Plan, state: State) -> None:
    _any_doors(row, plan, state, ANY_STATE)
    place_agent(row, plan, state, middle_room(plan))
    instruct(row, 0, GO_TO, named(row, draw(state, 4)), 0)


@compiled
def _go_to_obj_door(row: Row, plan: Plan, state: State) -> None:
    place_agent(row, plan, state, middle_room(plan))
    add_distractors(row, plan, state, middle_room(plan), plan[NUMBER], False)
    _any_doors(row, plan, state, ANY_STATE)
    check_objs_reachable(row, plan)
    instruct(row, 0, GO_TO, named(row, draw(state, plan[NUMBER] + 4)), 0)


@compiled
def _action_obj_door(row: Row, plan: Plan, state: State) -> None:
    number = plan[NUMBER]
    add_distractors(row, plan, state, middle_room(plan), number, True)
    _any_doors(row, plan, state, CLOSED)
    place_agent(row, plan, state, middle_room(plan))
    thing = draw(state, number + 4)
    verb = PICK_UP if thing < number else OPEN
    instruct(row, 0, GO_TO if draw(state, 2) == 0 else verb, named(row, thing), 0)


@compiled
def _open_red_door(row: Row, plan: Plan, state: State) -> None:
    door = add_door(row, plan, state, 0, RIGHT, RED, CLOSED)
    place_agent(row, plan, state, 0)
    instruct(row, 0, OPEN, named(row, door), 0)


@compiled
def _open_door(row: Row, plan: Plan, state: State) -> None:
    for door in range(4):
        add_door(row, plan, state, middle_room(plan), door, _new_colour(row, state), CLOSED)
    what = named(row, 0)
    if rand_elem(plan, state, 0) == BY_PLACE:
        what = describe_code(A_DOOR, ANY_COLOUR, ANY_PLACE + 1 + draw(state, 4), 0)
    place_agent(row, plan, state, middle_room(plan))
    instruct(row, 0, OPEN, what, 0)


@compiled
def _open_two_doors(row: Row, plan: Plan, state: State) -> None:
    one, other = two_of(state, N_COLOURS)
    if plan[COLOUR_1] != ANY_COLOUR:
        one = plan[COLOUR_1]
    if plan[COLOUR_2] != ANY_COLOUR:
        other = plan[COLOUR_2]
    first = add_door(row, plan, state, middle_room(plan), LEFT, one, CLOSED)
    second = add_door(row, plan, state, middle_room(plan), RIGHT, other, CLOSED)
    place_agent(row, plan, state, middle_room(plan))
    instruct(row, 0, OPEN, named(row, first), 0)
    instruct(row, 2, OPEN, named(row, second), 0)
    row[LINK] = THEN


@compiled
def _open_doors_order(row: Row, plan: Plan, state: State) -> None:
    for _ in range(plan[NUMBER]):
        add_door(row, plan, state, middle_room(plan), ANY_DOOR, _new_colour(row, state), CLOSED)
    place_agent(row, plan, state, middle_room(plan))
    one, other = two_of(state, plan[NUMBER])
    instruct(row, 0, OPEN, named(row, one), 0)
    mode = draw(state, 3)  # the one alone, then the other, after the other
    if mode > 0:
        instruct(row, 2, OPEN, named(row, other), 0)
        row[LINK] = THEN + mode - 1
