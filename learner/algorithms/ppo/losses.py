"""PPO's loss in closed form (Schulman et al. 2017): from a policy's outputs for B steps to their gradient.

    loss = policy + value_coefficient * value - entropy_coefficient * entropy, each a mean over the B steps

    policy    -weight * min(ratio * advantage, clip(ratio) * advantage)                              (eq. 7)
    value     half the squared error to the target, or that of the clipped update where it is worse
    entropy   of the distribution over actions

Further terms are for pretrained policies: `pull` and `token_pull`, towards the initial policy, and `token_gradient`,
which clips the ratio of each token of an action's name, or that of a whole written answer.

Compiled code loops over the steps: the derivatives of a softmax are a few lines of algebra, and for hundreds of steps
this takes a tenth of the time of recording thirty array operations and differentiating them.

For a policy that is not on the CPU, the same functions take and return tensors (`tensor_losses.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.compiler import compiled
from learner.algorithms.ppo import tensor_losses
from learner.algorithms.ppo.steps import Steps

__all__ = ["REPORT", "Loss", "Steps", "log_prob", "of_tokens", "pull", "token_gradient"]

Array = NDArray[np.float32]

REPORT = ("policy", "value", "entropy", "approx_kl", "clip_fraction", "ratio_square")


@dataclass(frozen=True)
class Loss:
    """Clip ranges and coefficients of the terms."""

    clip: float
    value_clip: float | None
    value_coefficient: float
    entropy_coefficient: float

    def gradient(self, logits: Any, value: Any, steps: Steps[Any]) -> tuple[Any, Any, Any]:
        """d loss / d logits [B, A] and d loss / d value [B] at logits [B, A] and value [B].

        Also the means that `REPORT` names: the three terms, KL(old || new) by the low-variance estimator r - 1 - log r
        (Schulman 2020), the share of steps whose ratio left the clip range, and the squared distance of the ratio from
        1. Non-finite numbers are passed on.

        Raises:
            ValueError: shapes differ.
        """
        if not len(logits) == len(value) == len(steps.action) or value.shape != steps.target.shape:
            raise ValueError(f"logits {logits.shape}, value {value.shape} and target {steps.target.shape} do not fit")
        if isinstance(logits, Tensor):
            return tensor_losses.gradient(logits, value, steps, **vars(self))
        d_logits, d_value = np.empty(logits.shape, np.float32), np.empty(value.shape, np.float32)
        report = np.zeros(len(REPORT))
        _gradient(
            np.ascontiguousarray(logits),
            np.ascontiguousarray(value),
            steps.action,
            steps.log_prob,
            steps.advantage,
            steps.weight,
            steps.value,
            steps.target,
            self.clip,
            math.inf if self.value_clip is None else self.value_clip,
            self.value_coefficient / len(value),
            self.entropy_coefficient / len(value),
            d_logits,
            d_value,
            report,
        )
        return d_logits, d_value, report / len(value)


@compiled
def _gradient(
    logits: Array,
    values: Array,
    actions: NDArray[np.int64],
    old_log_probs: Array,
    advantages: Array,
    weights: Array,
    old_values: Array,
    targets: Array,
    clip: float,
    value_clip: float,
    value_share: float,
    entropy_share: float,
    d_logits: Array,
    d_values: Array,
    report: NDArray[np.float64],
) -> None:
    """Fill `d_logits` and `d_values`; add every step's numbers to `report`. Arithmetic is in float64."""
    steps, size = logits.shape
    for b in range(steps):
        largest = logits[b, 0]
        for a in range(1, size):
            largest = max(largest, logits[b, a])
        total = 0.0
        for a in range(size):
            d_logits[b, a] = math.exp(logits[b, a] - largest)  # p(a) * total at first
            total += d_logits[b, a]
        normaliser = largest + math.log(total)  # log p(a) = logit(a) - normaliser
        entropy = 0.0
        for a in range(size):
            d_logits[b, a] /= total
            entropy -= d_logits[b, a] * (logits[b, a] - normaliser)

        log_ratio = logits[b, actions[b]] - normaliser - old_log_probs[b]
        ratio = math.exp(log_ratio)
        surrogate = ratio * advantages[b]
        slope = weights[b] * surrogate / steps  # of the surrogate along log p(action), since d ratio = ratio d log p
        clipped = min(max(ratio, 1 - clip), 1 + clip) * advantages[b]
        if clipped < surrogate:
            surrogate, slope = clipped, 0.0

        # d log p(action) / d logit(a) = [a = action] - p(a); d entropy / d logit(a) = -p(a) (log p(a) + entropy)
        for a in range(size):
            d_logits[b, a] *= slope + entropy_share * (logits[b, a] - normaliser + entropy)
        d_logits[b, actions[b]] -= slope

        value, old_value, target = np.float64(values[b]), np.float64(old_values[b]), np.float64(targets[b])
        error = value - target
        bounded = min(max(value, old_value - value_clip), old_value + value_clip) - target
        d_values[b] = 0.0 if bounded * bounded > error * error else value_share * error

        report[0] -= weights[b] * surrogate
        report[1] += 0.5 * max(error * error, bounded * bounded)
        report[2] += entropy
        report[3] += ratio - 1 - log_ratio
        report[4] += abs(ratio - 1) > clip
        report[5] += (ratio - 1) ** 2


def pull(logits: Any, reference: Any, coefficient: float) -> tuple[Any, Any]:
    """Gradient [B, A] by logits [B, A] of `coefficient` times the mean of KL(policy || reference), and that mean.

    reference: logits [B, A]; `FORBIDDEN` where the policy's are.
    """
    if isinstance(logits, Tensor):
        return tensor_losses.pull(logits, reference, coefficient)
    now, before = _log_softmax(logits), _log_softmax(reference)
    probability = np.exp(now)
    apart = np.where(probability > 0, now - before, 0.0)
    divergence = (probability * apart).sum(-1, keepdims=True)  # d KL / d logit(a) = p(a) (log p(a) - log q(a) - KL)
    gradient = coefficient / len(logits) * probability * (apart - divergence)
    return gradient.astype(np.float32), float(divergence.mean())


def token_pull(new: Any, reference: Any, coefficient: float) -> tuple[Any, Any]:
    """Gradient [B, L] by `new` of `coefficient` times an estimate of KL(policy || reference) by token; the estimate.

    It is the mean over steps, and over their drawn tokens, of q/p - 1 - log q/p (Schulman 2020).

    new, reference: log-probabilities [B, L] of drawn tokens; 0 in both after an answer's end.
    """
    exp: Any = torch.exp if isinstance(new, Tensor) else np.exp
    real = (new != 0) | (reference != 0)
    share = real / real.sum(-1).clip(1)[:, None] / len(new)
    apart = reference - new
    grown = exp(apart)
    return coefficient * share * (1 - grown), (share * (grown - 1 - apart)).sum()


def token_gradient(new: Any, old: Any, steps: Steps[Any], clip: float, whole: bool = False) -> tuple[Any, Any]:
    """The policy term by tokens: eq. 7 for each token's own ratio, averaged over the action's tokens; or for the ratio
    of all of its tokens together.

    Args:
        new, old: log-probabilities [B, L] of the tokens of each action's name, now and at the start of the update; 0 in
            both after the end of a name. A real token has 0 in both only if it is certain.
        steps: advantage and weight are used.
        whole: one ratio for an action, the product over its tokens.

    Returns:
        The gradient [B, L] by `new`, and means as `REPORT` names them: 0 for value and entropy.
    """
    if isinstance(new, Tensor):
        return tensor_losses.token_gradient(new, old, steps, clip, whole)
    real = (new != 0) | (old != 0)
    part = real / np.maximum(real.sum(-1, keepdims=True), 1) / len(new)
    log_ratio = np.where(real, new - old, 0.0).astype(np.float64)
    if whole:
        log_ratio = np.broadcast_to(log_ratio.sum(-1, keepdims=True), new.shape)
    ratio = np.exp(log_ratio)
    advantage, weight = steps.advantage[:, None].astype(np.float64), steps.weight[:, None]
    surrogate, clipped = ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage
    each = real / len(new) if whole else part  # a ratio of the whole depends on every token in full
    gradient = np.where(clipped < surrogate, 0.0, -weight * each * surrogate)
    terms = (
        -weight * np.minimum(surrogate, clipped),
        0.0,
        0.0,
        ratio - 1 - log_ratio,
        np.abs(ratio - 1) > clip,
        (ratio - 1) ** 2,
    )
    return gradient.astype(np.float32), np.array([(part * term).sum() for term in terms])


def of_tokens(said: Any, found: Any) -> Any:
    """The means of `REPORT`: the ones about the ratio from `token_gradient`, the rest from `Loss.gradient`."""
    join: Any = torch.cat if isinstance(said, Tensor) else np.concatenate
    return join([said[:1], found[1:3], said[3:]])


def _log_softmax(logits: Array) -> NDArray[np.float64]:
    centred = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    result: NDArray[np.float64] = centred - np.log(np.exp(centred).sum(-1, keepdims=True))
    return result


def log_prob(logits: Array, action: NDArray[np.int64]) -> Array:
    """Log-probability [B] of `action` [B] under logits [B, A]."""
    centred = logits - logits.max(-1, keepdims=True)
    result: Array = centred[np.arange(len(action)), action] - np.log(np.exp(centred).sum(-1))
    return result
