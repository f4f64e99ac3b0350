"""How players move: they turn full circles, slide along what is in their way, and play alone."""

import math

import numpy as np
import pytest

from envs.native.housekeep import layout, loops
from envs.native.housekeep.layout import CELL, CLIMB, EYE, HEADINGS, RADIUS, STRIDE, TILTS
from envs.native.housekeep.motion import (
    GRAB_RELEASE,
    LOOK_DOWN,
    LOOK_UP,
    MOVE_FORWARD,
    TURN_LEFT,
    TURN_RIGHT,
    solid,
    stands,
)
from envs.native.housekeep.pictures import pictures
from tests.envs.homes import FLAT, HALL, Game, Piece, house

ROOM = ["############", *["#..........#"] * 10, "############"]


def pose(game, i=0):
    return tuple(float(array[i]) for array in game.state[:4])


@pytest.mark.parametrize("turn", [TURN_LEFT, TURN_RIGHT])
def test_18_turns_are_none(turn):
    game = Game(house(*FLAT, start=(1.1, 1.7)), 1, 16, depth=True)
    before, pictures = pose(game), [array.copy() for array in game.pictures]
    headings = []
    for _ in range(HEADINGS):
        headings.append(int(game.state.heading[0]))
        game.step(turn)
    assert pose(game) == before
    assert sorted(headings) == list(range(HEADINGS))
    for array, first in zip(game.pictures, pictures, strict=True):
        np.testing.assert_array_equal(array, first)


def test_tilt_is_clamped():
    game = Game(house(ROOM, [], start=(1, 1)), 1, 8)
    up = [game.step(LOOK_UP) or int(game.state.tilt[0]) for _ in range(5)]
    down = [game.step(LOOK_DOWN) or int(game.state.tilt[0]) for _ in range(8)]
    assert up == [1, 2, 3, 3, 3]
    assert down == [2, 1, 0, -1, -2, -3, -3, -3]
    assert TILTS == 3


@pytest.mark.parametrize("heading", range(HEADINGS))
def test_a_step_is_as_long_as_it_should_be(heading):
    game = Game(house(ROOM, [], start=(1.5, 1.5), heading=heading), 1, 8)
    game.step(MOVE_FORWARD)
    angle = math.tau * heading / HEADINGS
    wanted = 1.5 + STRIDE * math.cos(angle), 1.5 + STRIDE * math.sin(angle)
    assert pose(game)[:2] == pytest.approx(wanted, abs=1e-6)


def test_a_player_slides_along_a_wall():
    game = Game(house(ROOM, [], start=(0.5, 1.6), heading=2), 1, 8)  # 40 degrees towards the wall at y = 2.75
    places = []
    for _ in range(9):
        game.step(MOVE_FORWARD)
        places.append(pose(game)[:2])
    x, y = np.array(places).T
    np.testing.assert_allclose(np.diff(x), STRIDE * math.cos(math.radians(40)), atol=1e-5)
    assert y.max() <= 2.75 - RADIUS
    assert y[-1] == y[-2] > 2.75 - RADIUS - STRIDE
    while True:  # into the corner, where it stays
        before = pose(game)
        game.step(MOVE_FORWARD)
        if pose(game) == before:
            break
    assert 2.75 - RADIUS - STRIDE < before[0] <= 2.75 - RADIUS


def test_a_corner_is_round():
    """A disc passes a corner that a square of its width would touch."""
    game = Game(house(ROOM, [Piece("kitchen", "fridge", (4, 4, 8, 8), 0, 1.8)]), 1, 8)
    near = RADIUS * math.sqrt(0.5)
    assert stands(game.houses, 0, 1 - near - 0.001, 1 - near - 0.001)
    assert not stands(game.houses, 0, 1 - near + 0.001, 1 - near + 0.001)
    assert not stands(game.houses, 0, 1.5, 1 - RADIUS + 0.001)
    assert stands(game.houses, 0, 1.5, 1 - RADIUS - 0.001)


@pytest.mark.parametrize(
    ("bottom", "top", "blocks"),
    [
        (0, CLIMB, False),
        (0, CLIMB + 0.01, True),
        (0, 1.8, True),
        (EYE, 2.0, False),
        (EYE - 0.01, 2.0, True),
        (0.3, 0.4, True),
    ],
)
def test_what_is_in_the_way(bottom, top, blocks):
    pieces = [
        Piece("kitchen", "carpet", (5, 6, 7, 8), 0, 0.01, ("apple",)),
        Piece("kitchen", "table", (5, 6, 7, 8), max(bottom, 0.01), top),
    ]
    game = Game(house(ROOM, pieces, start=(0.75, 1.5)), 1, 8)
    assert solid(game.houses, 0, 5, 6) == blocks
    for _ in range(5):
        game.step(MOVE_FORWARD)
    assert (pose(game)[0] < 1.5 - RADIUS) == blocks


@pytest.mark.parametrize("home", [FLAT, HALL], ids=["flat", "hall"])
def test_nobody_is_ever_in_a_wall(home):
    game = Game(house(*home), 64, 1)
    generator = np.random.default_rng(0)
    game.spread(generator)
    visited = set()
    for _ in range(600):
        game.step(generator.choice(3, 64, p=(0.7, 0.2, 0.1)))
        for x, y in zip(game.state.x.tolist(), game.state.y.tolist(), strict=True):
            cell = int(y / CELL), int(x / CELL)
            assert not solid(game.houses, 0, *cell)
            visited.add(cell)
    free = sum(
        stands(game.houses, 0, (c + 0.5) * CELL, (r + 0.5) * CELL)
        for r in range(len(home[0]))
        for c in range(len(home[0][0]))
    )
    assert len(visited) > 0.9 * free


def test_players_play_alone():
    """A batch is its rows played one at a time, whatever else is in it, and replay is the same as play."""
    houses = house(*FLAT, start=(1.1, 1.7))
    count, steps = 12, 60
    actions = np.random.default_rng(4).choice(6, (count, steps), p=(0.4, 0.15, 0.15, 0.05, 0.15, 0.1))
    lengths = np.arange(count, dtype=np.int32) * 5
    together, again = Game(houses, count, 24, True, True), Game(houses, count, 24, True, True)
    alone = [Game(houses, 1, 24, True, True) for _ in range(count)]
    played = [None] * count
    for t in range(steps):
        for i in np.flatnonzero(lengths == t):
            played[i] = [array[i].copy() for array in (*together.state, *together.pictures)]
        together.step(actions[:, t])
        for i, game in enumerate(alone):
            game.step(actions[i, t])
            for mine, its in zip((*together.state, *together.pictures), (*game.state, *game.pictures), strict=True):
                np.testing.assert_array_equal(mine[i], its[0])
    loops.replay(houses, again.which, again.state, lengths, actions, again.see_through, again.lens, again.pictures)
    for i in range(count):
        for before, now in zip(played[i], (*again.state, *again.pictures), strict=True):
            np.testing.assert_array_equal(before, now[i])


def test_players_may_live_in_different_houses():
    homes = [house(*FLAT, start=(1.1, 1.7)), house(*HALL, start=(1, 1.6), heading=4)]
    both = layout.Houses(*(np.concatenate(arrays) for arrays in zip(*homes, strict=True)))
    which = np.array([1, 0, 1])
    state, shown = layout.players(3), pictures(3, 16)
    games = [Game(homes[p], 1, 16) for p in which]
    lens = games[0].lens
    loops.begin(both, which, state, np.arange(3), lens, shown)
    for action in np.random.default_rng(1).integers(0, 6, 40):
        loops.advance(both, which, state, np.full(3, action), False, lens, shown)
        for i, game in enumerate(games):
            game.step(action)
            for mine, its in zip((*state, *shown), (*game.state, *game.pictures), strict=True):
                if len(mine):
                    np.testing.assert_array_equal(mine[i], its[0])


def test_only_those_who_begin_begin():
    game = Game(house(*FLAT, start=(1.1, 1.7)), 4, 16)
    first = [array.copy() for array in (*game.state, game.pictures.ids)]
    for action in (TURN_LEFT, MOVE_FORWARD, LOOK_DOWN, GRAB_RELEASE):
        game.step(action)
    later = [array.copy() for array in (*game.state, game.pictures.ids)]
    game.begin(np.array([2, 0]))
    for before, after, now in zip(first, later, (*game.state, game.pictures.ids), strict=True):
        np.testing.assert_array_equal(now[[0, 2]], before[[0, 2]])
        np.testing.assert_array_equal(now[[1, 3]], after[[1, 3]])
