"""DQN's gradient in closed form against the one that PyTorch derives, and where it is used."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from learner.algorithms.dqn import closed_form
from tests.learner import test_deduplicate
from tests.learner.test_deduplicate import learner_of, plain_loss, sample_of

TEXTS = {"network": "texts", "text": "minilm"}
WORLDS = {
    "sets of texts": test_deduplicate.WORLDS["sets of texts"],
    "texts and numbers": ("crafter/Text", {"observe": ["view", "items", "counts"]}, TEXTS, None),
}
OTHERS = {
    "pictures": test_deduplicate.WORLDS["texts and pictures"],
    "another network": test_deduplicate.WORLDS["grid and text"],
    "words that learn": ("crafter/Text", {}, TEXTS | {"text": "learned"}, None),
    "distributions": ("crafter/Text", {}, TEXTS | test_deduplicate.DISTRIBUTIONS, None),
}


def weighted(sample, seed=0):
    """With weights as of priorities, and returns so far off that slopes are cut on both sides."""
    random = np.random.default_rng(seed)
    n = len(sample.row)
    reward = random.normal(0, 2, n).astype(np.float32)
    return dataclasses.replace(sample, weight=random.uniform(0.1, 1, n).astype(np.float32), reward=reward)


@pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
@pytest.mark.parametrize("world", WORLDS)
def test_the_gradient_is_that_of_passes_over_every_row(world, double):
    dqn = learner_of(WORLDS[world], double=double)
    assert dqn.closed_form
    for seed in range(2):  # the second writes over the first
        sample = weighted(sample_of(dqn, seed=seed), seed)
        drawn = next(dqn.drawn(sample))
        error, means = dqn.closed_form(drawn, dqn.theirs(drawn))
        loss = plain_loss(dqn, sample)
        assert len(torch.unique(error)) > 30
        assert (error > 1).any()
        assert (error < -1).any()
        assert (error.abs() < 1).any()
        torch.testing.assert_close(error, dqn.loss(drawn)[1], atol=1e-5, rtol=1e-4)
        weighed = (torch.from_numpy(sample.weight) * loss).mean()
        value = dqn.loss(drawn)[2]
        reported = weighed.detach(), error.abs().mean(), value.mean()
        torch.testing.assert_close(means, torch.stack(reported), atol=1e-6, rtol=1e-4)
        wanted = torch.autograd.grad(weighed, list(dqn.policy.parameters()), materialize_grads=True)
        size = max(float(part.abs().max()) for part in wanted if part.numel())
        assert size > 1e-3
        for (name, parameter), gradient in zip(dqn.policy.named_parameters(), wanted, strict=True):
            torch.testing.assert_close(
                parameter.grad, gradient, atol=1e-5 * size, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}"
            )
        assert torch.equal(dqn.gradient, torch.cat([p.grad.flatten() for p in dqn.policy.parameters()]))


def test_a_run_takes_the_steps_that_it_would_take_without():
    with_it, without = (learner_of("sets of texts") for _ in range(2))
    without.closed_form = None
    reports = [dqn._steps(5, 1e-3, 0) for dqn in (with_it, without)]
    assert reports[0] == pytest.approx(reports[1], rel=1e-3)
    torch.testing.assert_close(with_it.adam.parameters, without.adam.parameters, atol=1e-5, rtol=1e-3)
    assert not torch.equal(with_it.adam.parameters, learner_of("sets of texts").adam.parameters)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_an_error(number):
    dqn = learner_of("sets of texts")
    before = dqn.adam.parameters.clone()
    with torch.no_grad():
        dqn.target.q.value[-1].bias.fill_(number)
    with pytest.raises(FloatingPointError):
        dqn._steps(3, 1e-3, 0)
    assert torch.equal(dqn.adam.parameters, before)


def test_errors_become_priorities():
    dqn = learner_of("sets of texts", prioritised=True, alpha=1.0)
    given, found, closed = [], [], dqn.closed_form
    dqn.closed_form = lambda *given: found.append(closed(*given)) or found[-1]
    dqn.replay.prioritise = lambda row, error: given.append(error)
    dqn._steps(1, 1e-3, 0)
    np.testing.assert_array_equal(given[0], found[0][0].numpy())
    assert len(np.unique(given[0])) > 20


@pytest.mark.parametrize("other", OTHERS)
def test_other_policies_are_differentiated(other):
    dqn = learner_of(OTHERS[other])
    assert dqn.closed_form is None
    assert not closed_form.suits(dqn.policy)
    before = dqn.adam.parameters.clone()
    dqn._steps(1, 1e-3, 0)
    assert not torch.equal(dqn.adam.parameters, before)


@pytest.mark.parametrize("fit", ["linear", "critic"])
def test_parts_of_a_policy_are_differentiated(fit):
    assert learner_of("sets of texts", fit=fit).closed_form is None
