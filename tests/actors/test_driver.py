"""A driver keeps to a route, from where it was told and from beside it, and comes back when it is pushed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.behaviours.driver import SHARP, Driver, evenly, wheels
from actors.behaviours.ride import Moment, Sense, ride, rounded
from envs.navigation import FASTEST, PARAMETERS, load, rollout, simulate
from envs.navigation.odometry import WHEELBASE

HOUSE = load()
START = np.array(HOUSE.start, np.float32)
LENGTH, STRIDE = 400, 10


@pytest.fixture(scope="module")
def routes():
    """Ways of small policies that get somewhere, [N, T + 1, 2]."""
    weights = np.random.default_rng(0).normal(0, 0.5, (400, PARAMETERS)).astype(np.float32)
    pose = rollout(HOUSE, None, weights, LENGTH)["pose"]
    far = np.linalg.norm(np.diff(pose[..., :2], axis=1), axis=-1)
    useful = ((far < 0.05).mean(1) < 0.1) & (far.sum(1) < 1100) & (far.sum(1) > 300)
    assert useful.sum() >= 20
    own = pose[useful][:40, :, :2]
    return np.concatenate([np.tile(START[:2], (len(own), 1, 1)), own], 1)


def drive(routes, start, push=0.0):
    driver, random = Driver(HOUSE, routes, LENGTH, STRIDE), np.random.default_rng(1)

    def decide(now):
        wish = driver.advise(now.pose, now.step)
        return wish + push * random.normal(size=wish.shape)

    return ride(HOUSE, np.tile(start, (len(routes), 1)), LENGTH, STRIDE, Sense(), decide)[0]


def off(pose, routes):
    """Of each robot, the mean distance of where it drives from the nearest place of its route."""
    way = np.stack([each[::8] for each in routes])
    return np.linalg.norm(pose[:, ::5, None, :2] - way[:, None], axis=-1).min(-1).mean(-1)


@pytest.mark.parametrize(("turned", "push"), [((0, 0, 0), 0.0), ((10, -8, 0.2), 0.0), ((0, 0, 0), 0.3)])
def test_it_follows_the_route_and_arrives(routes, turned, push):
    pose = drive(routes, START + np.array(turned, np.float32), push)
    ends = np.linalg.norm(pose[:, -1, :2] - routes[:, -1], axis=-1)
    assert np.median(ends) < (30 if push else 10)
    assert np.median(off(pose, routes)) < (12 if push else 8)
    strangers = np.roll(routes, 1, 0)
    assert np.median(off(pose, strangers)) > 2 * np.median(off(pose, routes))


@given(
    st.floats(-np.pi, np.pi),
    st.floats(0, 400, allow_subnormal=False),
    st.floats(0, 4, allow_subnormal=False),
    st.integers(1, 20),
)
@settings(deadline=None)
def test_wheels_never_exceed_their_speed_and_turn_towards_the_place(bearing, distance, forward, stride):
    left, right = wheels(*(np.array([x]) for x in (bearing, distance, forward)), stride)[0]
    assert max(abs(left), abs(right)) <= FASTEST + 1e-9
    turn = (right - left) / WHEELBASE
    assert turn * bearing >= -1e-12
    assert abs(turn * stride) <= 2 * abs(bearing) + 1e-9
    if abs(bearing) > SHARP:
        assert left == pytest.approx(-right)


def test_an_arc_ends_at_the_place():
    for bearing in (-1.0, -0.3, 0.0, 0.5, 1.1):
        distance = 12.0
        arc = distance * (bearing / np.sin(bearing) if bearing else 1.0)
        speeds = wheels(np.array([bearing]), np.array([distance]), np.array([arc / STRIDE]), STRIDE)
        start = np.array([300.0, 330.0, 0.4], np.float32)
        pose = simulate(HOUSE, start, np.repeat(speeds[:, None], STRIDE, 1))["pose"][0, -1]
        wanted = start[:2] + distance * np.array([np.cos(0.4 + bearing), np.sin(0.4 + bearing)])
        np.testing.assert_allclose(pose[:2], wanted, atol=0.05)


def test_even_steps_keep_the_way_and_its_ends(routes):
    way, spacing = evenly(routes)
    moved = np.linalg.norm(np.diff(way, axis=1), axis=-1)
    np.testing.assert_allclose(way[:, [0, -1]], routes[:, [0, -1]], atol=1e-3)
    assert (moved <= spacing[:, None] + 1e-6).all()  # a chord is not longer than its arc
    kept = moved.sum(1) / np.linalg.norm(np.diff(routes, axis=1), axis=-1).sum(1)
    assert np.median(kept) > 0.98  # those that spin on the spot lose their spins
    still, none = evenly(np.full((1, 5, 2), 7.0, np.float32))
    assert (still == 7).all()
    assert none[0] > 0


def test_a_ride_shows_what_robots_sense_and_believe_before_each_action():
    moments = list[Moment]()
    actions = np.random.default_rng(0).uniform(-1, 4, (4, 3, 2))

    def decide(now):
        moments.append(now)
        return actions[len(moments) - 1]

    start = np.tile(START, (3, 1))
    pose, action = ride(HOUSE, start, 32, 10, Sense(), decide)
    assert [now.step for now in moments] == [0, 10, 20, 30]
    np.testing.assert_array_equal(action[:, 10], rounded(actions[1], 10))
    whole = simulate(HOUSE, start, action)
    np.testing.assert_array_equal(pose, whole["pose"])
    for now in moments[1:]:
        np.testing.assert_array_equal(now.pose, pose[:, now.step - 1])
        np.testing.assert_array_equal(now.sensed, whole["obs"][:, now.step - 1])
        np.testing.assert_allclose(now.believed[:, :2], now.pose[:, :2], atol=1.0)  # odometry, from the right start
