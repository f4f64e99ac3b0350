"""Levels about things in a room or two: Minigrid's `gen_mission` line by line, each named after its class."""

from __future__ import annotations

import numpy as np

from envs.compiler import compiled
from envs.native.babyai.drawing import (
    ANYWHERE,
    BALL,
    BLUE,
    GREY,
    RED,
    add_distractors,
    add_object,
    code_of_thing,
    colour_of,
    is_there,
    lay_rooms,
    look_like,
    named,
    noun_of,
    place_agent,
    remove_wall,
)
from envs.native.babyai.instructions import instruct, settle
from envs.native.babyai.layout import (
    ANY_COLOUR,
    ANY_NOUN,
    COUNT,
    GO_TO,
    LINK,
    PICK_UP,
    PUT_NEXT,
    THEN,
    Index,
    Row,
    Rows,
    describe_code,
)
from envs.native.babyai.plan import (
    CARRIED,
    FAMILY,
    NUMBER,
    PARAMETERS,
    REJECTED,
    RIGHT,
    Plan,
    Seeds,
    State,
    check_objs_reachable,
    two_of,
)
from envs.native.random import draw

RED_BALL, RED_BLUE_BALL, PICKUP_DIST, ONE_ROOM, PUT_NEXT_LOCAL, PUT_NEXT_ROOM, MOVE_TWO_ACROSS = range(7)

GREY_OTHERS, CARRYING_FIRST = range(PARAMETERS, PARAMETERS + 2)
"""Whether distractors are grey; whether the agent begins with the thing that it is to put."""


@compiled
def fill_go_to(rows: Rows, index: Index, seeds: Seeds, plan: Plan, state: State) -> None:
    """Draw rows[index[j]] from seeds[j], one room with a thing to go to: compiled apart, since most want no more."""
    for j in range(len(index)):
        row = rows[index[j]]
        state[0] = np.uint64(seeds[j])
        accepted = False
        while not accepted:
            lay_rooms(row, plan, state)
            _go_to(row, plan, state)
            accepted = settle(row, plan)


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
            if family == RED_BALL:
                _red_ball(row, plan, state)
            elif family == RED_BLUE_BALL:
                _red_blue_ball(row, plan, state)
            elif family == PICKUP_DIST:
                _pickup_dist(row, plan, state)
            elif family == ONE_ROOM:
                _one_room(row, plan, state)
            elif family == PUT_NEXT_LOCAL:
                _put_next_local(row, plan, state)
            elif family == PUT_NEXT_ROOM:
                _put_next(row, plan, state)
            elif family == MOVE_TWO_ACROSS:
                _move_two_across(row, plan, state)
            accepted = settle(row, plan)


@compiled
def _go_to(row: Row, plan: Plan, state: State) -> None:
    """GoToLocal, GoToObj."""
    place_agent(row, plan, state, ANYWHERE)
    first = add_distractors(row, plan, state, 0, plan[NUMBER], False)
    check_objs_reachable(row, plan)
    instruct(row, 0, GO_TO, named(row, first + draw(state, plan[NUMBER])), 0)


@compiled
def _red_ball(row: Row, plan: Plan, state: State) -> None:
    """GoToRedBall, GoToRedBallNoDists, GoToRedBallGrey."""
    place_agent(row, plan, state, ANYWHERE)
    ball = add_object(row, plan, state, 0, BALL, RED)
    add_distractors(row, plan, state, 0, plan[NUMBER], False)
    if plan[GREY_OTHERS]:
        for thing in range(ball + 1, row[COUNT]):
            look_like(row, thing, code_of_thing(noun_of(row, thing), GREY))
    check_objs_reachable(row, plan)
    instruct(row, 0, GO_TO, named(row, ball), 0)


@compiled
def _red_blue_ball(row: Row, plan: Plan, state: State) -> None:
    """GoToRedBlueBall."""
    place_agent(row, plan, state, ANYWHERE)
    add_distractors(row, plan, state, 0, plan[NUMBER], False)
    if is_there(row, code_of_thing(BALL, RED)) or is_there(row, code_of_thing(BALL, BLUE)):
        plan[REJECTED] = 1
    ball = add_object(row, plan, state, 0, BALL, RED if draw(state, 2) == 0 else BLUE)
    check_objs_reachable(row, plan)
    instruct(row, 0, GO_TO, named(row, ball), 0)


@compiled
def _pickup_dist(row: Row, plan: Plan, state: State) -> None:
    first = add_distractors(row, plan, state, 0, plan[NUMBER], True)
    place_agent(row, plan, state, 0)
    thing = first + draw(state, plan[NUMBER])
    noun, colour = noun_of(row, thing), colour_of(row, thing)
    named_by = draw(state, 3)  # noun, colour, both
    if named_by == 0:
        colour = ANY_COLOUR
    elif named_by == 1:
        noun = ANY_NOUN
    instruct(row, 0, PICK_UP, describe_code(noun, colour, 0, 0), 0)


@compiled
def _one_room(row: Row, plan: Plan, state: State) -> None:
    """OneRoomS8."""
    add_object(row, plan, state, 0, BALL, ANY_COLOUR)
    place_agent(row, plan, state, ANYWHERE)
    instruct(row, 0, PICK_UP, describe_code(BALL, ANY_COLOUR, 0, 0), 0)


@compiled
def _put_next_local(row: Row, plan: Plan, state: State) -> None:
    place_agent(row, plan, state, ANYWHERE)
    first = add_distractors(row, plan, state, 0, plan[NUMBER], True)
    check_objs_reachable(row, plan)
    one, other = two_of(state, plan[NUMBER])
    instruct(row, 0, PUT_NEXT, named(row, first + one), named(row, first + other))


@compiled
def _put_next(row: Row, plan: Plan, state: State) -> None:
    number = plan[NUMBER]
    place_agent(row, plan, state, 0)
    one = add_distractors(row, plan, state, 0, number, True) + draw(state, number)
    other = add_distractors(row, plan, state, 1, number, True) + draw(state, number)
    remove_wall(row, plan, 0, RIGHT)
    if draw(state, 2) == 0:
        one, other = other, one
    instruct(row, 0, PUT_NEXT, named(row, one), named(row, other))
    if plan[CARRYING_FIRST]:
        plan[CARRIED] = one


@compiled
def _move_two_across(row: Row, plan: Plan, state: State) -> None:
    number = plan[NUMBER]
    place_agent(row, plan, state, 0)
    left = add_distractors(row, plan, state, 0, number, True)
    right = add_distractors(row, plan, state, 1, number, True)
    remove_wall(row, plan, 0, RIGHT)
    a, d = two_of(state, number)
    b, c = two_of(state, number)
    instruct(row, 0, PUT_NEXT, named(row, left + a), named(row, right + b))
    instruct(row, 2, PUT_NEXT, named(row, right + c), named(row, left + d))
    row[LINK] = THEN
