"""Toy's slow steps: one sleep a step of the batch, and none where a state is restored."""

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
