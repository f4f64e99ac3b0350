"""Dead reckoning beside the simulator."""

import numpy as np

from envs import navigation
from envs.navigation.odometry import felt, reckon

HOUSE = navigation.load()


def played(count, steps, seed=0):
    """Policies as evolution finds them, more or less: those that get somewhere."""
    weights = np.random.default_rng(seed).normal(0, 0.4, (20 * count, 302)).astype(np.float32)
    final = navigation.rollout(HOUSE, None, weights, steps, trajectories=False)["pose"]
    far = np.argsort(-np.linalg.norm(final[:, :2] - HOUSE.start[:2], axis=1))[:count]
    found = navigation.rollout(HOUSE, None, weights[far], steps)
    return found, navigation.simulate(HOUSE, None, found["action"])["obs"]


def test_a_robot_that_touches_nothing_knows_where_it_is():
    action = np.random.default_rng(0).uniform(-1, 1.2, (50, 40, 2)).astype(np.float32)
    found = navigation.simulate(HOUSE, None, action)
    free = (found["obs"][..., 3:] == 0).all((1, 2))
    assert free.sum() > 20
    believed = reckon(np.array(HOUSE.start), action, found["obs"])
    apart = np.abs(believed - found["pose"])[free]
    assert apart[..., :2].max() < 2e-3
    assert np.abs(np.angle(np.exp(1j * apart[..., 2]))).max() < 1e-4


def test_bumpers_tell_when_it_was_stuck():
    found, obs = played(200, 400)
    touched = (obs[..., 3:] > 0).any(-1)
    assert touched.mean() > 0.1
    believed = reckon(np.array(HOUSE.start), found["action"], obs)
    apart = np.linalg.norm(believed[:, -1, :2] - found["pose"][:, -1, :2], axis=1)
    assert np.median(apart) < 6
    blind = reckon(np.array(HOUSE.start), found["action"], np.zeros_like(obs))
    assert np.median(np.linalg.norm(blind[:, -1, :2] - found["pose"][:, -1, :2], axis=1)) > 30


def test_reckoning_in_parts_is_reckoning():
    found, obs = played(20, 90)
    start = np.tile(np.array(HOUSE.start), (20, 1))
    whole = reckon(start, found["action"], obs)
    for begin, end in ((0, 10), (10, 45), (45, 90)):
        part = reckon(start, found["action"][:, begin:end], obs[:, begin:end])
        np.testing.assert_allclose(part, whole[:, begin:end], atol=1e-9)
        start = part[:, -1]


def test_what_is_felt_is_within_its_scales():
    pose = np.array([[300.0, 600.0, np.pi], [0.0, 5.0, -np.pi / 2]])
    np.testing.assert_allclose(felt(pose), [[300, 600, 0, 0.5], [0, 5, 0.5, 0]], atol=1e-6)
    told = felt(pose, np.array([[300, 300], [60, 5]], np.float32))
    assert told[:, :4].tolist() == felt(pose).tolist()
    # Heading west, the target is north: a quarter of a turn clockwise; heading north, it is east: the same.
    np.testing.assert_allclose(told[:, 4:], [[300, np.exp(-5), 0.5, 1], [60, np.exp(-1), 0.5, 1]], atol=1e-6)
