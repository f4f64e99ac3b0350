"""What players see equals what a plain program finds pixel by pixel."""

import numpy as np
import pytest

from envs.housekeep import reference
from envs.native.housekeep import hands, layout, lens
from envs.native.housekeep.layout import CELL, EYE, OBJECT
from tests.envs.homes import FLAT, HALL, Game, Piece, house, mirrored

ROOM = ["##########", *["#........#"] * 8, "##########"]


def visible(state, i):
    """Instances that the bits of player i name."""
    words = [*state.visible[i].tolist(), int(state.seen[i])]
    return {64 * word + bit for word, bits in enumerate(words) for bit in range(64) if bits >> bit & 1}


@pytest.mark.parametrize("home", [FLAT, HALL], ids=["flat", "hall"])
@pytest.mark.parametrize(("size", "poses"), [(32, 200), (64, 8), (17, 40), (72, 3)])
def test_a_picture_is_what_the_reference_sees(home, size, poses):
    game = Game(house(*home), poses, size, depth=True, rgb=True)
    game.spread(np.random.default_rng(size))
    kinds = set()
    for i in range(poses):
        wanted = reference.sight(game.houses, 0, game.state, i, size)
        np.testing.assert_array_equal(game.pictures.ids[i], wanted.ids)
        np.testing.assert_allclose(game.pictures.depth[i], wanted.depth, rtol=1e-5)
        unlike = (game.pictures.rgb[i] != wanted.rgb).any(-1)
        # A depth at the very edge between two shades may be rounded to either.
        assert (np.abs(wanted.depth[unlike] * lens.PER_METRE % 1 - 0.5) > 0.499999).all()
        assert visible(game.state, i) == set(np.unique(wanted.ids).tolist()) - {0}
        kinds |= visible(game.state, i)
    if size == 32:
        assert len(kinds) > 0.7 * (game.houses.pieces[0] + game.houses.objects[0])


def test_objects_are_seen_wherever_they_lie():
    game = Game(house(*FLAT), 100, 24)
    generator = np.random.default_rng(5)
    game.spread(generator)
    state, pieces, objects = game.state, int(game.houses.pieces[0]), int(game.houses.objects[0])
    shown = set()
    for i in range(100):
        for k in generator.permutation(objects)[:6]:
            state.on[i, state.place[i, k], state.slot[i, k]] = layout.NOWHERE
            while not hands.put(game.houses, 0, state, i, int(k), int(generator.integers(1, pieces + 1))):
                pass
        k = int(generator.integers(objects))
        state.on[i, state.place[i, k], state.slot[i, k]] = layout.NOWHERE
        state.place[i, k], state.slot[i, k], state.holding[i] = 0, layout.NOWHERE, k
        game.look(i)
        wanted = reference.sight(game.houses, 0, state, i, 24)
        np.testing.assert_array_equal(game.pictures.ids[i], wanted.ids)
        assert OBJECT + k not in wanted.ids
        shown |= {(instance, state.place[i, instance - OBJECT]) for instance in visible(state, i) if instance >= OBJECT}
    assert len(shown) > 30  # objects on pieces


@pytest.mark.parametrize("home", [FLAT, HALL], ids=["flat", "hall"])
def test_a_mirrored_house_is_seen_mirrored(home):
    houses = house(*home)
    game, other = Game(houses, 60, 32), Game(mirrored(houses), 60, 32)
    game.spread(np.random.default_rng(1), grain=1 / 1024)
    height = houses.size[0, 0] * CELL
    for i in range(60):
        state = game.state
        other.stand(i, state.x[i], height - state.y[i], -state.heading[i] % layout.HEADINGS, state.tilt[i])
    np.testing.assert_array_equal(other.pictures.ids, game.pictures.ids[:, :, ::-1])
    assert len(np.unique(game.pictures.ids)) > 8
    np.testing.assert_array_equal(other.state.visible, game.state.visible)


def test_silhouettes_are_the_same_in_colours():
    """Where two instances of different colours meet, so do two colours; where nothing ends, depth alone shades."""
    game = Game(house(*FLAT), 40, 64, depth=True, rgb=True)
    game.spread(np.random.default_rng(2))
    name, kind = game.houses.name[0] % lens.KINDS, game.houses.object[0] + lens.KINDS
    for ids, depth, rgb in zip(*game.pictures, strict=True):
        shade = np.minimum(depth * lens.PER_METRE, lens.SHADES - 1).astype(int)
        for instance in np.unique(ids):
            if instance:
                colour = name[instance] if instance < OBJECT else kind[instance - OBJECT]
                here = ids == instance
                np.testing.assert_array_equal(rgb[here], lens.palette()[colour][shade[here]])
        backdrops = lens.palette()[[lens.FLOOR, lens.WALL, lens.ABOVE]][:, shade[ids == 0]]
        assert (rgb[ids == 0] == backdrops).all(-1).any(0).all()


def test_no_two_kinds_look_the_same():
    nearest = lens.palette()[:, 0]
    assert len(np.unique(nearest, axis=0)) == len(nearest) == lens.ABOVE + 1
    assert (np.diff(lens.palette().astype(int), axis=1) <= 0).all()


def test_what_is_straight_ahead():
    """A wall at 1.5 m: floor below, ceiling above, and the wall between where geometry says."""
    game = Game(house(ROOM, []), 1, 64, depth=True, rgb=True)
    game.stand(0, 0.75, 1.25, heading=0)
    ahead = game.pictures.depth[0, :, 31]
    assert ahead[31] == ahead[32] == 1.5
    slope = (63 - 2 * np.arange(64)) / 64
    floor, ceiling = slope * 1.5 < -EYE, slope * 1.5 > lens.CEILING - EYE
    np.testing.assert_allclose(ahead[floor], -EYE / slope[floor], rtol=1e-6)
    np.testing.assert_allclose(ahead[ceiling], (lens.CEILING - EYE) / slope[ceiling], rtol=1e-6)
    assert (ahead[~floor & ~ceiling] == 1.5).all()
    assert not game.pictures.ids.any()
    assert not game.state.visible.any()


@pytest.mark.parametrize(("tilt", "seen"), [(-3, {1}), (0, {2}), (3, {3})])
def test_a_look_up_or_down_shears_the_picture(tilt, seen):
    low, level, high = ((8, 9, z - 0.05, z + 0.05) for z in (0.7, 1.5, 2.3))
    pieces = [Piece("kitchen", "shelf", (1, r, 9, r + 1), b, t) for r, _, b, t in (low, level, high)]
    game = Game(house(ROOM, pieces), 1, 64)
    game.stand(0, 0.75, 1.125, 0, tilt)
    assert set(game.pictures.ids[0, 28:36, 32].tolist()) - {0} == seen


def test_the_left_of_a_picture_is_where_left_turns_lead():
    game = Game(house(ROOM, [Piece("kitchen", "shelf", (7, 7, 9, 9), 0, 1.5)]), 1, 32)
    game.stand(0, 0.5, 1.25, 0)  # the shelf is at larger y
    columns = np.flatnonzero(game.pictures.ids[0].any(0))
    assert len(columns)
    assert columns.max() < 16
    game.step(1)
    assert np.flatnonzero(game.pictures.ids[0].any(0)).mean() > columns.mean()


def test_a_wall_hides_what_is_behind_it():
    wall = ["##########", *["#...#....#"] * 8, "##########"]
    pieces = [Piece("kitchen", "fridge", (3, 6, 6, 8), 0, 1.8, ("apple",))]
    for plan, seen in ((wall, set()), (ROOM, {1, OBJECT})):
        game = Game(house(plan, pieces), 1, 64)
        game.stand(0, 0.5, 1.125, 0, 1)
        assert visible(game.state, 0) == seen


def test_known_is_all_that_was_visible():
    game = Game(house(*FLAT), 3, 32)
    generator = np.random.default_rng(0)
    known, met = game.state.visible.copy(), game.state.seen.copy()
    for _ in range(200):
        game.step(generator.choice(5, 3))
        known |= game.state.visible
        met |= game.state.seen
        np.testing.assert_array_equal(game.state.known, known)
        np.testing.assert_array_equal(game.state.met, met)
    assert (game.state.known != game.state.visible).any()
    game.begin(np.array([1]))
    np.testing.assert_array_equal(game.state.known[1], game.state.visible[1])
    np.testing.assert_array_equal(game.state.known[[0, 2]], known[[0, 2]])


def test_a_picture_that_was_kept_is_the_one_that_would_be_drawn():
    game = Game(house(*FLAT), 30, 24, depth=True, rgb=True)
    generator = np.random.default_rng(9)
    game.spread(generator)
    for _ in range(30):
        game.step(generator.integers(0, 6, 30))
        kept = [array.copy() for array in (*game.pictures, game.state.visible, game.state.seen)]
        for array in game.pictures:
            array[:] = 77
        for i in range(30):
            game.look(i)
        for before, after in zip(kept, (*game.pictures, game.state.visible, game.state.seen), strict=True):
            np.testing.assert_array_equal(before, after)


def test_a_step_that_changes_nothing_draws_nothing():
    game = Game(house(ROOM, [], start=(0.5, 0.5)), 1, 16)
    for actions in ([5], [3, 3, 3, 3]):
        for action in actions:
            game.pictures.ids[:] = 99
            game.step(action)
        assert (game.pictures.ids == 99).all()


def test_there_is_no_picture_without_pixels():
    with pytest.raises(ValueError, match="at least one pixel"):
        lens.lens(0)


def test_depths_and_colours_cost_nothing_where_they_are_not_wanted():
    plain, full = Game(house(*FLAT), 20, 24), Game(house(*FLAT), 20, 24, depth=True, rgb=True)
    assert plain.pictures.depth.size == plain.pictures.rgb.size == 0
    for game in (plain, full):
        game.spread(np.random.default_rng(3))
    np.testing.assert_array_equal(plain.pictures.ids, full.pictures.ids)
