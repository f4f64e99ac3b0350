"""Advantages of groups, by the papers' equations and by hand; what the chunk's end cut off counts for nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.algorithms.ppo.groups import credit, relative, returns_to_go


def of(kind, reward, done, group, state=None, episode=None, discount=0.5, omega=1.0):
    """Columns of envs, written as rows: reward [N, T], done [N, T]."""
    reward, done = np.array(reward, np.float32).T, np.array(done, bool).T
    episode = np.cumsum(done, 0) - done if episode is None else np.array(episode).T
    state = np.arange(reward.size).reshape(reward.shape) if state is None else np.array(state).T
    found = credit(kind, reward, done, episode, np.array(group), state, discount, omega)
    return found.advantage.T, found.counts.T


def test_grpo_is_the_return_less_the_mean_over_the_deviation():
    found = relative(np.array([1.0, 0.0, 0.0, 1.0]), np.zeros(4, np.int64), "grpo")
    np.testing.assert_allclose(found, [1, -1, -1, 1], rtol=1e-6)
    found = relative(np.array([3.0, 0.0, 0.0]), np.zeros(3, np.int64), "grpo")  # mean 1, variance 2
    np.testing.assert_allclose(found, np.array([2, -1, -1]) / np.sqrt(2), rtol=1e-6)


def test_rloo_is_the_return_less_the_mean_of_the_others():
    found = relative(np.array([3.0, 0.0, 6.0, 5.0, 7.0]), np.array([0, 0, 0, 1, 1]), "rloo")
    np.testing.assert_allclose(found, [3 - 3, 0 - 4.5, 6 - 1.5, 5 - 7, 7 - 5], rtol=1e-6)


values = st.lists(st.tuples(st.floats(-100, 100, width=32), st.integers(0, 3)), min_size=1, max_size=20)


@given(values, st.sampled_from(["grpo", "rloo"]))
def test_a_value_is_compared_with_its_group_alone(drawn, kind):
    value, group = np.array([v for v, _ in drawn]), np.array([g for _, g in drawn])
    found, scale = relative(value, group, kind), 1 + np.abs(value).max()
    for i, each in enumerate(group.tolist()):
        own = value[group == each]
        others = np.delete(value, i)[np.delete(group, i) == each]
        if kind == "rloo":
            expected = value[i] - others.mean() if len(others) else 0.0
        else:
            expected = (value[i] - own.mean()) / own.std() if own.std() > 1e-4 * scale else found[i]
        assert float(found[i]) == pytest.approx(expected, abs=1e-4 * scale)
        if np.ptp(own) == 0:
            assert abs(found[i]) < 1e-4
    for each in set(group.tolist()):
        assert float(found[group == each].sum()) == pytest.approx(0, abs=1e-3 * scale)


def test_every_step_of_an_episode_has_the_episodes_advantage_and_groups_are_apart():
    reward = [[0, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 5], [0, 1, 0, 0]]
    done = [[0, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1], [0, 1, 0, 1]]
    found, counts = of("rloo", reward, done, [0, 0, 1, 1])
    # first episodes: 2 and 0; 5 and 1. The second ones of envs 0 and 3 have no partner that has ended.
    np.testing.assert_allclose(found, [[2, 2, 0, 0], [-2] * 4, [4] * 4, [-4, -4, 0, 0]])
    assert counts.tolist() == [[True, True, False, False], [True] * 4, [True] * 4, [True, True, False, False]]


def test_an_episode_that_was_cut_off_spoils_its_group_and_not_the_next():
    reward = [[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 1], [0, 1, 0, 0]]
    done = [[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 1], [0, 1, 0, 1]]
    found, counts = of("grpo", reward, done, [0, 0, 1, 1])
    assert not counts[:2].any()
    assert counts[2:].all()
    np.testing.assert_allclose(found, [[0] * 4, [0] * 4, [0, 1, 1, 1], [0, 0, -1, -1]])


def test_a_return_to_go_is_discounted_to_the_end_of_its_episode():
    found = returns_to_go(np.array([[1, 0], [2, 4], [8, 8]], np.float32), np.array([[0, 0], [1, 0], [1, 1]], bool), 0.5)
    np.testing.assert_allclose(found, [[1 + 1, 0 + 2 + 2], [2, 4 + 4], [8, 8]])


def test_gigpo_adds_the_comparison_of_steps_in_equal_states():
    """Two envs meet state 7, at different times: one is 1 step from reward 1, the other never gets there."""
    reward, done = [[0, 0, 1], [0, 0, 0]], [[0, 0, 1], [0, 0, 1]]
    state = [[1, 7, 2], [7, 3, 4]]
    episode, _ = of("grpo", reward, done, [0, 0], state)
    found, counts = of("gigpo", reward, done, [0, 0], state, omega=0.5)
    assert counts.all()
    np.testing.assert_allclose(episode, [[1, 1, 1], [-1, -1, -1]])
    # returns to go at state 7: 0.5 and 0, so 1 and -1 by their deviation; other states are alone
    np.testing.assert_allclose(found - episode, [[0, 0.5, 0], [-0.5, 0, 0]], atol=1e-6)


def test_states_of_other_groups_and_other_episodes_are_no_anchor():
    reward, done = [[0, 1], [0, 0], [0, 1], [1, 0]], [[0, 1]] * 4
    state = [[5, 6]] * 4
    found, _ = of("gigpo", reward, done, [0, 0, 1, 1], state)
    episode, _ = of("grpo", reward, done, [0, 0, 1, 1], state)
    steps = found - episode
    np.testing.assert_allclose(steps[:2], [[1, 1], [-1, -1]], atol=1e-6)
    np.testing.assert_allclose(steps[2:], [[-1, 1], [1, -1]], atol=1e-6)


drawn_chunks = st.integers(0, 10_000)


@given(drawn_chunks)
def test_without_steps_gigpo_is_grpo_and_the_order_of_envs_does_not_matter(seed):
    random = np.random.default_rng(seed)
    reward = random.integers(0, 2, (12, 6)).astype(np.float32)
    done = random.random((12, 6)) < 0.3
    episode, group = np.cumsum(done, 0) - done + 4, np.array([3, 3, 3, 9, 9, 9])
    state = random.integers(0, 5, (12, 6))
    given_ = (reward, done, episode, group, state)
    plain = credit("grpo", *given_, 0.9, 1.0)
    np.testing.assert_array_equal(credit("gigpo", *given_, 0.9, 0.0).advantage, plain.advantage)
    assert (plain.advantage[~plain.counts] == 0).all()
    order = random.permutation(6)
    for kind in ("grpo", "rloo", "gigpo"):
        found = credit(kind, *given_, 0.9, 1.0)
        moved = credit(kind, *(a[..., order] for a in given_), 0.9, 1.0)
        np.testing.assert_allclose(moved.advantage, found.advantage[:, order], atol=1e-5)
