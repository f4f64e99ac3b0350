"""Terms of PPO beside the clipped one, against what autograd says of them; values in units of their own."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.algorithms.ppo.losses import Steps, pull, token_gradient
from learner.algorithms.ppo.value_scale import ValueScale
from learner.models.language.llm_policy import FORBIDDEN
from learner.optim.collective import Group


def steps(n, advantage, weight):
    nothing = np.zeros(n, np.float32)
    return Steps(np.zeros(n, np.int64), nothing, advantage, weight, nothing, nothing)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 9), forbidden=st.booleans())
def test_the_pull_is_the_gradient_of_the_divergence(seed, n, forbidden):
    random = np.random.default_rng(seed)
    logits, reference = (random.normal(0, 3, (n, 5)).astype(np.float32) for _ in range(2))
    if forbidden:
        logits[:, 2] = reference[:, 2] = FORBIDDEN
    leaf = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    allowed = torch.tensor([True, True, not forbidden, True, True])
    now, before = (x[:, allowed].log_softmax(-1) for x in (leaf, torch.tensor(reference, dtype=torch.float64)))
    divergence = (now.exp() * (now - before)).sum(-1).mean()
    (0.7 * divergence).backward()
    gradient, found = pull(logits, reference, 0.7)
    np.testing.assert_allclose(gradient, leaf.grad.numpy(), rtol=1e-5, atol=1e-7)
    assert found == pytest.approx(divergence.item(), rel=1e-6, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 9))
def test_the_ratio_of_tokens_is_clipped_token_by_token(seed, n):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 5, n)
    real = np.arange(4) < lengths[:, None]
    old, new = (np.where(real, -np.exp(random.normal(0, 1, (n, 4))), 0).astype(np.float32) for _ in range(2))
    new = np.where(real, 0.8 * old + 0.2 * new, 0).astype(np.float32)
    advantage, weight = random.normal(0, 1, n).astype(np.float32), random.uniform(0.2, 1, n).astype(np.float32)
    leaf = torch.tensor(new, dtype=torch.float64, requires_grad=True)
    ratio = (leaf - torch.tensor(old)).exp()
    a, w = torch.tensor(advantage)[:, None], torch.tensor(weight)[:, None]
    each = -w * torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a)
    loss = ((each * torch.tensor(real)).sum(-1) / torch.tensor(lengths)).mean()
    loss.backward()
    gradient, report = token_gradient(new, old, steps(n, advantage, weight), 0.2)
    np.testing.assert_allclose(gradient, leaf.grad.numpy(), rtol=1e-5, atol=1e-7)
    assert report[0] == pytest.approx(loss.item(), rel=1e-5, abs=1e-7)
    assert report[3] >= 0
    assert 0 <= report[4] <= 1


def test_equal_tokens_have_no_divergence_and_the_gradient_of_the_plain_policy():
    old = np.array([[-1.0, -2.0], [-0.5, 0.0]], np.float32)
    gradient, report = token_gradient(old, old, steps(2, np.ones(2, np.float32), np.ones(2, np.float32)), 0.2)
    np.testing.assert_allclose(gradient, [[-0.25, -0.25], [-0.5, 0]])
    np.testing.assert_allclose(report, [-1, 0, 0, 0, 0, 0])


def test_values_stay_what_they_were_while_their_units_change():
    torch.manual_seed(0)
    layer = torch.nn.Linear(6, 1)
    scale, features = ValueScale(layer), torch.randn(50, 6)
    random = np.random.default_rng(0)

    def values():
        with torch.no_grad():
            return scale.restore_units(layer(features).squeeze(-1).numpy())

    before = values()
    for _ in range(40):
        scale.follow(random.normal(20, 5, (8, 16)).astype(np.float32), Group())
        np.testing.assert_allclose(values(), before, rtol=1e-4, atol=1e-4)
    assert scale.mean == pytest.approx(20, abs=0.5)
    assert scale.std == pytest.approx(5, abs=0.5)
    target = random.normal(20, 5, 10_000).astype(np.float32)
    assert abs(scale.normalise(target).mean()) < 0.1
    assert scale.normalise(target).std() == pytest.approx(1, abs=0.1)
    np.testing.assert_allclose(scale.restore_units(scale.normalise(target)), target, rtol=1e-5, atol=1e-5)


def test_the_first_targets_count_in_full_and_a_restored_scale_goes_on_alike():
    one, two = ValueScale(torch.nn.Linear(2, 1)), ValueScale(torch.nn.Linear(2, 1))
    assert (one.mean, one.std) == (0, 1)
    first = np.array([3.0, 5.0], np.float32)
    one.follow(first, Group())
    assert (one.mean, one.std) == (pytest.approx(4), pytest.approx(1))
    two.restore(one.state())
    for scale in (one, two):
        scale.follow(np.array([7.0, 9.0], np.float32), Group())
    assert (one.mean, one.std) == (two.mean, two.std)
    assert 4 < one.mean < 8


def test_targets_that_do_not_vary_do_not_divide_by_zero():
    scale = ValueScale(torch.nn.Linear(2, 1))
    scale.follow(np.zeros((3, 4), np.float32), Group())
    assert np.isfinite(scale.normalise(np.array([0.0, 1.0], np.float32))).all()
