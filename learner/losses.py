"""PPO's losses as pure functions of tensors (Schulman et al. 2017). All means are over every element."""

from __future__ import annotations

import torch
from torch import Tensor


def categorical(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Log-probabilities [..., A] of logits [..., A]; actions where `mask` is false get probability 0."""
    if mask is not None:
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    return torch.log_softmax(logits, -1)


def chosen(log_probs: Tensor, action: Tensor) -> Tensor:
    """Log-probability [...] of `action` [...] under `log_probs` [..., A]."""
    return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def entropy(log_probs: Tensor) -> Tensor:
    """Entropy [...] in nats of `log_probs` [..., A]; an action of probability 0 adds nothing."""
    return -(log_probs.exp() * log_probs.clamp(min=torch.finfo(log_probs.dtype).min)).sum(-1)


def policy_loss(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: float, weight: Tensor) -> Tensor:
    """Clipped surrogate (eq. 7), each step weighted by `weight` (1 on fresh data, the clipped importance ratio of the
    policy at the start of the update over the behaviour policy on stale data). Shapes [B]; returns a scalar."""
    ratio = (log_prob - old_log_prob).exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    return -(weight * surrogate).mean()


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """Half the squared error to `target` [B]; with `clip`, the worse of the error and that of the clipped update."""
    if value.shape != target.shape:
        raise ValueError(f"value {tuple(value.shape)} and target {tuple(target.shape)} differ in shape")
    error = (value - target).square()
    if clip is not None:
        error = torch.maximum(error, (old_value + (value - old_value).clamp(-clip, clip) - target).square())
    return 0.5 * error.mean()


def approximate_kl(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """KL(old || new) from samples [B], by the low-variance estimator r - 1 - log r (Schulman 2020)."""
    log_ratio = log_prob - old_log_prob
    return (log_ratio.exp() - 1 - log_ratio).mean()


def clip_fraction(log_prob: Tensor, old_log_prob: Tensor, clip: float) -> Tensor:
    """Share of steps [B] whose ratio left [1 - clip, 1 + clip]."""
    return ((log_prob - old_log_prob).exp() - 1).abs().gt(clip).float().mean()
