"""Meta-World and the Control Suite behind the contract: their own numbers, hidden goals, and no trace of who played."""

import numpy as np
import pytest

import envs
from envs import HELD_OUT_FIRST
from envs.api import EnvSpec
from envs.control import HELD_OUT, TRAINING
from envs.metaworld import Expert

pytestmark = pytest.mark.mujoco
SOME = ["reach", "hammer", "peg-unplug-side"]


def played(env, actions, seeds):
    """Observations and rewards of named episodes."""
    seen, paid = [env.begin(seeds)["observation"]], []
    for action in actions:
        t = env.advance(action)
        seen.append(t.obs["observation"])
        paid.append(t.reward.copy())
    return np.stack(seen), np.stack(paid)


@pytest.mark.parametrize(
    ("env_id", "options"),
    [("metaworld/ML45", {"training": SOME, "held_out": []}), ("control/Tasks", {"held_out": []})],
)
def test_an_episode_is_the_same_in_a_simulation_that_was_played(env_id, options):
    random = np.random.default_rng(0)
    env = envs.make(env_id, envs.spec(env_id, **options).tasks, **options)
    actions = random.uniform(-1, 1, (12, env.num_envs, *env.env_spec.action_shape)).astype(np.float32)
    seeds = np.arange(env.num_envs)
    fresh = played(env, actions, seeds)
    played(env, -actions, seeds + env.num_envs)
    again = played(env, actions, seeds)
    np.testing.assert_array_equal(fresh[0], again[0])
    np.testing.assert_array_equal(fresh[1], again[1])
    assert np.isfinite(fresh[0]).all()
    assert (fresh[1] >= 0).all()


def test_the_tasks_of_metaworld_are_its_own_split():
    from metaworld.env_dict import ML45_V3

    from envs import metaworld

    for ours, name in ((metaworld.TRAINING, "train"), (metaworld.HELD_OUT, "test")):
        assert {f"{task}{metaworld.VERSION}" for task in ours} == set(ML45_V3[name])


def test_the_goal_is_hidden_and_is_the_same_in_all_episodes_of_a_task():
    env = envs.make("metaworld/ML45", 2, training=["reach", "push"], held_out=["door-lock"])
    goals = []
    for seeds in ([0, 1], [2, 3], [0, HELD_OUT_FIRST]):
        obs = env.begin(np.array(seeds))["observation"]
        assert not obs[:, 36:].any()
        assert not env.advance(np.ones((2, 4))).obs["observation"][:, 36:].any()
        goals.append([simulation._env._target_pos.copy() for simulation in env.simulations])
    np.testing.assert_array_equal(goals[0][0], goals[1][0])
    np.testing.assert_array_equal(goals[0][1], goals[1][1])
    assert not np.array_equal(goals[0][0], goals[0][1])


def test_planners_solve_tasks_of_which_chance_solves_none():
    options = {"training": ["reach", "door-open", "button-press"], "held_out": ["door-lock"], "length": 150}
    seeds, solved = np.array([0, 1, 2, HELD_OUT_FIRST]), []
    for planned in (True, False):
        env, expert, random = envs.make("metaworld/ML45", 4, **options), Expert(), np.random.default_rng(0)
        env.begin(seeds)
        for _ in range(150):
            t = env.advance(expert.act(env) if planned else random.uniform(-1, 1, (4, 4)))
        solved.append(t.episodes.success.tolist())
    assert solved == [[True] * 4, [False] * 4]


def test_the_suite_s_own_numbers_are_told_and_padded():
    from dm_control import suite

    env = envs.make("control/Tasks", 16)
    spec: EnvSpec = env.env_spec
    assert (spec.tasks, spec.held_out) == (16, 5)
    seeds = np.append(np.arange(11), HELD_OUT_FIRST + np.arange(5))
    action = np.linspace(-0.9, 0.9, 16 * 6, dtype=np.float32).reshape(16, 6)
    obs = env.begin(seeds)["observation"]
    t = env.advance(action)
    for row, task in enumerate((*TRAINING, *HELD_OUT)):
        own = suite.load(*task.split("-"), task_kwargs={"random": int(seeds[row])})
        numbers = own.action_spec().shape[0]
        for bound, expected in ((own.action_spec().minimum, -1), (own.action_spec().maximum, 1)):
            np.testing.assert_array_equal(bound, expected)
        first, second = own.reset(), own.step(action[row, :numbers])
        for shown, now in ((obs, first), (t.obs["observation"], second)):
            expected = np.concatenate([np.ravel(part) for part in now.observation.values()]).astype(np.float32)
            np.testing.assert_array_equal(shown[row], np.pad(expected, (0, 204 - len(expected))))
        assert t.reward[row] == np.float32(second.reward)
