"""What a row means. A world is one row, int16[`row_size(width, height)`]; N worlds are a matrix, and a level is the row
that an episode begins with.

    agent            AT DIRECTION CARRYING
    map, in numbers  STRIDE COUNT LIMIT KIND
    mission          LINK ORDER STRICT, then for each of 4 clauses VERB PREVIOUS DONE, then 8 descriptions
    things           for each of up to 64: CODE POSITION KNOWN MEMBER CONTAINS
    map              (height + 12) x (width + 12) cells, the level inside a margin of walls

The map. A cell is `code + 256 * (thing + 1)`: what it looks like (`envs.babyai.symbols`), and which thing it is, for
everything but empty cells and walls, whose upper part is 0. A position is an index into the flat map, so a step ahead
is one addition: `ahead`. The margin is as wide as an agent sees, so that nothing checks bounds.

Things. Doors, keys, balls, boxes, numbered as they come. POSITION is where a thing is, NOWHERE while it is carried, in
a box, or gone. KNOWN is where the verifier believes it to be, see `motion`. MEMBER has bit d set if the thing is one of
those that description d meant when the episode began. CONTAINS is the thing inside a box, or NONE.

The mission. Clauses 0 and 1 are what the sentence says first ("go to a and open b"), clauses 2 and 3 what it says
second; a clause that is not there has verb NO_VERB. LINK tells which group is to be done first. Clause c is about
descriptions 2c and, for "put next", 2c + 1. A description is `describe_code(noun, colour, place, unique)`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.babyai.symbols import VIEW, WALL_CODE
from envs.compiler import compiled

Row = NDArray[np.int16]  # [K]
Rows = NDArray[np.int16]  # [N, K]
Index = NDArray[np.int64]  # [n], of rows

NONE = NOWHERE = -1

# ---- agent
AT, DIRECTION, CARRYING = 0, 1, 2  # map index; 0 right, 1 down, 2 left, 3 up; thing or NONE
# ---- map, in numbers
STRIDE, COUNT, LIMIT, KIND = 3, 4, 5, 6  # cells per map row; things; the level's own limit of steps; task kind
# ---- mission
LINK, ORDER, STRICT = 7, 8, 9
"""LINK: one of the links below. ORDER: 1 once the group that comes first is done.
STRICT: bit c makes clause c strict (a wrong object ends the episode), bit 4 the order of the groups."""
VERB, PREVIOUS, DONE = 10, 14, 18  # [4] each; PREVIOUS: what was carried when the clause was last looked at
DESCRIPTION = 22  # [8]
# ---- things
THINGS = 64  # most of them in a level
CODE = 32
POSITION, KNOWN, MEMBER, CONTAINS = CODE + THINGS, CODE + 2 * THINGS, CODE + 3 * THINGS, CODE + 4 * THINGS
# ---- map
MAP = CODE + 5 * THINGS

CLAUSES = 4
LONGEST = (1 << 15) - 1  # the highest limit that a row can hold; longer ones are this
ALONE, THEN, AFTER = 0, 1, 2  # links: one group; first, then second; first after second
NO_VERB, GO_TO, PICK_UP, OPEN, PUT_NEXT = 0, 1, 2, 3, 4
STRICT_ORDER = 1 << CLAUSES
THING = 256  # weight of a cell's upper part
MARGIN = VIEW - 1

NOUNS = ("box", "ball", "key", "door", "object")  # as `envs.babyai.missions`; "object": any
ANY_NOUN, ANY_COLOUR, ANY_PLACE = 4, 6, 0
PLACES = ("", "on your left", "on your right", "in front of you", "behind you")


def row_size(width: int, height: int) -> int:
    """Integers of a row for maps of up to width x height."""
    return MAP + (width + 2 * MARGIN) * (height + 2 * MARGIN)


def empty_rows(n: int, width: int, height: int) -> Rows:
    """[n, row_size] worlds of walls alone, without agent, things or mission."""
    if row_size(width, height) > np.iinfo(np.int16).max:
        raise ValueError(f"a map of {width} x {height} cells is too large for the compiled engine")
    rows = np.zeros((n, row_size(width, height)), np.int16)
    for row in rows[:1]:
        clear(row, width)
    rows[1:] = rows[:1]
    return rows


@compiled
def clear(row: Row, width: int) -> None:
    """Make `row` a world of walls alone, of maps `width` wide."""
    row[:MAP] = 0
    row[CARRYING] = NONE
    row[STRIDE] = width + 2 * MARGIN
    row[PREVIOUS : PREVIOUS + CLAUSES] = NONE
    row[POSITION:MEMBER] = NOWHERE
    row[CONTAINS:MAP] = NONE
    row[MAP:] = WALL_CODE


@compiled
def cell_at(row: Row, x: int, y: int) -> int:
    """Map index of (x, y), counted from the level's own corner."""
    position: int = (y + MARGIN) * row[STRIDE] + x + MARGIN
    return position


@compiled
def ahead(row: Row) -> int:
    """Map index of the cell that the agent faces."""
    direction = row[DIRECTION]
    step = 1 if direction % 2 == 0 else row[STRIDE]
    position: int = row[AT] + (step if direction < 2 else -step)
    return position


@compiled
def describe_code(noun: int, colour: int, place: int, unique: int) -> int:
    """A description as a number: noun and place as in NOUNS and PLACES, colour as in symbols or ANY_COLOUR, unique 1
    for "the" and 0 for "a"."""
    return ((place * 7 + colour) * 5 + noun) * 2 + unique


def described(code: int) -> tuple[int, int, int, int]:
    """(noun, colour, place, unique) of a description."""
    rest, unique = divmod(code, 2)
    rest, noun = divmod(rest, len(NOUNS))
    place, colour = divmod(rest, ANY_COLOUR + 1)
    return noun, colour, place, unique
