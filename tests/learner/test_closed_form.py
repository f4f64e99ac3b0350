"""DQN's gradient in closed form against the one that PyTorch derives, and where it is used."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from learner.algorithms.dqn import closed_form
from learner.optim import precision
from learner.optim.precision import arithmetic
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


def halved_learner_of(world, monkeypatch, **options):
    """Emulated where the processor has no bfloat16: slow, and the same numbers."""
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    dqn = learner_of(world, autocast="bfloat16", **options)
    dqn.refresh()
    return dqn


@pytest.mark.parametrize("world", WORLDS)
def test_in_bfloat16_it_is_near_to_float32_and_to_what_pytorch_derives(world, monkeypatch):
    dqn = halved_learner_of(WORLDS[world], monkeypatch)
    sample = weighted(sample_of(dqn))
    drawn = next(dqn.drawn(sample))
    exact = torch.autograd.grad(
        (torch.from_numpy(sample.weight) * plain_loss(dqn, sample)).mean(),
        list(dqn.policy.parameters()),
        materialize_grads=True,
    )
    with arithmetic(True):
        loss, away, _ = dqn.loss(drawn)
    derived = torch.autograd.grad((drawn.numbers["weight"] * loss).mean(), dqn.moved, materialize_grads=True)
    error, means = dqn.closed_form(drawn, dqn.theirs(drawn))
    assert {each.dtype for each in (error, means)} == {torch.float32}
    torch.testing.assert_close(error, away, atol=0.05, rtol=0.05)
    assert [each.dtype for each in dqn.written] == [each.dtype for each in dqn.moved]
    assert {torch.bfloat16, torch.float32} == {each.dtype for each in dqn.written}
    wanted, found, other = (
        torch.cat([part.float().flatten() for part in parts]) for parts in (exact, dqn.written, derived)
    )
    assert not torch.equal(found, wanted)
    # PyTorch's is 5 % off where texts are summed in bfloat16; else a ReLU or a best action that flips decides.
    for near in (wanted, other):
        assert (found - near).norm() < 0.1 * near.norm()


def test_in_bfloat16_a_run_takes_the_steps_that_it_would_take_without(monkeypatch):
    with_it, without = (halved_learner_of("sets of texts", monkeypatch) for _ in range(2))
    without.closed_form = None
    reports = [dqn._steps(5, 1e-3, 0) for dqn in (with_it, without)]
    assert reports[0] == pytest.approx(reports[1], rel=0.03)
    torch.testing.assert_close(with_it.adam.parameters, without.adam.parameters, atol=2e-3, rtol=1e-2)
    for dqn in (with_it, without):
        assert dqn.adam.parameters.dtype == torch.float32
        for own, other in zip(dqn.owned, dqn.moved, strict=True):
            assert torch.equal(own.to(other.dtype), other)


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
