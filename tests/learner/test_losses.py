"""The loss against numbers worked out by hand, and its gradient against automatic differentiation of the formulas."""

import math

import numpy as np
import pytest
import torch

from learner.algorithms.ppo.losses import REPORT, Loss, Steps


def logits_of(*rows):
    """Logits whose probabilities are these."""
    return np.log(np.array(rows, np.float32))


def steps(action, old_log_prob, advantage, weight=1.0, value=0.0, target=0.0):
    floats = (np.broadcast_to(np.float32(x), len(action)).copy() for x in (old_log_prob, advantage))
    rest = (np.broadcast_to(np.float32(x), len(action)).copy() for x in (weight, value, target))
    return Steps(np.array(action), *floats, *rest)


def report_of(loss, logits, value, of):
    return dict(zip(REPORT, loss.gradient(logits, np.array(value, np.float32), of)[2].tolist(), strict=True))


ONLY_POLICY = Loss(0.2, None, 0.0, 0.0)


def test_clipped_surrogate_by_hand():
    logits = logits_of([0.75, 0.25], [0.25, 0.75], [0.75, 0.25], [0.25, 0.75])
    of = steps([0, 0, 0, 0], math.log(0.5), [1.0, 1.0, -1.0, -1.0])  # ratios 1.5, 0.5, 1.5, 0.5
    # min(ratio * A, clip(ratio) * A): 1.2, 0.5, -1.5, -0.8; the loss is minus their mean.
    report = report_of(ONLY_POLICY, logits, [0.0] * 4, of)
    assert report["policy"] == pytest.approx(-(1.2 + 0.5 - 1.5 - 0.8) / 4, rel=1e-5)
    assert report["clip_fraction"] == 1.0


def test_no_gradient_once_the_ratio_left_the_clip_range_in_the_right_direction():
    logits = logits_of([0.75, 0.25], [0.5, 0.5])
    d_logits, _, _ = ONLY_POLICY.gradient(logits, np.zeros(2, np.float32), steps([0, 0], math.log(0.5), 1.0))
    assert d_logits[0].tolist() == [0, 0]
    assert d_logits[1, 0] < 0 < d_logits[1, 1]  # minimising the loss raises the probability of a good action


def test_weight_scales_stale_steps():
    of = steps([0, 0], math.log(0.5), 1.0, weight=[1.0, 0.25])
    d_logits, _, _ = ONLY_POLICY.gradient(logits_of([0.5, 0.5], [0.5, 0.5]), np.zeros(2, np.float32), of)
    np.testing.assert_allclose(d_logits[1], 0.25 * d_logits[0], rtol=1e-6)


def test_value_loss_takes_the_worse_of_clipped_and_plain():
    logits, of = logits_of([0.5, 0.5], [0.5, 0.5]), steps([0, 0], 0.0, 0.0, value=0.0, target=1.0)
    # First: plain error 0, but the clipped value 0.2 is 0.8 off. Second: not clipped, 0.9 off.
    clipped, plain = Loss(0.2, 0.2, 1.0, 0.0), Loss(0.2, None, 1.0, 0.0)
    assert report_of(clipped, logits, [1.0, 0.1], of)["value"] == pytest.approx(0.5 * (0.64 + 0.81) / 2, rel=1e-5)
    assert report_of(plain, logits, [1.0, 0.1], of)["value"] == pytest.approx(0.5 * 0.81 / 2, rel=1e-5)


def test_refuses_to_broadcast():
    with pytest.raises(ValueError, match="do not fit"):
        ONLY_POLICY.gradient(np.zeros((4, 2), np.float32), np.zeros((4, 1), np.float32), steps([0] * 4, 0.0, 0.0))
    with pytest.raises(ValueError, match="do not fit"):
        ONLY_POLICY.gradient(np.zeros((3, 2), np.float32), np.zeros(3, np.float32), steps([0] * 4, 0.0, 0.0))


def test_approximate_kl_and_clip_fraction():
    logits = logits_of([0.65, 0.35], [0.5, 0.5])
    report = report_of(ONLY_POLICY, logits, [0.0, 0.0], steps([0, 0], math.log(0.5), 1.0))  # ratios 1.3 and 1
    assert report["approx_kl"] == pytest.approx((1.3 - 1 - math.log(1.3)) / 2, rel=1e-4)
    assert report["clip_fraction"] == pytest.approx(0.5)


@pytest.mark.parametrize("value_clip", [None, 0.2])
def test_the_gradient_is_that_of_the_formulas(value_clip):
    random = np.random.default_rng(1)
    n, actions = 512, 5
    action = random.integers(actions, size=n)
    old, advantage, value, old_value = random.normal(size=(4, n)).astype(np.float32)
    of = Steps(action, 0.3 * old - 1.6, advantage, random.random(n, np.float32), old_value, old_value + old)
    value = (old_value + 0.3 * value).astype(np.float32)
    logits = random.normal(size=(n, actions)).astype(np.float32)
    d_logits, d_value, report = Loss(0.2, value_clip, 0.5, 0.03).gradient(logits, value, of)

    told, said = torch.tensor(logits, requires_grad=True), torch.tensor(value, requires_grad=True)
    terms = reference(told, said, of, 0.2, value_clip)
    (terms[0] + 0.5 * terms[1] - 0.03 * terms[2]).backward()
    np.testing.assert_allclose(d_logits, told.grad, atol=1e-6 / n)
    np.testing.assert_allclose(d_value, said.grad, atol=1e-6 / n)
    np.testing.assert_allclose(report, [term.item() for term in terms], rtol=1e-5)
    assert 0.1 < report[REPORT.index("clip_fraction")] < 0.9  # both sides of the clip range were met


def reference(logits, value, of, clip, value_clip):
    """The terms of the loss as the papers write them, and the three statistics."""
    log_probs = torch.log_softmax(logits, -1)
    old, advantage, weight, old_value, target = map(
        torch.from_numpy, (of.log_prob, of.advantage, of.weight, of.value, of.target)
    )
    log_ratio = log_probs.gather(-1, torch.from_numpy(of.action)[:, None])[:, 0] - old
    ratio = log_ratio.exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    error = (value - target).square()
    if value_clip is not None:
        error = torch.maximum(error, (old_value + (value - old_value).clamp(-value_clip, value_clip) - target).square())
    return (
        -(weight * surrogate).mean(),
        0.5 * error.mean(),
        -(log_probs.exp() * log_probs).sum(-1).mean(),
        (ratio - 1 - log_ratio).mean(),
        ((ratio - 1).abs() > clip).float().mean(),
        (ratio - 1).square().mean(),
    )


@pytest.mark.parametrize("where", ["logits", "value", "advantage", "target"])
def test_what_is_not_finite_stays_so(where):
    """The learner skips such a gradient; a zero in its place would hide the fault."""
    logits, value = np.zeros((2, 3), np.float32), np.zeros(2, np.float32)
    of = steps([0, 1], -1.0, 1.0)
    {"logits": logits, "value": value, "advantage": of.advantage, "target": of.target}[where][1] = np.nan
    d_logits, d_value, _ = Loss(0.2, 0.2, 0.5, 0.01).gradient(logits, value, of)
    assert not np.isfinite([*d_logits[1], d_value[1]]).all()
    assert np.isfinite([*d_logits[0], d_value[0]]).all()
