"""Toy: what it is made for elsewhere. Slow steps, and episodes so short that many begin."""

import numpy as np
import pydantic
import pytest

import envs
from envs import toy


def test_a_step_of_the_batch_sleeps_once_and_a_restored_state_does_not(monkeypatch):
    slept = []
    monkeypatch.setattr(toy.time, "sleep", slept.append)
    slow, quick = (envs.make("toy/Line", 3, seed=5, **options) for options in ({"step_seconds": 0.02}, {}))
    slow.begin()
    quick.begin()
    for action in (1, 1, 2, 0):
        found, expected = (env.advance(np.full(3, action)) for env in (slow, quick))
        np.testing.assert_array_equal(found.obs["position"], expected.obs["position"])
        np.testing.assert_array_equal(found.reward, expected.reward)
    assert slept == [0.02] * 4
    envs.make("toy/Line", 3, seed=5, step_seconds=0.02).restore(slow.state())
    assert slept == [0.02] * 4


def test_a_step_cannot_take_less_than_no_time():
    with pytest.raises(pydantic.ValidationError):
        envs.make("toy/Line", 1, step_seconds=-0.1)


def ended(env, steps):
    """Seeds of the episodes that end in so many steps, {(env, k): seed}."""
    random, seeds = np.random.default_rng(0), {}
    for _ in range(steps):
        found = env.advance(random.integers(0, 3, env.num_envs)).episodes
        which = zip(found.env.tolist(), found.episode.tolist(), strict=True)
        seeds |= zip(which, found.seed.tolist(), strict=True)
    return seeds


def test_every_episode_has_its_own_seed_also_after_a_state_and_after_named_ones():
    """They are computed several at a time, and none may be another's."""
    env = envs.make("toy/Line", 3, seed=7, first_index=40)
    env.begin()
    first = ended(env, 60)
    again = envs.make("toy/Line", 3, seed=1, first_index=40)
    again.begin()
    ended(again, 11)
    again.restore(env.state())
    both = first | ended(again, 60)
    assert {i for i, _ in both} == {40, 41, 42}
    assert max(k for _, k in both) > 30
    assert both == {(i, k): envs.episode_seed(7, i, k) for i, k in both}
    env.begin(np.array([100, 101, 102]))
    named = ended(env, 30)
    assert named == {(i, k): envs.episode_seed(60 + i, i, k) if k else 60 + i for i, k in named}
    assert sum(k == 0 for _, k in named) == 3
