"""A robot finds out where it is from its lasers and the plan, whatever start it was told."""

import numpy as np
import pytest

from envs.navigation import load, simulate
from envs.navigation.localisation import Localiser
from envs.navigation.odometry import reckon

HOUSE = load()
WINDOW = 10


def believed(n):
    return np.tile(np.array(HOUSE.start, np.float64), (n, 1))


def starts(n):
    drawn = np.random.default_rng(0).uniform(-1, 1, (n, 3)) * np.array([15.0, 15.0, np.radians(15)])
    return (np.array(HOUSE.start) + drawn).astype(np.float32)


def wander(start, windows, particles, seed=1):
    """Robots drive by chance. Returns poses of each moment by the simulator, the localiser and odometry, [W, N, 3]."""
    random, n = np.random.default_rng(seed), len(start)
    sensed = simulate(HOUSE, start, np.zeros((n, 1, 2), np.float32))["obs"][:, -1]
    place, told, reckoned = start, Localiser(HOUSE, believed(n), particles, 15.0, 15.0), believed(n)
    poses = []
    for _ in range(windows):
        told.look(sensed)
        poses.append((place, told.pose.copy(), reckoned))
        action = np.repeat(random.uniform(1, 4, (n, 1, 2)), WINDOW, 1).astype(np.float32)
        found = simulate(HOUSE, place, action)
        told.move(action, found["obs"])
        reckoned = reckon(reckoned, action, found["obs"])[:, -1]
        place, sensed = found["pose"][:, -1], found["obs"][:, -1]
    return (np.stack(each) for each in zip(*poses, strict=True))


def apart(one, other):
    return np.linalg.norm(one[..., :2] - other[..., :2], axis=-1)


def test_lasers_tell_where_a_robot_started_and_odometry_alone_does_not():
    real, told, reckoned = wander(starts(64), 30, 64)
    assert np.median(apart(told, real)[0]) > 5  # at first nobody knows
    assert np.median(apart(told, real)[-1]) < 2
    assert np.quantile(apart(told, real)[-1], 0.9) < np.quantile(apart(reckoned, real)[-1], 0.9) / 2
    assert np.median(apart(reckoned, real)[-1]) > 10
    turned = (told - real)[-1, :, 2]
    assert np.median(np.abs((turned + np.pi) % (2 * np.pi) - np.pi)) < 0.02


def test_a_wrong_plan_does_not_pass_for_the_right_one():
    """The estimate comes from the lasers: readings of another place lead elsewhere."""
    start = starts(16)
    honest, lied = (Localiser(HOUSE, believed(16), 64, 15.0, 15.0) for _ in range(2))
    sensed = simulate(HOUSE, start, np.zeros((16, 1, 2), np.float32))["obs"][:, -1]
    for _ in range(5):
        honest.look(sensed)
        lied.look(np.roll(sensed, 1, 0))
    assert np.median(apart(honest.pose, start)) < np.median(apart(lied.pose, start)) - 1


def test_robots_do_not_matter_to_each_other():
    start = starts(7)
    _, together, _ = wander(start, 8, 32)
    sensed = simulate(HOUSE, start, np.zeros((7, 1, 2), np.float32))["obs"][:, -1]
    alone = Localiser(HOUSE, believed(1), 32, 15.0, 15.0)
    alone.look(sensed[3:4])
    np.testing.assert_allclose(alone.pose[0], together[0, 3], atol=1e-9)
    _, again, _ = wander(start, 8, 32)
    np.testing.assert_array_equal(together, again)


@pytest.mark.parametrize("particles", [1, 2, 33])
def test_any_number_of_particles_gives_finite_poses(particles):
    _, told, _ = wander(starts(5), 12, particles)
    assert np.isfinite(told).all()
