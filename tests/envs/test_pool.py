"""Many tasks as one world: the seed names the task, all have one shape, and who played before does not show."""

import numpy as np
import pytest

import envs
from envs import HELD_OUT_FIRST, pool
from tests.envs.points import TASKS, Point, points

SEEDS = np.array([0, 1, 2, HELD_OUT_FIRST])


def test_seeds_name_tasks_and_what_is_missing_is_zero():
    env = points(4)
    obs = env.begin(SEEDS)["observation"]
    np.testing.assert_array_equal(env.task, np.arange(4))
    for row, numbers in enumerate(TASKS.values()):
        expected = np.random.default_rng(int(SEEDS[row])).uniform(-1, 1, numbers)
        np.testing.assert_array_equal(obs[row], np.append(expected, [0] * (5 - numbers)).astype(np.float32))


def test_a_task_takes_its_own_numbers_within_the_bounds():
    one, other = points(4), points(4)
    for env in (one, other):
        env.begin(SEEDS)
    action = np.random.default_rng(0).uniform(-1, 1, (4, 4)).astype(np.float32)
    wild = action.copy()
    for row, numbers in enumerate(TASKS.values()):
        wild[row, numbers:] = 0.5
    np.testing.assert_array_equal(one.advance(action).obs["observation"], other.advance(wild).obs["observation"])
    large, bound = np.full((4, 4), 9.0), np.full((4, 4), 1.0)
    np.testing.assert_array_equal(one.advance(large).obs["observation"], other.advance(bound).obs["observation"])
    with pytest.raises(ValueError, match="one is not"):
        one.advance(np.full((4, 4), np.nan))


def test_simulations_wait_and_there_are_not_more_than_two_an_env():
    env = points(3, held_out=0)
    Point.built.clear()
    env.begin(np.array([0, 1, 2]))
    for first in (1, 2, 0, 3, 1, 0):
        env.begin(np.arange(first, first + 3) % 4)
        assert len({id(one) for one in env.simulations}) == 3
        assert [one.numbers for one in env.simulations] == [1 + (first + i) % 4 for i in range(3)]
        assert len(env._idle) <= 3
        assert not {id(one) for one in env.simulations} & {id(one) for _, one in env._idle}
    assert Point.built == list(TASKS)  # each once


def test_an_episode_is_the_same_in_a_simulation_that_was_played():
    actions = np.random.default_rng(1).uniform(-1, 1, (30, 2, 4)).astype(np.float32)
    used, fresh = points(2, seed=4), points(2, seed=9)
    used.begin()
    for action in actions:
        used.advance(action)
    state = used.state()
    expected = [used.advance(action) for action in actions]
    fresh.restore(state)
    for action, one in zip(actions, expected, strict=True):
        other = fresh.advance(action)
        np.testing.assert_array_equal(one.obs["observation"], other.obs["observation"])
        np.testing.assert_array_equal(one.reward, other.reward)
        np.testing.assert_array_equal(one.episodes.success, other.episodes.success)


def test_solved_once_is_solved_and_episodes_are_cut_off():
    env = points(1)
    env.begin(np.array([0]))
    aim = env.simulations[0].aim
    for step in range(1, 10):
        near = step < 6  # it is there by then, and leaves again
        to = aim - env.simulations[0].at if near else np.sign(-aim)
        t = env.advance(np.pad(np.clip(to / 0.3, -1, 1), (0, 3))[None])
        assert t.truncated[0] == (step == 9)
    assert t.episodes.success.tolist() == [True]
    assert t.episodes.length.tolist() == [9]


@pytest.mark.parametrize("family", ["metaworld", "control"])
def test_tasks_can_be_chosen_and_what_is_missing_is_told(family, monkeypatch):
    env_id = {"metaworld": "metaworld/ML45", "control": "control/Tasks"}[family]
    module = envs.registry.family(family)
    spec = envs.spec(env_id, training=list(module.TRAINING[:2]), held_out=[])
    assert (spec.tasks, spec.held_out) == (2, 0)
    assert not {*module.TRAINING} & {*module.HELD_OUT}
    with pytest.raises(ValueError, match="no task 'fly': choose from "):
        envs.spec(env_id, training=["fly"])
    with pytest.raises(ValueError, match="is named twice"):
        envs.spec(env_id, training=list(module.HELD_OUT))
    monkeypatch.setattr(pool.importlib.util, "find_spec", lambda package: None)
    assert envs.registry.missing(env_id).endswith("pip install -r requirements-mujoco.txt")
    with pytest.raises(ModuleNotFoundError, match=r"needs the package \w+: pip install -r requirements-mujoco.txt"):
        envs.make(env_id)
    assert envs.registry.missing("toy/Line") == ""
