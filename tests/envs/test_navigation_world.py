"""The world navigation/House behind the contract. What every world promises is tested with all worlds."""

import json

import numpy as np
import pytest
from gymnasium import spaces

import envs
from envs.navigation import load, simulate

GOAL = (60, 60)  # of the default house


def test_it_moves_its_robots_as_the_simulator():
    env = envs.make("navigation/House", 3)
    obs = env.begin()
    assert obs["sensors"].tolist() == [[100, 100, 100, 0, 0]] * 3
    actions = np.random.default_rng(0).uniform(-5, 5, (3, 60, 2)).astype(np.float32)
    wanted = simulate(load(), None, actions)
    for t in range(60):
        transition = env.advance(actions[:, t])
        np.testing.assert_array_equal(transition.obs["sensors"], wanted["obs"][:, t])
        np.testing.assert_array_equal(env.pose, wanted["pose"][:, t])
        assert not transition.reward.any()


def test_spaces_are_bounded():
    env = envs.make("navigation/House", 2, captions=True)
    assert env.single_action_space == spaces.Box(-4, 4, (2,), np.float32)
    assert env.action_space.shape == (2, 2)
    sensors = env.single_observation_space["sensors"]
    assert sensors.low.tolist() == [0] * 5
    assert sensors.high.tolist() == [100, 100, 100, 1, 1]
    assert env.observation_space.contains(env.reset()[0])
    for _ in range(30):
        obs = env.step(env.action_space.sample())[0]
        assert env.observation_space.contains(obs)


def test_the_goal_ends_an_episode_with_reward_1(tmp_path):
    tree = load().as_json() | {"start_pose_deg": [60, 120, -90]}
    path = tmp_path / "near.json"
    path.write_text(json.dumps(tree))
    env = envs.make("navigation/House", 2, map=str(path))
    env.begin()
    step = 0
    while True:
        step += 1
        transition = env.advance(np.array([(4, 4), (1, 1)], np.float32))
        far = np.hypot(*(env.pose[:, :2] - GOAL).T)
        if len(transition.final_index):
            break
        assert far[0] > 3.5
    assert step == 15  # 60 units at 4 a step: 4 before it is too far
    assert transition.final_index.tolist() == [0]
    assert transition.reward.tolist() == [1, 0]
    assert transition.terminated.tolist() == [True, False]
    assert not transition.truncated.any()
    assert transition.episodes.success.tolist() == [True]
    np.testing.assert_array_equal(env.pose[0], np.float32((60, 120, -np.pi / 2)))


def test_episodes_are_truncated():
    env = envs.make("navigation/House", 1, length=5)
    env.begin()
    ends = [env.advance(np.zeros((1, 2))).truncated[0] for _ in range(10)]
    assert ends == [False, False, False, False, True] * 2
    assert envs.make("navigation/House", 1)._length_limit == 400


def test_starts_anywhere_are_free_and_all_over_the_house():
    env = envs.make("navigation/House", 400, start="anywhere")
    env.begin()
    starts = env.pose.copy()
    assert simulate(load(), starts, np.zeros((400, 1, 2)))["pose"].shape == (400, 1, 3)  # none is refused
    rooms = {(int(x // 200), int(y // 200)) for x, y, _ in starts}
    assert len(rooms) == 9
    assert np.histogram(starts[:, 2], 4, (-np.pi, np.pi))[0].min() > 60
    env.begin()
    assert not np.array_equal(env.pose, starts)


def test_captions_tell_where_a_robot_is():
    env = envs.make("navigation/House", 2, captions=True)
    obs = env.begin()
    assert env.captions(obs)[0] == ["You are on the pink tile", "You are north of the fridge"]
    assert env.captions(env.reset()[0])[0] == env.captions(obs)[0]
    for _ in range(60):
        obs = env.advance(np.array([(4, 4), (0, 0)], np.float32)).obs
    told = env.captions(obs)
    assert "You touch a wall on your right" in told[0]
    assert told[1] == ["You are on the pink tile", "You are north of the fridge"]
    assert set(" ".join(s for row in told for s in row).lower().split()) <= set(env.env_spec.words)
    assert env.env_spec.captioned
    silent = envs.make("navigation/House", 1)
    with pytest.raises(LookupError, match=r"env\.captions=true"):
        silent.captions(silent.begin())


def test_a_frame_shows_the_robot():
    env = envs.make("navigation/House", 1)
    env.begin()
    before = env.frame(0)
    assert before.shape == (400, 400, 3)
    assert before.dtype == np.uint8
    for _ in range(20):
        env.advance(np.full((1, 2), 4.0))
    after = env.frame(0)
    x, y = (env.pose[0, :2] * 2 / 3).astype(int)
    changed = (before != after).any(-1)
    assert changed[y - 3 : y + 3, x - 3 : x + 3].all()
    assert 0.001 < changed.mean() < 0.2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"map": "/nowhere.json"}, "cannot read the map /nowhere.json"),
        ({"length": 0}, "length"),
        ({"start": "here"}, "start"),
        ({"goal_radius": -1.0}, "goal_radius"),
    ],
)
def test_bad_options_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        envs.make("navigation/House", 1, **options)


def test_bad_actions_are_refused_and_nothing_has_moved():
    env = envs.make("navigation/House", 2)
    env.begin()
    pose = env.pose.copy()
    with pytest.raises(ValueError, match="are numbers: one is not"):
        env.advance(np.array([(1, 1), (np.nan, 0)]))
    with pytest.raises(ValueError, match=r"must be \[2, 2\]"):
        env.advance(np.zeros((2, 3)))
    np.testing.assert_array_equal(env.pose, pose)


def test_a_map_whose_start_is_in_a_wall_is_refused(tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(load().as_json() | {"start_pose_deg": [3, 3, 0]}))
    with pytest.raises(ValueError, match="start where it is free"):
        envs.make("navigation/House", 1, map=str(path))
    assert envs.make("navigation/House", 1, map=str(path), start="anywhere").begin()["sensors"].shape == (1, 5)
