"""Advantages and targets against straightforward references."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.algorithms.ppo.advantages import next_values, vtrace


def gae_by_definition(reward, value, following, done, discount, lam):
    """Sum over the future of (gamma lambda)^k delta, cut at the end of an episode; O(T^2) on purpose."""
    length, envs = reward.shape
    delta = reward + discount * following - value
    advantage = np.zeros_like(reward)
    for n in range(envs):
        for t in range(length):
            weight = 1.0
            for k in range(t, length):
                advantage[t, n] += weight * delta[k, n]
                weight *= discount * lam
                if done[k, n]:
                    break
    return advantage


def random_chunk(seed, length=12, envs=5):
    random = np.random.default_rng(seed)
    reward = random.normal(size=(length, envs)).astype(np.float32)
    value = random.normal(size=(length + 1, envs)).astype(np.float32)
    terminated = random.random((length, envs)) < 0.15
    truncated = (random.random((length, envs)) < 0.15) & ~terminated
    final_index = np.argwhere(terminated | truncated).astype(np.int32)
    final_value = random.normal(size=len(final_index)).astype(np.float32)
    return reward, value, terminated, truncated, final_index, final_value


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, 10_000), st.floats(0, 1), st.floats(0, 1))
def test_on_policy_vtrace_is_gae(seed, discount, lam):
    reward, value, terminated, truncated, final_index, final_value = random_chunk(seed)
    following = next_values(value, terminated, truncated, final_index, final_value)
    done = terminated | truncated
    advantage, target = vtrace(reward, value[:-1], following, done, np.ones_like(reward), discount, lam)
    expected = gae_by_definition(reward, value[:-1], following, done, discount, lam)
    np.testing.assert_allclose(advantage, expected, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(target, expected + value[:-1], rtol=2e-4, atol=2e-4)


def test_truncation_bootstraps_from_the_last_observation_and_termination_does_not():
    value = np.array([[1.0, 1.0], [7.0, 7.0], [9.0, 9.0]], np.float32)
    terminated = np.array([[True, False], [False, False]])
    truncated = np.array([[False, True], [False, False]])
    following = next_values(value, terminated, truncated, np.array([[0, 0], [0, 1]]), np.array([5.0, 5.0], np.float32))
    # Env 0 ended for good: 0. Env 1 ran out of time: the value of its last state, not 7, that of the next episode.
    np.testing.assert_array_equal(following, [[0.0, 5.0], [9.0, 9.0]])


def test_vtrace_targets_equal_the_paper_formula():
    """Espeholt et al. 2018, eq. 1: v_s = V_s + sum_t gamma^(t-s) (prod c_i) rho_t delta_t, lambda = 1, one episode."""
    random = np.random.default_rng(3)
    length, discount = 6, 0.9
    reward, value = random.normal(size=(length, 1)), random.normal(size=(length + 1, 1))
    rho = random.uniform(0.2, 2.0, size=(length, 1))
    clipped = np.minimum(rho, 1.0)
    delta = clipped * (reward + discount * value[1:] - value[:-1])
    expected = value[:-1].copy()
    for s in range(length):
        for t in range(s, length):
            expected[s] += discount ** (t - s) * np.prod(clipped[s:t]) * delta[t]
    _, target = vtrace(
        *(a.astype(np.float32) for a in (reward, value[:-1], value[1:])),
        np.zeros((length, 1), bool),
        rho.astype(np.float32),
        discount,
        1.0,
    )
    np.testing.assert_allclose(target, expected, rtol=1e-5, atol=1e-5)
