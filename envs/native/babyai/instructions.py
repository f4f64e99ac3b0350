"""Missions of drawn levels: Minigrid's descriptions, and what it does last of all when it draws a level.

    matches     does a description mean a thing?
    instruct    write one clause of the mission, its descriptions as they are
    settle      resolve the descriptions, reject what Minigrid's `validate_instrs` rejects, set the limit

A description is a number, `layout.describe_code`, here with `unique` 0 until `settle` knows better.
"""

from __future__ import annotations

from envs.babyai.symbols import EMPTY_CODE
from envs.babyai.world import TASK_KINDS
from envs.compiler import compiled
from envs.native.babyai.drawing import GREY, KEY, LOCKED_DOOR, code_of_door, colour_of, is_there, noun_of
from envs.native.babyai.layout import (
    ALONE,
    ANY_COLOUR,
    ANY_NOUN,
    ANY_PLACE,
    AT,
    CARRYING,
    CLAUSES,
    COUNT,
    DESCRIPTION,
    DIRECTION,
    GO_TO,
    KIND,
    LIMIT,
    LINK,
    LONGEST,
    MAP,
    MEMBER,
    NO_VERB,
    NONE,
    NOWHERE,
    OPEN,
    PICK_UP,
    PLACES,
    POSITION,
    PUT_NEXT,
    STRICT,
    STRIDE,
    VERB,
    Row,
)
from envs.native.babyai.plan import (
    CARRIED,
    COLUMNS,
    FIXED_LIMIT,
    REJECTED,
    ROWS,
    SIZE,
    STRICTNESS,
    UNBLOCKING,
    Plan,
    inside,
    room_of,
    wide,
)

_LEFT, _RIGHT, _FRONT = (PLACES.index(place) for place in ("on your left", "on your right", "in front of you"))
_SEQUENCE = TASK_KINDS.index("sequence")

_VERBS = {"go to": GO_TO, "pick up": PICK_UP, "open": OPEN, "put next": PUT_NEXT}
assert all(TASK_KINDS.index(kind) + 1 == verb for kind, verb in _VERBS.items()), "a verb is its task kind + 1"


@compiled
def parts(description: int) -> tuple[int, int, int]:
    """Noun, colour and place of a description."""
    return description // 2 % 5, description // 10 % 7, description // 70


@compiled
def matches(row: Row, plan: Plan, thing: int, description: int) -> bool:
    """Does the description mean the thing? Places are seen from the agent, and in the agent's room only."""
    noun, colour, place = parts(description)
    at = wide(row, POSITION + thing)
    if at == NOWHERE or noun not in (noun_of(row, thing), ANY_NOUN):
        return False
    if colour not in (colour_of(row, thing), ANY_COLOUR):
        return False
    if place == ANY_PLACE:
        return True
    agent, stride, direction = wide(row, AT), wide(row, STRIDE), wide(row, DIRECTION)
    if not inside(row, plan, room_of(row, plan, agent), at):
        return False
    right, ahead = at // stride - agent // stride, at % stride - agent % stride  # for an agent that looks right
    if direction % 2 == 1:
        right, ahead = -ahead, right
    if direction >= 2:
        right, ahead = -right, -ahead
    if place == _LEFT:
        return right < 0
    if place == _RIGHT:
        return right > 0
    return ahead > 0 if place == _FRONT else ahead < 0


@compiled
def instruct(row: Row, clause: int, verb: int, thing: int, other: int) -> None:
    """Write a clause about one description, or two for "put next"."""
    row[VERB + clause] = verb
    row[DESCRIPTION + 2 * clause] = thing
    row[DESCRIPTION + 2 * clause + 1] = other


@compiled
def settle(row: Row, plan: Plan) -> bool:
    """Complete a level whose things and clauses are there. Returns whether it is accepted."""
    navigations = 0
    for clause in range(CLAUSES):
        verb = row[VERB + clause]
        if verb == NO_VERB:
            continue
        descriptions = 2 if verb == PUT_NEXT else 1
        navigations += descriptions
        row[STRICT] |= plan[STRICTNESS] & 1 << clause
        for d in range(2 * clause, 2 * clause + descriptions):
            _resolve(row, plan, d)
        if verb == PUT_NEXT and _meet(row, 2 * clause):
            plan[REJECTED] = 1
    row[KIND] = row[VERB] - 1 if row[LINK] == ALONE and row[VERB + 1] == NO_VERB else _SEQUENCE
    limit = navigations * plan[SIZE] * plan[SIZE] * plan[COLUMNS] * plan[ROWS]
    row[LIMIT] = min(plan[FIXED_LIMIT] if plan[FIXED_LIMIT] else limit, LONGEST)
    if plan[CARRIED] != NONE:  # Minigrid takes it off the map when all else is done
        row[CARRYING] = plan[CARRIED]
        row[MAP + row[POSITION + plan[CARRIED]]] = EMPTY_CODE
        row[POSITION + plan[CARRIED]] = NOWHERE
    return bool(plan[REJECTED] == 0)


@compiled
def _resolve(row: Row, plan: Plan, d: int) -> None:
    """Say of description d which things it means, and whether it is one thing."""
    description = wide(row, DESCRIPTION + d)
    noun, colour, _ = parts(description)
    # Minigrid counts every cell, walls too, which are grey: "a grey object" is never "the grey object"
    met = 2 if noun == ANY_NOUN and colour == GREY else 0
    for thing in range(wide(row, COUNT)):
        if matches(row, plan, thing, description):
            row[MEMBER + thing] |= 1 << d
            met += 1
    row[DESCRIPTION + d] = description + (met == 1)
    if plan[UNBLOCKING] and noun == KEY and colour != ANY_COLOUR and is_there(row, code_of_door(colour, LOCKED_DOOR)):
        plan[REJECTED] = 1


@compiled
def _meet(row: Row, d: int) -> bool:
    """Is a thing of description d also meant by the next one, or beside such a thing?"""
    meets, stride = False, row[STRIDE]
    for a in range(row[COUNT]):
        for b in range(row[COUNT]):
            if row[MEMBER + a] >> d & 1 and row[MEMBER + b] >> d >> 1 & 1:
                apart = abs(row[POSITION + a] - row[POSITION + b])
                meets |= apart <= 1 or apart == stride
    return meets
