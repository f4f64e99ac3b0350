"""What a detector tells is what the picture shows and what a grip would do."""

import math

import numpy as np
import pytest

import envs
from envs.housekeep.names import NAMES
from envs.native.housekeep.layout import CELL, EDGE, NOWHERE, OBJECT
from tests.envs.housekeep_play import busy

SIZE, FAR = 24, 5.0


@pytest.fixture(scope="module")
def played():
    """A world of 40 players after 150 steps in which hands were busy, and what it observes."""
    env = envs.make("housekeep/Task1", 40, seed=4, size=SIZE, starts="seed", observe=["boxes", "hand", "pose"])
    obs = env.begin()
    for action in busy(env, 150):
        obs = env.advance(action).obs
    return env, obs


def names(env):
    return sorted({NAMES[name] for name in env.houses.name[0, 1 : env.houses.pieces[0] + 1].tolist()})


def middle(env, i, instance):
    """On the plan."""
    p = env.which[i]
    if instance < OBJECT:
        row, column, row_end, column_end = env.houses.box[p, instance].tolist()
        return (column + column_end) / 2 * CELL, (row + row_end) / 2 * CELL
    k = instance - OBJECT
    cell = int(env.houses.slots[p, env.players.place[i, k], env.players.slot[i, k]])
    return (cell % EDGE + 0.5) * CELL, (cell // EDGE + 0.5) * CELL


def distance(env, i, instance):
    x, y = middle(env, i, instance)
    return math.hypot(x - env.players.x[i], y - env.players.y[i])


def instances(env, i):
    """Those of each row: objects, and then names."""
    p, rows = env.which[i], [[OBJECT + k] for k in range(env.houses.objects[env.which[i]])]
    pieces = range(1, env.houses.pieces[p] + 1)
    return rows + [[n for n in pieces if NAMES[env.houses.name[p, n]] == name] for name in names(env)]


def test_a_box_is_where_the_pixels_are(played):
    env, obs = played
    found, count, chosen = 0, int(env.houses.objects[0]), set()
    for i in range(env.num_envs):
        boxes, ids = obs["boxes"][i, :-count].reshape(-1, 4), env.pictures.ids[i]
        put = {k for k in range(count) if env.gripped[i] >> k & 1 and env.players.holding[i] != k}
        seen = [(k in put, distance(env, i, OBJECT + k), k) for k in range(count) if (ids == OBJECT + k).any()]
        nearest = [OBJECT + min(seen)[2]] if seen else []
        np.testing.assert_array_equal(obs["boxes"][i, -count:], [nearest == [OBJECT + k] for k in range(count)])
        if seen:
            chosen.add((len(seen), min(seen)[0]))
        for box, own in zip(boxes, [nearest, *instances(env, i)[count:]], strict=True):
            counts = [(ids == instance).sum() for instance in own]
            if not any(counts):
                np.testing.assert_array_equal(box, 0)
                continue
            instance = own[int(np.argmax(counts))]
            row, column = np.nonzero(ids == instance)
            centre = [(2 * axis.mean() + 1 - SIZE) / SIZE for axis in (column, row)]
            far = distance(env, i, instance)
            np.testing.assert_allclose(box, [math.sqrt(len(row)) / SIZE, *centre, far / FAR], atol=1e-5)
            found += 1
    assert found > 200
    assert {after for _, after in chosen} == {False, True}
    assert max(number for number, _ in chosen) > 1


def test_the_hand_points_at_what_it_would_grip(played):
    env, obs = played
    hand, count = obs["hand"].copy(), int(env.houses.objects[0])
    held = env.players.holding.copy()
    assert set(np.unique(hand).tolist()) == {0, 1}
    whole, hand, before = hand[:, :3], hand[:, 3:-count], hand[:, -count:]
    np.testing.assert_array_equal(before, env.gripped[:, None] >> np.arange(count) & 1)
    assert 0 < before.mean() < 1
    wanted = [hand[:, :count].any(1), hand[:, count : 2 * count].any(1), hand[:, 2 * count :].any(1)]
    np.testing.assert_array_equal(whole, np.stack(wanted, 1))
    for i in range(env.num_envs):
        assert np.flatnonzero(hand[i, :count]).tolist() == ([] if held[i] == NOWHERE else [held[i]])
    aimed = hand[:, count:]
    assert (aimed.sum(1) <= 1).all()
    assert 0 < (aimed.sum(1) > 0).mean() < 1
    env.advance(np.full(env.num_envs, 5))
    for i, outcome in enumerate(env.players.outcome.tolist()):
        assert (outcome == 3) == (not aimed[i].any())  # nothing there
        if outcome == 1:
            assert aimed[i, env.players.target[i, 0]]
        if outcome == 2:
            assert aimed[i, count + names(env).index(NAMES[env.houses.name[0, env.players.target[i, 1]]])]


def test_the_pose_is_that_of_the_player(played):
    env, obs = played
    x, y, heading, tilt = (getattr(env.players, name) for name in ("x", "y", "heading", "tilt"))
    turn = np.radians(20.0 * heading)
    waves = [wave(2 * np.pi * way / metres) for way in (x, y) for wave in (np.cos, np.sin) for metres in (16, 8, 4, 2)]
    np.testing.assert_allclose(obs["pose"], np.stack([*waves, np.cos(turn), np.sin(turn), tilt / 3], 1), atol=1e-5)
    assert len(np.unique(obs["pose"].round(4), axis=0)) > 20


def test_a_house_with_other_objects_in_each_episode_has_no_boxes():
    for field in ("boxes", "hand"):
        with pytest.raises(ValueError, match=f"env.observe names {field}, but housekeep/House has other objects"):
            envs.spec("housekeep/House", observe=[field])
    assert envs.spec("housekeep/House", observe=["pose"]).fields["pose"].shape == (19,)
