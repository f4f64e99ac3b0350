"""Which task a seed names, and that training never names one that is held out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import envs
from envs import HELD_OUT_FIRST, episode_seed
from envs.api import EnvSpec
from envs.dark import tasks

TASKED = ["dark/Room-7x5", "dark/KeyDoor-40x20", "maze/Runner-9"]


@given(free=st.integers(1, 1000), held_out=st.integers(0, 1000), first=st.integers(0, HELD_OUT_FIRST - 1))
def test_seeds_name_tasks_in_order_and_each_side_its_own(free, held_out, first):
    spec = EnvSpec("x", {}, ("a",), tasks=free + held_out, held_out=held_out)
    assert spec.task(np.arange(free)).tolist() == list(range(free))
    sides = spec.task(first + np.arange(3 * free)), spec.task(HELD_OUT_FIRST + first + np.arange(3 * held_out))
    if held_out:
        assert spec.task(HELD_OUT_FIRST + np.arange(held_out)).tolist() == list(range(free, free + held_out))
        assert set(sides[1]) == set(range(free, free + held_out))
        sides = (spec.task(np.minimum(first + np.arange(3 * free), HELD_OUT_FIRST - 1)), sides[1])
    assert set(sides[0]) <= set(range(free))


def test_where_no_tasks_are_counted_every_seed_is_its_own():
    seeds = np.array([0, 7, HELD_OUT_FIRST - 1, HELD_OUT_FIRST, HELD_OUT_FIRST + 7])
    assert envs.spec("babyai/GoToLocal").task(seeds).tolist() == seeds.tolist()


@pytest.mark.parametrize("env_id", TASKED)
def test_a_world_plays_the_task_that_its_spec_says(env_id):
    env = envs.make(env_id, 6, seed=3, first_index=10, length=4)
    spec, episodes = env.env_spec, 0
    assert 0 < spec.held_out < spec.tasks
    env.begin()
    for _ in range(40):
        expected = spec.task(
            np.array([episode_seed(3, int(i), int(k)) for i, k in zip(env.env_index, env.episode, strict=True)])
        )
        assert env.task.tolist() == expected.tolist()
        assert env.task.max() < spec.tasks - spec.held_out
        episodes += len(env.advance(np.full(6, 4)).episodes)
    assert episodes == 60
    env.begin(np.arange(HELD_OUT_FIRST, HELD_OUT_FIRST + 6))
    assert env.task.min() >= spec.tasks - spec.held_out
    env.begin(np.full(6, 7))  # of one seed one task, again and again
    first = env.task.copy()
    env.begin(np.full(6, 7))
    assert (env.task == first).all()
    assert len(set(first.tolist())) == 1


@given(width=st.integers(3, 40), height=st.integers(3, 40))
def test_what_pays_in_an_own_held_out_task_pays_in_none_that_is_trained_on(width, height):
    own = tasks.own(width, height)
    free = len(own.goal) - own.held_out
    assert sorted(own.goal.tolist()) == list(range(width * height))
    assert own.held_out == max(2, width * height // 5)
    for side in (slice(free), slice(free, None)):
        assert set(own.key[side]) == set(own.goal[side])
    assert (own.key != own.goal).all()
    assert own.goal[0] == 0  # at the usual start


def test_own_tasks_of_seven_by_seven_are_all_its_cells():
    spec = envs.spec("dark/Room-7x7")
    assert (spec.tasks, spec.held_out) == (49, 9)
    env = envs.make("dark/Room-7x7", 49)
    env.begin(np.concatenate([np.arange(40), HELD_OUT_FIRST + np.arange(9)]))
    assert env.task.tolist() == list(range(49))
    assert sorted(env.goal.tolist()) == list(range(49))
