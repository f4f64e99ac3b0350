"""The home of the four tasks: five rooms with 52 pieces of furniture, and what lies where it should not.

The number of pieces and their names are those of a home that was published (Kant et al. 2022); the plan, and which
objects lie where at first, are our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envs.housekeep.names import KINDS, NAMES, OBJECTS, number

if TYPE_CHECKING:
    from envs.native.housekeep.layout import Houses

PLAN = tuple(
    """
    ###########################
    #aaaaaaaaaa#yyyyy#kkkkkkkk#
    #aaaaaaaaaa#yyyyy#kkkkkkkk#
    #aaaaaaaaaayyyyyy#kkkkkkkk#
    #aaaaaaaaaayyyyyy#kkkkkkkk#
    #aaaaaaaaaayyyyyy#kkkkkkkk#
    #aaaaaaaaaa#yyyyy#kkkkkkkk#
    #aaaaaaaaaa#yyyyy#kkkkkkkk#
    #aaaaaaaaaa#yyyyyykkkkkkkk#
    ############yyyyyykkkkkkkk#
    #bbbbbbbbbb#yyyyyykkkkkkkk#
    #bbbbbbbbbb#yyyyy#kkkkkkkk#
    #bbbbbbbbbb#yyyyy#kkkkkkkk#
    #bbbbbbbbbb#yyyyy#kkkkkkkk#
    #bbbbbbbbbbyyyyyy####lll###
    #bbbbbbbbbbyyyyyy#llllllll#
    #bbbbbbbbbbyyyyyy#llllllll#
    #bbbbbbbbbb#yyyyy#llllllll#
    #bbbbbbbbbb#yyyyy#llllllll#
    #############lll##llllllll#
    #lllllllllllllllllllllllll#
    #lllllllllllllllllllllllll#
    #lllllllllllllllllllllllll#
    #lllllllllllllllllllllllll#
    #lllllllllllllllllllllllll#
    #lllllllllllllllllllllllll#
    #lllllllllllllllllllllllll#
    #lllllllllllllllllllllllll#
    #lllllllllllllllllllllllll#
    #lllllllllllllllllllllllll#
    #lllllllllllllllllllllllll#
    ###########################
""".split()  # noqa: SIM905
)
"""Cells of 0.25 m: walls; bathroom a, lobby y, kitchen k, bedroom b and living room l."""

_ROOMS = "aykbl"

_FURNITURE = {  # first row, first column, rows, columns: kind
    "bathroom": """
        1 1 3 3 shower, 1 6 2 2 sink, 1 6 1 2 mirror, 6 4 3 2 toilet, 3 5 3 4 carpet, 5 1 2 1 towel rack,
        8 8 1 2 towel rack
    """,
    "lobby": "2 15 3 2 bottom cabinet",
    "kitchen": """
        1 18 2 3 bottom cabinet, 1 21 2 2 sink, 1 23 2 3 bottom cabinet, 3 24 2 2 dishwasher, 5 24 2 2 oven,
        11 18 3 3 fridge, 3 18 1 1 trash can, 7 25 2 1 microwave, 1 18 1 3 top cabinet, 1 21 1 2 top cabinet,
        1 23 1 3 top cabinet, 4 25 3 1 top cabinet, 10 25 3 1 top cabinet
    """,
    "bedroom": "10 1 7 7 bed, 17 1 2 3 bottom cabinet",
    "living room": """
        20 1 3 3 shelf, 20 4 1 5 standing tv, 20 9 1 1 loudspeaker, 20 10 1 2 picture, 22 4 5 5 carpet,
        24 4 2 4 coffee table, 23 10 2 2 stool, 28 2 3 8 sofa, 30 1 1 1 floor lamp, 28 10 3 3 shelf,
        29 14 2 3 bottom cabinet, 29 18 2 3 bottom cabinet, 28 23 3 3 shelf, 22 21 5 3 table, 22 19 2 2 chair,
        25 19 2 2 chair, 22 24 2 2 chair, 25 24 2 2 chair, 20 24 2 2 chair, 15 24 5 2 table, 17 22 2 2 office chair
    """,
    "": """
        7 24 6 2 counter, 1 12 1 3 door, 12 16 2 1 picture, 10 9 1 2 picture, 4 1 4 1 window, 12 1 4 1 window,
        30 4 1 4 window, 30 14 1 4 window
    """,
}

TASKS = {
    "Task1": {
        "peppermint": "bathroom toilet",
        "lamp": "kitchen sink",
        "lantern": "kitchen dishwasher",
        "herring fillets": "living room sofa",
        "vase": "bathroom sink",
    },
    "Task2": {
        "lamp": "bathroom sink",
        "sparkling water": "bedroom bed",
        "plant": "kitchen oven",
        "candle holder": "living room office chair",
        "mustard bottle": "living room loudspeaker",
    },
    "Task3": {
        "pepsi can pack": "bathroom toilet",
        "electric heater": "kitchen sink",
        "helmet": "kitchen oven",
        "golf ball": "kitchen microwave",
        "fruit snack": "bedroom bed",
    },
    "Task4": {
        "chocolate": "bathroom sink",
        "ramekin": "living room sofa",
        "pan": "bedroom bed",
        "shredder": "kitchen sink",
        "knife": "living room stool",
    },
}
"""Objects of each task, and the name of the piece that each lies on at first."""
_START = (3.5, 3.0, 4)  # x and y in metres, heading: in the lobby, away from the door


def furniture() -> list[tuple[str, str, tuple[int, int, int, int]]]:
    """Of each piece its room, kind, and first row, first column, rows and columns."""
    found = []
    for room, lines in _FURNITURE.items():
        for line in " ".join(lines.split()).split(", "):
            row, column, rows, columns, kind = line.split(maxsplit=4)
            found.append((room, kind, (int(row), int(column), int(rows), int(columns))))
    return found


def places() -> list[str]:
    """Names of its pieces, each once, in alphabetical order."""
    return sorted({f"{room} {kind}".strip() for room, kind, _ in furniture()})


def build(houses: Houses, p: int, task: str) -> None:
    """Write the home with the objects of a task into row p of `houses`.

    Raises:
        KeyError: there is no such task.
    """
    from envs.native.housekeep.furniture import HEIGHTS  # here, because it brings the compiler along
    from envs.native.housekeep.houses import lay

    houses.size[p] = len(PLAN), len(PLAN[0])
    houses.room[p] = 0
    for r, line in enumerate(PLAN):
        houses.room[p, r, : len(line)] = [_ROOMS.find(letter) + 1 for letter in line]
    pieces = furniture()
    for n, (room, kind, (row, column, rows, columns)) in enumerate(pieces, 1):
        houses.name[p, n] = number(room, kind)
        houses.box[p, n] = row, column, row + rows, column + columns
        houses.bottom[p, n], houses.top[p, n] = HEIGHTS[KINDS.index(kind)]
    houses.pieces[p] = len(pieces)
    lay(houses, p)
    names = [""] + [NAMES[name] for name in houses.name[p, 1 : len(pieces) + 1].tolist()]
    houses.object[p], houses.lies[p], houses.objects[p] = 0, 0, len(TASKS[task])
    for k, (kind, place) in enumerate(TASKS[task].items()):
        houses.object[p, k], houses.lies[p, k] = OBJECTS.index(kind), names.index(place)
    houses.start[p], houses.heading[p] = _START[:2], _START[2]
