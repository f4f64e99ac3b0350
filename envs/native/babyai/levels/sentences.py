"""Levels whose mission may be any sentence: Minigrid's `LevelGen`, and our `PickupLocal`."""

from __future__ import annotations

import numpy as np

from envs.compiler import compiled
from envs.native.babyai.drawing import (
    A_DOOR,
    ANYWHERE,
    KEY,
    LOCKED_DOOR,
    N_COLOURS,
    add_distractors,
    add_door,
    add_object,
    colour_of,
    connect_all,
    lay_rooms,
    place_agent,
)
from envs.native.babyai.instructions import instruct, matches, settle
from envs.native.babyai.layout import (
    ANY_COLOUR,
    ANY_PLACE,
    COUNT,
    GO_TO,
    LINK,
    NONE,
    NOWHERE,
    OPEN,
    POSITION,
    PUT_NEXT,
    THEN,
    Index,
    Row,
    Rows,
    describe_code,
)
from envs.native.babyai.plan import (
    DOOR_AT,
    NUMBER,
    PARAMETERS,
    REJECTED,
    ROOM,
    ROOMS,
    UNBLOCKING,
    Plan,
    Seeds,
    State,
    any_room,
    check_objs_reachable,
    inside,
    rand_elem,
    wide,
)
from envs.native.random import draw

LOCKED_ROOM_PROB, LOCATIONS, IMPLICIT_UNLOCK, COLOUR_NAMED, LOCKED_ROOM = range(PARAMETERS, PARAMETERS + 5)
"""LOCKED_ROOM_PROB: of CERTAIN. COLOUR_NAMED: descriptions always name a colour. LOCKED_ROOM:
written while drawing, NONE if there is none. The lists: kinds of sentences, as below; verbs."""
ACTION, AND, SEQUENCE = range(3)

CERTAIN = 1 << 30
"""LOCKED_ROOM_PROB of 1."""

_TRIES = 101  # of `rand_obj(max_tries=100)`


@compiled
def fill(rows: Rows, index: Index, seeds: Seeds, plan: Plan, state: State) -> None:
    """Draw rows[index[j]] from seeds[j]."""
    for j in range(len(index)):
        row = rows[index[j]]
        state[0] = np.uint64(seeds[j])
        accepted = False
        while not accepted:
            lay_rooms(row, plan, state)
            plan[LOCKED_ROOM] = NONE
            if draw(state, CERTAIN) < plan[LOCKED_ROOM_PROB]:
                _add_locked_room(row, plan, state)
            connect_all(row, plan, state, ANY_COLOUR)
            add_distractors(row, plan, state, ANYWHERE, plan[NUMBER], False)
            while place_agent(row, plan, state, ANYWHERE) == plan[LOCKED_ROOM]:
                pass
            if not plan[UNBLOCKING]:
                check_objs_reachable(row, plan)
            _rand_instr(row, plan, state)
            accepted = settle(row, plan)


@compiled
def _add_locked_room(row: Row, plan: Plan, state: State) -> None:
    """A room with a locked door, and the key to it in another room."""
    locked, door = any_room(plan, state), draw(state, 4)
    while plan[ROOMS + ROOM * locked + DOOR_AT + door] == NOWHERE:
        locked, door = any_room(plan, state), draw(state, 4)
    plan[LOCKED_ROOM] = locked
    colour = colour_of(row, add_door(row, plan, state, locked, door, ANY_COLOUR, LOCKED_DOOR))
    room = any_room(plan, state)
    while room == locked:
        room = any_room(plan, state)
    add_object(row, plan, state, room, KEY, colour)


@compiled
def _rand_instr(row: Row, plan: Plan, state: State) -> None:
    """A sentence: a clause, two clauses, or two groups of one or two clauses."""
    kind = rand_elem(plan, state, 0)
    _rand_group(row, plan, state, 0, kind == AND or (kind == SEQUENCE and draw(state, 2) == 0))
    if kind == SEQUENCE:
        _rand_group(row, plan, state, 2, draw(state, 2) == 0)
        row[LINK] = THEN + draw(state, 2)


@compiled
def _rand_group(row: Row, plan: Plan, state: State, first: int, both: bool) -> None:
    for clause in range(first, first + 1 + both):
        verb = rand_elem(plan, state, 1)
        nouns = A_DOOR + 1 if verb == GO_TO else A_DOOR  # doors cannot be picked up or put
        thing = _rand_obj(row, plan, state, A_DOOR if verb == OPEN else 0, 1 if verb == OPEN else nouns)
        other = _rand_obj(row, plan, state, 0, A_DOOR + 1) if verb == PUT_NEXT else 0
        instruct(row, clause, verb, thing, other)


@compiled
def _rand_obj(row: Row, plan: Plan, state: State, first: int, nouns: int) -> int:
    """A description of something that is there, its noun one of [first, first + nouns)."""
    tries = 0
    while tries < _TRIES:
        tries += 1
        colour, noun = draw(state, N_COLOURS + 1), first + draw(state, nouns)  # the last is ANY_COLOUR
        place = ANY_PLACE
        if plan[LOCATIONS] and draw(state, 2) == 0:
            place += 1 + draw(state, 4)
        description = describe_code(noun, colour, place, 0)
        if _can_be_meant(row, plan, description):
            if colour != ANY_COLOUR or not plan[COLOUR_NAMED]:
                return description
            tries = 0  # `PickupLocal` asks for another
    plan[REJECTED] = 1
    return 0


@compiled
def _can_be_meant(row: Row, plan: Plan, description: int) -> bool:
    """Does the description mean a thing, one outside of the locked room where the level unlocks only when told to?"""
    anywhere = plan[IMPLICIT_UNLOCK] or plan[LOCKED_ROOM] == NONE
    for thing in range(wide(row, COUNT)):
        if matches(row, plan, thing, description) and (
            anywhere or not inside(row, plan, plan[LOCKED_ROOM], wide(row, POSITION + thing))
        ):
            return True
    return False
