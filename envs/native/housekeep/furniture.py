"""What houses are furnished with: how large each piece is, where it stands, and what is in a room of each kind.

Sizes are whole cells of 0.25 m. Pieces that hang may hang low only where something stands under them: a player is
1.5 m high. Arrays at the end are these tables as compiled code reads them.
"""

from __future__ import annotations

import numpy as np

from envs.housekeep.names import KINDS, PLACES, ROOMS, number
from envs.native.housekeep.layout import CELL

WALL, FACADE, FLOOR, BESIDE, ON, FLAT = range(6)
"""Where a piece stands or hangs: with its back to a wall, or to an outer wall; free in the room; at a table; on top of
another piece, which gives its bottom; on the floor under everything else."""

_SIZES = {  # metres: along the wall, away from it, bottom, top
    WALL: """
        basket 0.5 0.5 0 0.4, bathtub 1.5 0.75 0 0.6, bed 1.75 1.75 0 0.5, bottom cabinet 0.75 0.5 0 0.9,
        bottom cabinet no top 0.75 0.5 0 0.85, chest 1 0.5 0 0.5, console table 1 0.5 0 0.8, counter 1.5 0.5 0 0.9,
        dishwasher 0.5 0.5 0 0.85, dryer 0.75 0.75 0 0.85, fridge 0.75 0.75 0 1.8, floor lamp 0.25 0.25 0 1.6,
        grandfather clock 0.5 0.25 0 2, guitar 0.25 0.25 0 1, heater 0.75 0.25 0 0.6, loudspeaker 0.25 0.25 0 1,
        mirror 0.5 0.25 1.3 1.9, oven 0.5 0.5 0 0.9, piano 1.5 0.5 0 1.1, picture 0.5 0.25 1.5 2,
        plant 0.25 0.25 0 0.9, range hood 0.5 0.25 1.5 1.9, shelf 0.75 0.75 0 1.4, shower 0.75 0.75 0 2,
        sink 0.5 0.5 0 0.85, sofa 2 0.75 0 0.6, speaker system 0.5 0.25 0 0.8, standing tv 1.25 0.25 0 1.1,
        stove 0.5 0.5 0 0.9, toilet 0.5 0.75 0 0.8, top cabinet 0.75 0.25 1.4 1.9, towel rack 0.5 0.25 1.2 1.5,
        trash can 0.25 0.25 0 0.6, wall mounted tv 1.25 0.25 1.5 2.1, washer 0.75 0.75 0 0.85
    """,
    FACADE: "door 0.75 0.25 0 2, window 1 0.25 1.5 2.2",
    FLOOR: "coffee table 1 0.5 0 0.45, sofa chair 0.75 0.75 0 0.7, table 1.25 0.75 0 0.75, treadmill 0.75 1.75 0 1.1",
    BESIDE: "chair 0.5 0.5 0 0.9, office chair 0.5 0.5 0 0.9, stool 0.5 0.5 0 0.6",
    ON: """
        coffee machine 0.25 0.25 0.9 1.2, cooktop 0.5 0.5 0.9 0.95, cushion 0.25 0.25 0.6 0.75,
        microwave 0.5 0.25 0.9 1.2, monitor 0.5 0.25 0.75 1.15
    """,
    FLAT: "carpet 1.5 1 0 0.02",
}

_RECIPES = {  # at least and at most how many; what comes first finds room first
    "bathroom": """
        1 1 sink, 1 1 toilet, 1 1 shower, 0 1 bathtub, 1 1 mirror, 1 2 towel rack, 0 1 bottom cabinet, 0 1 carpet,
        0 1 top cabinet, 0 1 trash can, 0 1 shelf, 0 1 heater
    """,
    "bedroom": """
        1 1 bed, 1 2 bottom cabinet, 0 1 console table, 0 1 chest, 0 1 shelf, 1 1 carpet, 0 1 table, 0 1 office chair,
        0 1 sofa chair, 1 1 floor lamp, 0 2 cushion, 1 2 picture, 0 1 mirror, 0 1 basket, 0 1 heater, 0 1 plant
    """,
    "childs room": """
        1 1 bed, 1 1 bottom cabinet, 1 1 shelf, 0 1 table, 0 1 chair, 0 1 stool, 0 1 chest, 0 1 carpet, 0 1 picture,
        0 1 guitar
    """,
    "closet": "1 3 bottom cabinet, 1 2 shelf, 0 1 mirror",
    "corridor": "1 1 console table, 0 1 chest, 0 1 shelf, 0 1 carpet, 0 1 chair, 0 2 picture, 0 1 plant",
    "dining room": """
        1 1 table, 2 4 chair, 0 1 bottom cabinet, 0 1 console table, 0 1 counter, 0 1 carpet, 0 2 picture,
        0 1 grandfather clock, 0 1 plant
    """,
    "exercise room": "1 2 treadmill, 0 1 mirror, 0 1 wall mounted tv, 0 1 bottom cabinet no top, 0 1 plant",
    "garage": "1 2 bottom cabinet, 1 3 shelf, 0 1 trash can",
    "home office": """
        1 1 table, 1 1 office chair, 1 2 shelf, 0 1 bottom cabinet, 0 1 monitor, 0 1 top cabinet, 0 1 carpet,
        0 1 picture, 0 1 floor lamp
    """,
    "kitchen": """
        1 1 fridge, 1 1 oven, 1 1 sink, 1 3 bottom cabinet, 1 1 counter, 2 4 top cabinet, 1 1 microwave, 0 1 dishwasher,
        0 1 stove, 0 1 cooktop, 0 1 coffee machine, 1 1 table, 1 3 chair, 0 1 range hood, 1 1 trash can, 0 1 shelf,
        0 1 carpet
    """,
    "living room": """
        1 1 sofa, 1 1 coffee table, 1 1 standing tv, 1 2 shelf, 1 2 bottom cabinet, 0 2 sofa chair, 1 1 table,
        1 3 chair, 0 1 stool, 1 1 carpet, 1 1 floor lamp, 0 1 loudspeaker, 0 1 speaker system, 1 2 picture,
        0 2 cushion, 0 1 console table, 0 1 plant
    """,
    "lobby": "1 1 bottom cabinet, 0 1 carpet, 0 1 chair, 0 1 stool, 0 1 mirror, 0 1 sofa chair, 0 1 picture, 0 1 plant",
    "pantry room": "1 1 counter, 1 3 top cabinet, 0 1 fridge",
    "playroom": "1 1 shelf, 1 1 carpet, 0 1 table, 0 2 chair, 0 1 bottom cabinet, 0 1 piano, 0 1 guitar, 0 1 picture",
    "storage room": "1 3 shelf, 0 1 counter, 0 1 washer, 0 1 dryer, 0 1 sink",
    "television room": """
        1 1 sofa, 1 1 standing tv, 0 1 coffee table, 0 1 sofa chair, 0 1 shelf, 0 1 bottom cabinet, 0 1 loudspeaker,
        0 1 floor lamp, 0 2 cushion, 0 1 picture
    """,
    "utility room": "1 1 washer, 0 1 dryer, 0 1 sink, 0 1 bottom cabinet, 0 1 top cabinet, 0 1 carpet",
}

_PLAUSIBLE = {  # square metres it would like, how likely it is beyond the first rooms
    "living room": (24, 0),
    "kitchen": (18, 0),
    "bedroom": (17, 2),
    "bathroom": (8, 1),
    "childs room": (14, 2),
    "closet": (4, 1),
    "corridor": (6, 2),
    "dining room": (16, 3),
    "exercise room": (13, 1),
    "garage": (15, 1),
    "home office": (12, 3),
    "lobby": (7, 2),
    "pantry room": (5, 1),
    "playroom": (13, 1),
    "storage room": (6, 1),
    "television room": (15, 1),
    "utility room": (7, 1),
}

FIRST_ROOMS = np.array([ROOMS.index(name) for name in ("kitchen", "bathroom", "living room", "bedroom")])
"""What every house has, as far as it has so many rooms."""
TWICE = np.array([name in ("bathroom", "bedroom") for name in ROOMS])
"""Which rooms a house may have two of."""
WISH, LIKELY = (np.array([0, *(_PLAUSIBLE[name][i] for name in ROOMS[1:])]) for i in range(2))
"""[rooms] of `_PLAUSIBLE`."""
DOOR, WINDOW = (KINDS.index(name) for name in ("door", "window"))
TABLES = np.array([name in ("table", "coffee table", "counter") for name in KINDS])
"""[kinds] which pieces chairs stand at."""

WHERE = np.zeros(len(KINDS), np.int64)
CELLS = np.zeros((len(KINDS), 2), np.int64)
"""[kinds, 2] along the wall, away from it."""
HEIGHTS = np.zeros((len(KINDS), 2), np.float32)
"""[kinds, 2] bottom and top, metres."""
for _where, _text in _SIZES.items():
    for _line in " ".join(_text.split()).split(", "):
        *_words, _width, _depth, _bottom, _top = _line.split()
        _kind = KINDS.index(" ".join(_words))
        WHERE[_kind], CELLS[_kind] = _where, (round(float(_width) / CELL), round(float(_depth) / CELL))
        HEIGHTS[_kind] = float(_bottom), float(_top)

RECIPE = np.array(
    [
        (ROOMS.index(room), int(line.split()[0]), int(line.split()[1]), KINDS.index(line.split(maxsplit=2)[2]))
        for room, text in _RECIPES.items()
        for line in " ".join(text.split()).split(", ")
    ]
)
"""[lines, 4] room, least, most, kind."""
ASKED = np.zeros(len(ROOMS) * len(KINDS), np.bool_)
"""[names] which names people were asked about: objects start on no others."""
ASKED[[number(*place) for place in PLACES]] = True
