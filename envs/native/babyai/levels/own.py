"""Levels of `envs.babyai.levels` that Minigrid lacks: a function for each `gen_mission`, line by line."""

from __future__ import annotations

import numpy as np

from envs.compiler import compiled
from envs.native.babyai.drawing import (
    A_DOOR,
    ANY_DOOR,
    ANYWHERE,
    KEY,
    LOCKED_DOOR,
    N_COLOURS,
    add_distractors,
    add_door,
    add_object,
    colour_of,
    lay_rooms,
    named,
    noun_of,
    place_agent,
)
from envs.native.babyai.instructions import instruct, settle
from envs.native.babyai.layout import (
    AFTER,
    ANY_COLOUR,
    GO_TO,
    LINK,
    OPEN,
    PICK_UP,
    PUT_NEXT,
    THEN,
    Index,
    Row,
    Rows,
    describe_code,
)
from envs.native.babyai.plan import (
    COLUMNS,
    FAMILY,
    LISTS,
    NUMBER,
    PARAMETERS,
    REJECTED,
    Plan,
    Seeds,
    State,
    check_objs_reachable,
    rand_elem,
    two_of,
)
from envs.native.random import draw

LOCAL, TARGETS = range(2)

PICK_UP_GO_TO, PICK_UP_PICK_UP = PUT_NEXT + 1, PUT_NEXT + 2
"""Kinds of `Local` beside the verbs."""

ASKED, HELD_OUT, VOCABULARY = range(PARAMETERS, PARAMETERS + 3)
"""ASKED: the verb of `Targets`. HELD_OUT: 1: missions of `Local` name the held-out pairs, 0: the others. VOCABULARY:
the held-out pairs, bit noun * 6 + colour.
The lists of `Local`: kinds; THEN, AFTER; colours of doors. Those of `Targets`: for every target noun * 6 + colour."""


@compiled
def fill(rows: Rows, index: Index, seeds: Seeds, plan: Plan, state: State) -> None:
    """Draw rows[index[j]] from seeds[j]."""
    for j in range(len(index)):
        row = rows[index[j]]
        state[0] = np.uint64(seeds[j])
        family, kind = plan[FAMILY], 0
        if family == LOCAL:
            kind = rand_elem(plan, state, 0)  # before the loop: a kind that is often rejected does not become rarer
            plan[COLUMNS] = 2 if kind == OPEN else 1
        accepted = False
        while not accepted:
            lay_rooms(row, plan, state)
            if family == TARGETS:
                _targets(row, plan, state)
            elif kind == OPEN:
                _local_door(row, plan, state)
            else:
                _local_things(row, plan, state, kind)
            check_objs_reachable(row, plan)
            accepted = settle(row, plan)


@compiled
def _targets(row: Row, plan: Plan, state: State) -> None:
    """`Targets`, one or two."""
    place_agent(row, plan, state, ANYWHERE)
    two = plan[LISTS + 1 + plan[LISTS]] > 0
    for which in range(1 + two):
        target = rand_elem(plan, state, which)
        add_object(row, plan, state, 0, target // N_COLOURS, target % N_COLOURS)
    add_distractors(row, plan, state, 0, plan[NUMBER], False)
    instruct(row, 0, plan[ASKED], named(row, 0), 0)
    if two:
        _in_order(row, plan[ASKED], 0, plan[ASKED], 1, THEN if draw(state, 2) == 0 else AFTER)


@compiled
def _local_things(row: Row, plan: Plan, state: State, kind: int) -> None:
    """`Local`, all kinds but "open"."""
    needed = 1 if kind in (GO_TO, PICK_UP) else 2
    place_agent(row, plan, state, ANYWHERE)
    number = needed + plan[NUMBER]
    add_distractors(row, plan, state, 0, number, False)
    one, other = two_of(state, number)
    if needed == 1:
        instruct(row, 0, kind, named(row, one), 0)
    elif kind == PUT_NEXT:
        instruct(row, 0, kind, named(row, one), named(row, other))
    else:
        later_verb = GO_TO if kind == PICK_UP_GO_TO else PICK_UP
        _in_order(row, PICK_UP, one, later_verb, other, rand_elem(plan, state, 1))
    _check_vocabulary(row, plan, one)
    if needed == 2:
        _check_vocabulary(row, plan, other)


@compiled
def _check_vocabulary(row: Row, plan: Plan, thing: int) -> None:
    """Reject the level if its mission is of the other vocabulary."""
    held_out = plan[VOCABULARY] >> (noun_of(row, thing) * N_COLOURS + colour_of(row, thing)) & 1
    if held_out != plan[HELD_OUT]:
        plan[REJECTED] = 1


@compiled
def _local_door(row: Row, plan: Plan, state: State) -> None:
    """`Local`, "open"."""
    behind = draw(state, 2)
    colour = rand_elem(plan, state, 2)
    door = add_door(row, plan, state, behind, ANY_DOOR, colour, LOCKED_DOOR)
    add_object(row, plan, state, 1 - behind, KEY, colour)
    add_distractors(row, plan, state, 1 - behind, plan[NUMBER], False)
    place_agent(row, plan, state, 1 - behind)
    unnamed = plan[HELD_OUT] == 0 and draw(state, 2) == 0
    what = describe_code(A_DOOR, ANY_COLOUR, 0, 0) if unnamed else named(row, door)
    instruct(row, 0, OPEN, what, 0)


@compiled
def _in_order(row: Row, verb: int, thing: int, later_verb: int, later: int, link: int) -> None:
    """The mission to do something and then something else, told forward or backward."""
    first = 0 if link == THEN else 2
    instruct(row, first, verb, named(row, thing), 0)
    instruct(row, 2 - first, later_verb, named(row, later), 0)
    row[LINK] = link
