"""Small houses for players to be tested in, drawn by hand."""

from typing import NamedTuple

import numpy as np

from envs.housekeep.names import OBJECTS as THINGS
from envs.housekeep.names import number
from envs.native.housekeep import layout, loops, sight
from envs.native.housekeep.layout import CELL, EDGE, HEADINGS, NOWHERE, OBJECTS, SLOTS, TILTS
from envs.native.housekeep.lens import lens
from envs.native.housekeep.motion import stands
from envs.native.housekeep.pictures import pictures, sketch


class Piece(NamedTuple):
    """Of furniture: its first row and column and those after its last, its heights, and the objects on it."""

    room: str
    kind: str
    box: tuple[int, int, int, int]
    bottom: float
    top: float
    objects: tuple[str, ...] = ()


FLAT = (
    (
        "####################",
        "#.........#........#",
        "#.........#........#",
        "#..................#",
        "#..................#",
        "#.........#........#",
        "#.........#........#",
        "######..########.###",
        "#..........#.......#",
        "#..........#.......#",
        "#..................#",
        "#..................#",
        "#..........#.......#",
        "####################",
    ),
    (
        Piece("kitchen", "fridge", (1, 1, 4, 4), 0, 1.8, ("apple",)),
        Piece("kitchen", "table", (4, 5, 6, 8), 0, 0.7, ("lamp", "vase")),
        Piece("kitchen", "counter", (1, 11, 3, 15), 0, 0.9, ("mug",)),
        Piece("kitchen", "top cabinet", (1, 11, 3, 15), 1.0, 1.5),
        Piece("kitchen", "microwave", (1, 11, 2, 12), 1.6, 1.9, ("book",)),
        Piece("", "window", (3, 18, 5, 19), 0.8, 2.0),
        Piece("bedroom", "carpet", (9, 3, 12, 7), 0, 0.02, ("shoe",)),
        Piece("bedroom", "bed", (8, 1, 12, 3), 0, 0.5, ("pillow", "hat")),
        Piece("living room", "shelf", (11, 13, 13, 16), 0, 1.5, ("clock",)),
        Piece("living room", "stool", (8, 18, 9, 19), 0, 0.4),
    ),
)
"""Four rooms: stacked furniture, tops as high as the eye, a carpet to stand on, and 9 objects."""
HALL = (
    (
        "################",
        "#..............#",
        "#..............#",
        "#...#..........#",
        "#...#......##..#",
        "#..........#...#",
        "#..............#",
        "#..............#",
        "################",
    ),
    (
        Piece("corridor", "table", (4, 6, 7, 9), 0, 0.75, ("knife", "fork", "spoon")),
        Piece("corridor", "shelf", (1, 1, 3, 2), 1.5, 2.2, ("umbrella",)),
        Piece("corridor", "chest", (1, 13, 3, 15), 0, 0.1, ("tablet",)),
        Piece("corridor", "chair", (7, 12, 8, 13), 0, 0.45),
    ),
)
"""One room, with a shelf to walk under and a chest to step over."""


def house(plan, pieces, start=(1.0, 1.0), heading=0):
    """One house, from rows of text that go along y, and pieces of which those over one another are sorted."""
    houses = layout.houses(1)
    houses.size[0] = len(plan), len(plan[0])
    houses.room[0, : len(plan), : len(plan[0])] = [[cell != "#" for cell in row] for row in plan]
    houses.slot[0] = NOWHERE
    houses.pieces[0] = len(pieces)
    objects = [(name, n) for n, piece in enumerate(pieces, 1) for name in piece.objects]
    houses.objects[0] = len(objects)
    assert len(objects) <= OBJECTS
    for k, (name, n) in enumerate(objects):
        houses.object[0, k], houses.lies[0, k] = THINGS.index(name), n
    for n, piece in enumerate(pieces, 1):
        r0, c0, r1, c1 = houses.box[0, n] = piece.box
        houses.name[0, n] = number(piece.room, piece.kind)
        houses.bottom[0, n], houses.top[0, n] = piece.bottom, piece.top
        cells = [(r, c) for r in range(r0, r1) for c in range(c0, c1)]
        houses.capacity[0, n] = np.clip(int(len(cells) * CELL**2 / 0.1), 1, SLOTS)
        cells.sort(key=lambda cell: (7 * cell[0] + 3 * cell[1]) % 5)  # not in a row
        for s, (r, c) in enumerate(cells[: houses.capacity[0, n]]):
            houses.slots[0, n, s] = r * EDGE + c
        for r, c in cells:
            assert houses.room[0, r, c], f"{piece} is in a wall"
            layer = np.count_nonzero(houses.stacked[0, r, c])
            houses.stacked[0, r, c, layer] = n
            if r * EDGE + c in houses.slots[0, n, : houses.capacity[0, n]]:
                houses.slot[0, r, c, layer] = houses.slots[0, n].tolist().index(r * EDGE + c)
    houses.start[0], houses.heading[0] = start, heading
    return houses


def mirrored(houses):
    """The first house with rows in the opposite order."""
    rows = int(houses.size[0, 0])
    other = layout.houses(1)
    for mine, its in zip(houses, other, strict=True):
        its[:] = mine[:1]
    for grid in (other.room, other.stacked, other.slot):
        grid[0, :rows] = grid[0, :rows][::-1].copy()
    other.box[0, :, [0, 2]] = rows - houses.box[0][:, [2, 0]].T
    r, c = np.divmod(houses.slots[0], EDGE)
    other.slots[0] = np.where(houses.slots[0] > 0, (rows - 1 - r) * EDGE + c, 0)
    other.start[0, 1] = rows * CELL - houses.start[0, 1]
    other.heading[0] = -houses.heading[0] % HEADINGS
    return other


class Game:
    """Players in one house, with the pictures that they see."""

    def __init__(self, houses, count=1, size=16, depth=False, rgb=False, see_through=False):
        self.houses, self.which, self.see_through = houses, np.zeros(count, np.int64), see_through
        self.state, self.lens = layout.players(count), lens(size)
        self.pictures = pictures(count, size, depth, rgb)
        self.begin(np.arange(count))

    def begin(self, index):
        loops.begin(self.houses, self.which, self.state, index, self.lens, self.pictures)

    def step(self, actions):
        """One action for all, or one for each."""
        actions = np.broadcast_to(actions, len(self.which)).astype(np.int64)
        index = np.arange(len(actions))
        loops.advance(self.houses, self.which, self.state, index, actions, self.see_through, self.lens, self.pictures)

    def stand(self, i, x, y, heading=0, tilt=0):
        """Put player i somewhere and let it look."""
        self.state.x[i], self.state.y[i], self.state.heading[i], self.state.tilt[i] = x, y, heading, tilt
        self.look(i)

    def look(self, i):
        sight.look(self.houses, 0, self.state, i, self.lens, sketch(len(self.lens.slope[0])), self.pictures)

    def spread(self, generator, grain=None):
        """Put all players at random free places, of which coordinates are multiples of a grain, and let them look."""
        rows, columns = self.houses.size[0] * CELL
        for i in range(len(self.which)):
            while True:
                x, y = generator.uniform(0, columns), generator.uniform(0, rows)
                x, y = (np.float32(round(z / grain) * grain if grain else z) for z in (x, y))
                if stands(self.houses, 0, float(x), float(y)):
                    break
            self.stand(i, x, y, generator.integers(HEADINGS), generator.integers(-TILTS, TILTS + 1))
