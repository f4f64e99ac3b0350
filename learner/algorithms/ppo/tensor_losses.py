"""The loss of `losses.py` as array operations, for a policy that is not on the CPU. The formulas are explained there.

Nothing here reads a number back, so the host never waits for a GPU. The limit is launching some thirty small
operations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from learner.algorithms.ppo.steps import Steps


def gradient(
    logits: Tensor,
    value: Tensor,
    steps: Steps[Tensor],
    clip: float,
    value_clip: float | None,
    value_coefficient: float,
    entropy_coefficient: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`Loss.gradient`: gradients by logits [B, A] and values [B], and the means that `REPORT` names, [6]."""
    size, log_probability = len(value), logits.log_softmax(-1)
    probability = log_probability.exp()
    entropy = -(probability * log_probability).sum(-1)
    action = steps.action[:, None]
    log_ratio = log_probability.gather(1, action).squeeze(1) - steps.log_prob
    ratio = log_ratio.exp()
    surrogate, clipped = ratio * steps.advantage, ratio.clamp(1 - clip, 1 + clip) * steps.advantage
    cut = clipped < surrogate
    slope = torch.where(cut, 0.0, steps.weight * surrogate / size)
    by_entropy = entropy_coefficient / size * (log_probability + entropy[:, None])
    chosen = torch.arange(logits.shape[1], device=logits.device) == action
    d_logits = probability * (slope[:, None] + by_entropy) - torch.where(chosen, slope[:, None], 0.0)

    error = value - steps.target
    d_value, squared = value_coefficient / size * error, error.square()
    if value_clip is not None:
        nearest, furthest = steps.value - value_clip, steps.value + value_clip
        bounded = (value.clamp(nearest, furthest) - steps.target).square()
        d_value, squared = torch.where(bounded > squared, 0.0, d_value), torch.maximum(squared, bounded)
    terms = (
        -steps.weight * torch.where(cut, clipped, surrogate),
        0.5 * squared,
        entropy,
        ratio - 1 - log_ratio,
        ((ratio - 1).abs() > clip).to(value.dtype),
        (ratio - 1).square(),
    )
    return d_logits, d_value, torch.stack(terms).mean(1)


def pull(logits: Tensor, reference: Tensor, coefficient: float) -> tuple[Tensor, Tensor]:
    """`losses.pull`: the gradient [B, A], and the mean divergence, []."""
    now, before = logits.log_softmax(-1), reference.log_softmax(-1)
    probability = now.exp()
    apart = torch.where(probability > 0, now - before, 0.0)
    divergence = (probability * apart).sum(-1, keepdim=True)
    return coefficient / len(logits) * probability * (apart - divergence), divergence.mean()


def token_gradient(new: Tensor, old: Tensor, steps: Steps[Tensor], clip: float, whole: bool) -> tuple[Tensor, Tensor]:
    """`losses.token_gradient`: the gradient [B, L], and means as `REPORT` names them, [6]."""
    real = (new != 0) | (old != 0)
    part = real / real.sum(-1, keepdim=True).clamp(min=1) / len(new)
    log_ratio = torch.where(real, new - old, 0.0)
    if whole:
        log_ratio = log_ratio.sum(-1, keepdim=True).expand_as(new)
    ratio = log_ratio.exp()
    advantage, weight = steps.advantage[:, None], steps.weight[:, None]
    surrogate, clipped = ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage
    slope = torch.where(clipped < surrogate, 0.0, -weight * (real / len(new) if whole else part) * surrogate)
    nothing = torch.zeros_like(ratio)
    terms = (
        -weight * torch.minimum(surrogate, clipped),
        nothing,
        nothing,
        ratio - 1 - log_ratio,
        ((ratio - 1).abs() > clip).to(ratio.dtype),
        (ratio - 1).square(),
    )
    return slope, torch.stack([(part * term).sum() for term in terms])
