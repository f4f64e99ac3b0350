"""Small policies that drive robots: their rollouts are simulations of what a plain network would do."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envs.navigation import load, rollout, simulate

SHAPES = [(10, 5), (10, 10), (10, 10), (2, 10)]


def random_policies(generator, count, size=1.0):
    parts = [generator.normal(0, size / math.sqrt(i), (count, o * i + o)) for o, i in SHAPES]
    return np.concatenate(parts, 1).astype(np.float32)


def network(policy, values):
    """Outputs in float64."""
    at = 0
    for layer, (o, i) in enumerate(SHAPES):
        weight, bias = policy[at : at + o * i].reshape(o, i), policy[at + o * i : at + o * i + o]
        at += o * i + o
        values = values.astype(np.float64) @ weight.T.astype(np.float64) + bias
        values = np.tanh(values) if layer < 3 else values
    assert at == len(policy) == 302
    return values


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 37), st.integers(1, 30), st.sampled_from([0.3, 1.0, 4.0]))
@example(0, 16, 400, 1.0)
def test_a_rollout_is_the_simulation_of_what_its_policies_do(seed, count, steps, size):
    generator = np.random.default_rng(seed)
    policies = random_policies(generator, count, size)
    starts = np.tile(np.float32((60, 450, 0)), (count, 1))
    starts[:, 2] = generator.uniform(-3, 3, count)
    found = rollout(load(), starts, policies, steps)
    assert {name: value.shape[1:] for name, value in found.items()} == {
        "obs": (steps, 5),
        "action": (steps, 2),
        "pose": (steps, 3),
    }
    again = simulate(load(), starts, found["action"])
    np.testing.assert_array_equal(found["pose"], again["pose"])
    np.testing.assert_array_equal(found["obs"][:, 1:], again["obs"][:, :-1])
    final = rollout(load(), starts, policies, steps, trajectories=False)
    assert list(final) == ["pose"]
    np.testing.assert_array_equal(final["pose"], found["pose"][:, -1])
    for n in range(count):
        wanted = np.clip(network(policies[n], found["obs"][n]), -4, 4)
        action = found["action"][n].astype(np.float64)
        assert np.abs(action - wanted).max() <= 0.05 + 1e-3  # the nearest tenth, up to float32
        np.testing.assert_array_equal(found["action"][n], np.round(action, 1).astype(np.float32))


def test_actions_are_rounded_half_to_even():
    policies = np.zeros((6, 302), np.float32)
    policies[:, -2:] = np.array([(0.25, 0.75), (-0.25, 1.25), (4.25, -9), (0.05, 0), (3.75, 3.95), (2.125, 0.375)])
    action = rollout(load(), None, policies, 1)["action"][:, 0]
    np.testing.assert_array_equal(action, np.clip(np.round(policies[:, -2:], 1), -4, 4))
    np.testing.assert_array_equal(action[0], np.float32((0.2, 0.8)))


def test_wild_weights_are_harmless():
    """Overflow makes what is not a number; it must not become a place off the map."""
    policies = random_policies(np.random.default_rng(1), 20, 1e30)
    found = rollout(load(), None, policies, 50)
    assert np.isfinite(found["pose"]).all()
    assert np.abs(found["action"]).max() <= 4


def test_what_cannot_be_rolled_out_is_one_sentence():
    with pytest.raises(ValueError, match=r"policies are \[N, 302\]: got \[2, 301\]"):
        rollout(load(), None, np.zeros((2, 301)))
    with pytest.raises(ValueError, match="policies must be finite"):
        rollout(load(), None, np.full((2, 302), np.nan))
    with pytest.raises(ValueError, match="at least one step"):
        rollout(load(), None, np.zeros((2, 302)), 0)
