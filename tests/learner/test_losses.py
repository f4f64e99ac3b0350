"""Losses against numbers worked out by hand, and their gradients' signs."""

import math

import pytest
import torch

from learner import losses


def test_clipped_surrogate_by_hand():
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5])
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0])
    # min(ratio * A, clip(ratio) * A): 1.2, 0.5, -1.5, -0.8; the loss is minus their mean.
    loss = losses.policy_loss(ratio.log(), torch.zeros(4), advantage, 0.2, torch.ones(4))
    assert loss.item() == pytest.approx(-(1.2 + 0.5 - 1.5 - 0.8) / 4)


def test_no_gradient_once_the_ratio_left_the_clip_range_in_the_right_direction():
    log_prob = torch.tensor([math.log(1.5), 0.0], requires_grad=True)
    losses.policy_loss(log_prob, torch.zeros(2), torch.ones(2), 0.2, torch.ones(2)).backward()
    assert log_prob.grad[0] == 0
    assert log_prob.grad[1] < 0  # minimising the loss raises the probability of a good action


def test_weight_scales_stale_steps():
    log_prob = torch.zeros(2, requires_grad=True)
    losses.policy_loss(log_prob, torch.zeros(2), torch.ones(2), 0.2, torch.tensor([1.0, 0.25])).backward()
    assert log_prob.grad[1] == pytest.approx(0.25 * log_prob.grad[0].item())


def test_value_loss_takes_the_worse_of_clipped_and_plain():
    value, old, target = torch.tensor([1.0, 0.1]), torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0])
    # First: plain error 0, but the clipped value 0.2 is 0.8 off. Second: not clipped, 0.9 off.
    assert losses.value_loss(value, old, target, 0.2).item() == pytest.approx(0.5 * (0.64 + 0.81) / 2)
    assert losses.value_loss(value, old, target, None).item() == pytest.approx(0.5 * 0.81 / 2)


def test_value_loss_refuses_to_broadcast():
    with pytest.raises(ValueError, match="differ in shape"):
        losses.value_loss(torch.zeros(4, 1), torch.zeros(4), torch.zeros(4), None)


def test_masked_actions_have_no_probability_and_no_entropy():
    mask = torch.tensor([[True, True, False]])
    log_probs = losses.categorical(torch.tensor([[0.0, 0.0, 50.0]]), mask)
    assert log_probs.exp()[0].tolist() == pytest.approx([0.5, 0.5, 0.0])
    assert losses.entropy(log_probs).item() == pytest.approx(math.log(2), rel=1e-5)


def test_approximate_kl_and_clip_fraction():
    old, new = torch.zeros(2), torch.tensor([math.log(1.3), 0.0])
    assert losses.approximate_kl(new, old).item() == pytest.approx((1.3 - 1 - math.log(1.3)) / 2, rel=1e-4)
    assert losses.clip_fraction(new, old, 0.2).item() == pytest.approx(0.5)
    assert losses.approximate_kl(old, old).item() == 0
