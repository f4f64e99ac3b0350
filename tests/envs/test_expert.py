"""The expert solves what the bot can solve, and ends where the bot would not."""

import numpy as np
import pytest

import envs
from envs.babyai import Expert
from envs.babyai import expert as planner


def first_episodes(env, expert, seeds, limit):
    """{env: success} of the first episode of each env, by the expert."""
    env.begin(np.array(seeds))
    results = {}
    for _ in range(limit):
        episodes = env.advance(expert.act(env)).episodes
        for i, k, success in zip(episodes.env, episodes.episode, episodes.success, strict=True):
            if k == 0:
                results[int(i)] = bool(success)
        if len(results) == len(seeds):
            break
    return results


@pytest.mark.parametrize("level", ["GoToLocal", "PutNextLocal", "MixedTrainLocal", "PickUpSeqGoToLocal"])
def test_solves(level):
    expert = Expert()
    results = first_episodes(envs.make(f"babyai/{level}", 12), expert, range(12), 128)
    assert results == dict.fromkeys(range(12), True)
    assert expert.stuck == []


def test_ends_where_the_bot_replans_for_ever():
    expert = Expert()
    env = envs.make("babyai/GoToImpUnlock", 8, max_steps=300)
    results = first_episodes(env, expert, range(8), 300)
    stuck = {i for i, episode, reason in expert.stuck if episode == 0 and "rounds of planning" in reason}
    assert stuck == {6}
    assert [i for i, success in results.items() if not success] == sorted(stuck)


def test_a_plan_that_is_read_too_often_is_stuck(monkeypatch):
    monkeypatch.setattr(planner, "MOST_ROUNDS", 3)
    plan = planner._Plan([1, 2])
    assert [plan[-1] for _ in range(3)] == [2, 2, 2]
    with pytest.raises(RuntimeError, match="3 rounds"):
        plan[-1]


def test_a_box_that_holds_the_key_defeats_the_bot_once():
    expert = Expert()
    env = envs.make("babyai/KeyInBox", 4)
    env.begin(np.arange(4))
    for _ in range(60):
        actions = expert.act(env)
        env.advance(actions)
    assert sorted(i for i, _, _ in expert.stuck) == [0, 1, 2, 3]
    assert all(reason.startswith("AssertionError") for _, _, reason in expert.stuck)
    assert (actions == 6).all()


def test_asking_twice_gives_the_same_answer():
    env, expert = envs.make("babyai/GoToLocal", 3), Expert()
    env.begin(np.arange(3))
    for _ in range(5):
        actions = expert.act(env)
        assert np.array_equal(expert.act(env), actions)
        env.advance(actions)


def test_corrects_someone_elses_steps():
    """Every other step is not the expert's, and some it never hears of; it still arrives."""
    env, expert = envs.make("babyai/GoToLocal", 8, max_steps=300), Expert()
    env.begin(np.arange(8))
    generator = np.random.default_rng(0)
    solved = set()
    for step in range(200):
        episodes = env.advance(expert.act(env)).episodes
        solved.update(episodes.env[episodes.success & (episodes.episode == 0)].tolist())
        if step % 3 == 0:
            env.advance(generator.integers(0, 3, 8))
    assert len(solved) >= 7


def test_continues_after_a_restore():
    env, expert = envs.make("babyai/BossLevel", 2), Expert()
    env.begin(np.arange(2))
    for _ in range(10):
        env.advance(expert.act(env))
    state = env.state()
    after = envs.make("babyai/BossLevel", 2)
    after.restore(state)
    results = {}
    for _ in range(400):
        episodes = after.advance(expert.act(after)).episodes
        results.update(zip(episodes.env.tolist(), episodes.success.tolist(), strict=True))
        if len(results) == 2:
            break
    assert results == {0: True, 1: True}


@pytest.mark.parametrize(("options", "idle"), [({"actions": 3}, 0), ({"actions": 3, "idle_actions": ["wait"]}, 3)])
def test_a_world_without_the_action_is_a_reason_to_give_up(options, idle):
    env, expert = envs.make("babyai/PickupLocal", 6, **options), Expert()
    env.begin(np.arange(6))
    for _ in range(60):
        actions = expert.act(env)
        assert actions.max() <= 3
        env.advance(actions)
    reasons = {reason for _, _, reason in expert.stuck}
    assert reasons == {"the world lacks action 3"}
    assert idle in actions
