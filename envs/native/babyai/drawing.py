"""Rooms, doors and things drawn at random: what Minigrid's `RoomGridLevel` offers to its levels, over rows.

Functions are named after Minigrid's and draw step by step as it does, rejected draws included, from another random
stream: the levels have Minigrid's distribution, not its levels. All of them share

    row     the world that is being drawn, see `layout`
    plan    what is to be drawn, see `plan`
    state   the random generator

A room is a number or ANYWHERE; a thing is its number in the row. Where Minigrid raises to have a level drawn anew,
these mark the plan as REJECTED and go on with whatever there is: only the loop around them looks at the mark.
"""

from __future__ import annotations

from envs.babyai.symbols import COLOURS, DOOR, EMPTY_CODE, OBJECTS, STATES, WALL_CODE
from envs.compiler import compiled
from envs.native.babyai.layout import (
    ANY_COLOUR,
    ANY_NOUN,
    AT,
    CODE,
    COUNT,
    DIRECTION,
    KNOWN,
    MAP,
    NONE,
    NOUNS,
    NOWHERE,
    POSITION,
    STRIDE,
    THING,
    Row,
    ahead,
    cell_at,
    clear,
    describe_code,
)
from envs.native.babyai.plan import (
    CARRIED,
    COLUMNS,
    CORNER,
    DOOR_AT,
    DOWN,
    LEFT,
    LOCKED,
    REJECTED,
    RIGHT,
    ROOM,
    ROOMS,
    ROWS,
    SIZE,
    UP,
    Plan,
    State,
    any_room,
    neighbour,
    room_of,
    wide,
)
from envs.native.random import draw

ANYWHERE = ANY_DOOR = -1
OPENED, CLOSED, LOCKED_DOOR, ANY_STATE = range(4)
BOX, BALL, KEY, A_DOOR = range(4)  # nouns
RED, BLUE, GREY = (COLOURS.index(colour) for colour in ("red", "blue", "grey"))
N_COLOURS = len(COLOURS)

_STATES = len(STATES)
_CODES = N_COLOURS * _STATES  # of one kind of object
_BOX = OBJECTS.index("box")
_TRIES = 1001  # of `place_obj(max_tries=1000)`
_CONNECTIONS = 5001  # of `connect_all(max_itrs=5000)`

assert all(OBJECTS[_BOX - noun] == NOUNS[noun] for noun in range(ANY_NOUN)), "nouns count down where objects count up"


# ---- rooms ----------------------------------------------------------------------------------------------------------


@compiled
def lay_rooms(row: Row, plan: Plan, state: State) -> None:
    """Empty rooms and the places of doors; the agent is in the middle, where Minigrid has it until it is placed."""
    columns, lines, inner = plan[COLUMNS], plan[ROWS], plan[SIZE] - 1
    clear(row, inner * columns + 1)
    stride = wide(row, STRIDE)
    for room in range(columns * lines):
        column, line = room % columns, room // columns
        corner = cell_at(row, column * inner, line * inner)
        for y in range(1, inner):
            for x in range(1, inner):
                row[MAP + corner + y * stride + x] = EMPTY_CODE
        here = ROOMS + ROOM * room
        for door in range(4):
            plan[here + door], plan[here + DOOR_AT + door] = 0, NOWHERE
        plan[here + LOCKED], plan[here + CORNER] = 0, corner
        if column < columns - 1:
            plan[here + DOOR_AT + RIGHT] = corner + inner + stride * (1 + draw(state, inner - 1))
        if line < lines - 1:
            plan[here + DOOR_AT + DOWN] = corner + inner * stride + 1 + draw(state, inner - 1)
        if column > 0:
            plan[here + DOOR_AT + LEFT] = plan[here - ROOM + DOOR_AT + RIGHT]
        if line > 0:
            plan[here + DOOR_AT + UP] = plan[here - ROOM * columns + DOOR_AT + DOWN]
    row[AT] = cell_at(row, columns // 2 * inner + plan[SIZE] // 2, lines // 2 * inner + plan[SIZE] // 2)
    plan[REJECTED], plan[CARRIED] = 0, NONE


@compiled
def add_door(row: Row, plan: Plan, state: State, room: int, door: int, colour: int, door_state: int) -> int:
    """A door between two rooms. Returns its thing.

    Args:
        door: RIGHT, DOWN, LEFT, UP, or ANY_DOOR: one that is not there yet.
        colour: a colour or ANY_COLOUR.
        door_state: CLOSED, LOCKED_DOOR or ANY_STATE, which is one of these.
    """
    here = ROOMS + ROOM * room
    while door == ANY_DOOR:
        drawn = draw(state, 4)
        if plan[here + DOOR_AT + drawn] != NOWHERE and plan[here + drawn] == 0:
            door = drawn
    if colour == ANY_COLOUR:
        colour = draw(state, N_COLOURS)
    if door_state == ANY_STATE:
        door_state = CLOSED + draw(state, 2)
    plan[here + door] = plan[ROOMS + ROOM * neighbour(plan, room, door) + (door + 2) % 4] = 1
    plan[here + LOCKED] = door_state == LOCKED_DOOR  # the room's last door tells, as in Minigrid
    return add_thing(row, code_of_door(colour, door_state), plan[here + DOOR_AT + door])


@compiled
def remove_wall(row: Row, plan: Plan, room: int, wall: int) -> None:
    """Make two rooms one."""
    here, stride, inner = ROOMS + ROOM * room, wide(row, STRIDE), plan[SIZE] - 1
    across, along = (1, stride) if wall % 2 == 0 else (stride, 1)
    start = plan[here + CORNER] + (inner * across if wall < LEFT else 0)
    for i in range(1, inner):
        row[MAP + start + i * along] = EMPTY_CODE
    plan[here + wall] = plan[ROOMS + ROOM * neighbour(plan, room, wall) + (wall + 2) % 4] = 1


@compiled
def connect_all(row: Row, plan: Plan, state: State, except_colour: int) -> None:
    """Doors until every room can be reached from the agent's; none is locked or, but for ANY_COLOUR, of that colour."""
    rooms = plan[COLUMNS] * plan[ROWS]
    reached = 1 << room_of(row, plan, wide(row, AT))  # a bit per room
    for _ in range(_CONNECTIONS):
        grows = True
        while grows:
            grows = False
            for room in range(rooms):
                for door in range(4):
                    if reached >> room & 1 and plan[ROOMS + ROOM * room + door]:
                        bit = 1 << neighbour(plan, room, door)
                        grows |= reached & bit == 0
                        reached |= bit
        if reached == (1 << rooms) - 1:
            return
        room, door = any_room(plan, state), draw(state, 4)
        here = ROOMS + ROOM * room
        if plan[here + DOOR_AT + door] == NOWHERE or plan[here + door]:
            continue
        if plan[here + LOCKED] or plan[ROOMS + ROOM * neighbour(plan, room, door) + LOCKED]:
            continue
        colour = draw(state, N_COLOURS if except_colour == ANY_COLOUR else N_COLOURS - 1)
        add_door(row, plan, state, room, door, colour + (colour >= except_colour), CLOSED)
    plan[REJECTED] = 1


# ---- things ---------------------------------------------------------------------------------------------------------


@compiled
def code_of_thing(noun: int, colour: int) -> int:
    """What a thing looks like that is no door."""
    return ((_BOX - noun) * N_COLOURS + colour) * _STATES


@compiled
def code_of_door(colour: int, door_state: int) -> int:
    """What a door looks like."""
    return (DOOR * N_COLOURS + colour) * _STATES + door_state


@compiled
def noun_of(row: Row, thing: int) -> int:
    """What a thing is."""
    return _BOX - wide(row, CODE + thing) // _CODES


@compiled
def colour_of(row: Row, thing: int) -> int:
    """Its colour."""
    return wide(row, CODE + thing) // _STATES % N_COLOURS


@compiled
def named(row: Row, thing: int) -> int:
    """The description of a thing by noun and colour."""
    return describe_code(noun_of(row, thing), colour_of(row, thing), 0, 0)


@compiled
def is_there(row: Row, code: int) -> bool:
    """Does a thing look like this?"""
    found = False
    for thing in range(row[COUNT]):
        found |= row[CODE + thing] == code
    return found


@compiled
def look_like(row: Row, thing: int, code: int) -> None:
    """Change a thing that is on the map."""
    row[CODE + thing] = code
    row[MAP + row[POSITION + thing]] = code + THING * (thing + 1)


@compiled
def add_thing(row: Row, code: int, at: int) -> int:
    """A new thing, at a position or NOWHERE. Returns its number."""
    thing = wide(row, COUNT)
    row[COUNT] = thing + 1
    row[CODE + thing] = code
    row[POSITION + thing] = row[KNOWN + thing] = at
    if at != NOWHERE:
        row[MAP + at] = code + THING * (thing + 1)
    return thing


@compiled
def free_cell(row: Row, plan: Plan, state: State, room: int) -> int:
    """An empty cell of a room, neither the agent's nor beside it; NOWHERE after a thousand attempts."""
    corner, size = plan[ROOMS + ROOM * room + CORNER], plan[SIZE]
    stride, agent = wide(row, STRIDE), wide(row, AT)
    for _ in range(_TRIES):
        at: int = corner + draw(state, size) + stride * draw(state, size)
        apart = abs(at - agent)
        if row[MAP + at] == EMPTY_CODE and apart > 1 and apart != stride:
            return at
    plan[REJECTED] = 1
    return NOWHERE


@compiled
def place_agent(row: Row, plan: Plan, state: State, room: int) -> int:
    """Put the agent into a room, or ANYWHERE, with at most a wall right before it. Returns the room."""
    if room == ANYWHERE:
        room = any_room(plan, state)
    for _ in range(_TRIES):
        row[AT] = NOWHERE
        at = free_cell(row, plan, state, room)
        row[AT] = max(at, plan[ROOMS + CORNER])  # on the map in any case
        row[DIRECTION] = draw(state, 4)
        faced = row[MAP + ahead(row)]
        if faced in (EMPTY_CODE, WALL_CODE) or at == NOWHERE:
            return room
    plan[REJECTED] = 1  # every free cell has a thing on each side: here Minigrid goes on for ever
    return room


@compiled
def add_object(row: Row, plan: Plan, state: State, room: int, noun: int, colour: int) -> int:
    """A new thing in a room; ANY_NOUN and ANY_COLOUR are drawn. Returns its number."""
    if noun == ANY_NOUN:
        noun = draw(state, A_DOOR)
    if colour == ANY_COLOUR:
        colour = draw(state, N_COLOURS)
    return add_thing(row, code_of_thing(noun, colour), free_cell(row, plan, state, room))


@compiled
def add_distractors(row: Row, plan: Plan, state: State, room: int, number: int, unique: bool) -> int:
    """New things in a room, or ANYWHERE; `unique`: unlike all others. Returns the number of the first."""
    first = wide(row, COUNT)
    added = 0
    while added < number:
        colour, noun = draw(state, N_COLOURS), draw(state, A_DOOR)
        if unique and is_there(row, code_of_thing(noun, colour)):
            continue
        add_object(row, plan, state, any_room(plan, state) if room == ANYWHERE else room, noun, colour)
        added += 1
    return first
