"""What a hand grips and releases, and why it fails."""

import math

import numpy as np
import pytest

from envs.housekeep import reference
from envs.native.housekeep import hands
from envs.native.housekeep.layout import CELL, EDGE, NOWHERE, OBJECT, OBJECT_HEIGHT, REACH
from envs.native.housekeep.motion import GRAB_RELEASE, LOOK_UP
from envs.native.housekeep.pictures import sketch
from envs.native.housekeep.sight import aim
from tests.envs.homes import FLAT, HALL, Game, Piece, house

ROOM = ["####################", *["#..................#"] * 8, "####################"]
# The table's one slot is in the row of y = 1.125, where players of these tests stand and look along x.
TABLE = Piece("kitchen", "table", (4, 8, 5, 9), 0, 1.2, ("apple",))
SHELF = Piece("kitchen", "shelf", (3, 11, 6, 13), 0, 2)
Y = 1.125


def game(pieces=(TABLE,), plan=ROOM, size=32, **options):
    return Game(house(plan, pieces), 1, size, **options)


def outcome(played):
    return hands.OUTCOMES[played.state.outcome[0]]


def grip(played, x, tilt=0, heading=0, y=Y):
    played.stand(0, x, y, heading, tilt)
    played.step(GRAB_RELEASE)
    return outcome(played)


def test_an_object_goes_from_piece_to_piece():
    played = game((TABLE, SHELF))
    played.stand(0, 1.5, Y, tilt=-1)
    assert played.state.seen[0] == 1
    played.step(GRAB_RELEASE)
    assert outcome(played) == "picked"
    assert played.state.target[0].tolist() == [0, 1]
    assert played.state.holding[0] == 0
    assert played.state.place[0, 0] == 0
    assert played.state.slot[0, 0] == NOWHERE
    assert (played.state.on[0] == NOWHERE).all()
    assert played.state.seen[0] == 0  # what is held is not seen
    assert played.state.met[0] == 1
    assert OBJECT not in played.pictures.ids
    played.step(LOOK_UP)
    assert outcome(played) == "none"
    assert played.state.target[0].tolist() == [NOWHERE, 0]
    played.step(GRAB_RELEASE)  # over the table
    assert outcome(played) == "dropped"
    assert played.state.target[0].tolist() == [0, 2]
    assert played.state.holding[0] == NOWHERE
    assert played.state.place[0, 0] == 2
    assert played.state.slot[0, 0] == 0
    assert played.state.on[0, 2, 0] == 0


@pytest.mark.parametrize(
    ("wanted", "pieces", "x", "tilt", "change"),
    [
        # (a) nothing is there: a bare wall, a table that is too far along the ray
        ("nothing there", (), 1.5, 0, {}),
        ("nothing there", (SHELF._replace(box=(3, 15, 6, 17)),), 0.7, 0, {}),
        # (b) what is held is there: never in play, as nobody sees what it holds
        ("in hand", (TABLE,), 1.5, -1, {"holding": 0}),
        # (d) an empty hand on a piece
        ("hand empty", (TABLE,), 1.4, -3, {}),
        # (e) a full hand on an object
        ("hand full", (TABLE, SHELF._replace(objects=("vase",))), 1.5, -1, {"holding": 1}),
        # (f) neither the object nor its piece is in the picture
        ("hidden", (TABLE,), 1.5, -1, {"visible": 0, "seen": 0}),
        ("picked", (TABLE,), 1.5, -1, {"visible": 0}),
        ("picked", (TABLE,), 1.5, -1, {"seen": 0}),
        # (g) a full piece
        ("no room", (TABLE, SHELF._replace(objects=("vase",))), 1.4, -3, {"holding": 1}),
        ("dropped", (TABLE._replace(objects=()), SHELF._replace(objects=("vase",))), 1.4, -3, {"holding": 0}),
    ],
)
def test_outcomes(wanted, pieces, x, tilt, change):
    played = game(pieces)
    played.stand(0, x, Y, 0, tilt)
    for name, value in change.items():
        getattr(played.state, name)[0] = value
    before = [array.copy() for array in played.state]
    played.step(GRAB_RELEASE)
    assert outcome(played) == wanted
    if wanted not in ("picked", "dropped"):
        assert played.state.target[0].tolist() == [NOWHERE, 0]
        for name, was, now in zip(played.state._fields, before, played.state, strict=True):
            if name != "outcome":
                np.testing.assert_array_equal(was, now, name)


# A counter of 9 m, of which an object lies in the middle of the near side.
LONG = Piece("kitchen", "counter", (1, 10, 37, 24), 0, 1.2, ("apple",))
LONG_PLAN = ["##########################", *["#........................#"] * 37, "##########################"]


def test_far_is_from_the_nearest_corner_or_middle():
    played = game((LONG._replace(top=2, objects=()),), LONG_PLAN)
    for x, y, near in [(1.5, 2.5, True), (1.5, 4.75, True), (1.2, 4.75, False), (1.5, 3.2, False), (2, 3.2, True)]:
        corner, middle = math.hypot(2.5 - x, 0.25 - y), math.hypot(4.25 - x, 4.75 - y)
        assert (min(corner, middle) <= REACH) == near
        assert grip(played, x, y=y) == ("hand empty" if near else "far")


def test_far_is_from_an_object_or_its_piece():
    """An object may be near and its piece far; the object in hand is then too far from that piece."""
    houses = house(LONG_PLAN, (LONG,))
    r, c = 18, 10
    houses.slot[0][houses.slot[0] == 0] = NOWHERE
    houses.slots[0, 1, 0], houses.slot[0, r, c, 0] = r * EDGE + c, 0
    played, y = Game(houses, 1, 32), (r + 0.5) * CELL
    assert grip(played, 1.0, -1, y=y) == "picked"
    assert grip(played, 1.0, -1, y=y) == "far"


@pytest.mark.parametrize("tilt", [-2, -1, 0, 1])
def test_reach_counts_from_the_eye(tilt):
    """3 m along the ray: less of the plan when it climbs or sinks."""
    played = game((Piece("kitchen", "shelf", (4, 17, 5, 19), 0, 2.4),))
    reach = REACH * math.cos(math.radians(10 * tilt))
    assert grip(played, 17 * CELL - reach - 0.01, tilt) == "nothing there"
    assert grip(played, 17 * CELL - reach + 0.01, tilt) == "hand empty"


def test_walls_end_the_aim():
    """The hand reaches through them where it is told to, but not for what is not in the picture."""
    walled = ["####################", *["#.....#............#"] * 8, "####################"]
    for plan, see_through, wanted in [
        (ROOM, False, "picked"),
        (ROOM, True, "picked"),
        (walled, False, "nothing there"),
        (walled, True, "hidden"),
    ]:
        assert grip(game(plan=plan, see_through=see_through), 1.2, -1) == wanted


@pytest.mark.parametrize("home", [FLAT, HALL], ids=["flat", "hall"])
def test_the_hand_points_at_the_middle_of_the_picture(home):
    """That of an odd number of pixels has its middle in one, of which the ray is the hand's."""
    played = Game(house(*home), 400, 9)
    played.spread(np.random.default_rng(7))
    found = set()
    for i in range(400):
        sight = reference.sight(played.houses, 0, played.state, i, 9)
        far = sight.depth[4, 4] / math.cos(math.radians(10 * played.state.tilt[i]))
        aimed = aim(played.houses, 0, played.state, i, False, sketch(9))
        assert aimed == (sight.ids[4, 4] if far <= REACH else 0)
        found.add(aimed)
    assert len(found) > 3


def test_a_ray_that_passes_walls_ends_at_the_rim():
    played = game((), see_through=True)
    for heading in range(18):
        assert grip(played, 0.6, heading=heading) == "nothing there"


def test_the_nearest_instance_counts():
    played = game((TABLE, SHELF))
    assert grip(played, 1.5, tilt=0) == "hand empty"  # over the apple, onto the shelf
    assert played.state.visible[0, 0] == 0b110
    shelf = played.houses.top[0, 2]
    played.houses.top[0, 2] = 0.3
    assert grip(played, 1.5, tilt=0) == "nothing there"
    played.houses.top[0, 2] = shelf
    assert grip(played, 1.5, tilt=-1) == "picked"  # in front of the shelf


def test_a_piece_takes_as_many_as_it_has_slots():
    """Slots are filled from the first free one on, and one that was emptied is filled again."""
    names = ("apple", "vase", "lamp", "book")
    pieces = Piece("kitchen", "table", (4, 11, 7, 13), 0, 1.0), SHELF._replace(box=(1, 1, 4, 4), objects=names)
    played = game(pieces)
    assert played.houses.capacity[0, 1:3].tolist() == [3, 5]
    state, slots = played.state, []
    for k, wanted in enumerate(["dropped", "dropped", "dropped", "no room"]):
        state.on[0, 2, state.slot[0, k]], state.place[0, k], state.holding[0] = NOWHERE, 0, k
        played.stand(0, 2.1, 1.55, 0, -3)  # over the edge of the table, in front of its slots
        played.step(GRAB_RELEASE)
        assert outcome(played) == wanted
        slots.append(int(state.slot[0, k]))
    assert slots[:3] == [0, 1, 2]
    assert state.holding[0] == 3
    assert state.on[0, 1].tolist() == [0, 1, 2, *[NOWHERE] * 3]
    state.on[0, 1, 1], state.place[0, 1] = NOWHERE, 0
    played.step(GRAB_RELEASE)
    assert state.on[0, 1].tolist() == [0, 3, 2, *[NOWHERE] * 3]


def test_an_object_is_no_higher_than_what_hangs_over_it():
    low = Piece("kitchen", "top cabinet", (4, 8, 5, 9), 1.3, 2.2)
    for pieces, height in (((TABLE,), OBJECT_HEIGHT), ((TABLE, low), 0.1)):
        played = game(pieces, size=64)
        played.stand(0, 1.0, Y)
        rows = np.flatnonzero((played.pictures.ids[0] == OBJECT).any(1))
        assert len(rows) * 2 / 64 * (8.25 * 0.25 + 0.05 - 1.0) == pytest.approx(height, abs=0.05)


def test_other_actions_leave_the_hand_alone():
    played = game()
    for action in range(5):
        played.stand(0, 1.5, Y, 0, -1)
        played.step(action)
        assert outcome(played) == "none"
        assert played.state.holding[0] == NOWHERE
