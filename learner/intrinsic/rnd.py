"""Random network distillation (Burda et al. 2019, arXiv 1810.12894) and NovelD (Zhang et al. 2021).

    numbers of an observation ──> target (random, never trained) ──┐
                              └─> predictor (trained to repeat) ───┴─> error: large where little was seen

`rnd` pays the error after a step, in standard deviations of all errors so far. `noveld` pays what it exceeds alpha
times the error before the step by, if anything.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learner.collective import Group
from learner.intrinsic.config import IntrinsicConfig
from learner.intrinsic.moments import Moments
from learner.intrinsic.steps import Steps

LEAST = 0.1  # of the mean: errors that hardly differ must not be divided by next to nothing


class RND(nn.Module):
    """Judges observations by numbers [M, width]. `actions` means nothing to it."""

    def __init__(self, width: int, actions: int, config: IntrinsicConfig, group: Group) -> None:
        super().__init__()
        self.alpha = config.alpha if config.name == "noveld" else None
        self.hidden = config.hidden
        self.predictor = layers(width, config.hidden, config.hidden, config.hidden)
        self.target = layers(width, config.hidden, config.hidden, config.hidden).requires_grad_(False)
        self.moments = Moments(1, group)

    def errors(self, x: Tensor) -> Tensor:
        """Mean squared error of the predictor: [M, width] -> [M]."""
        result: Tensor = (self.predictor(x) - self.target(x)).square().mean(-1)
        return result

    @torch.no_grad()
    def worth(self, x: Tensor, steps: Steps, crowd: NDArray[np.int64]) -> Tensor:
        """Rewards [S] of the steps that were taken, whose observations have numbers `x` [M, width]."""
        _, before, after = (torch.from_numpy(part) for part in steps.taken)
        if self.alpha is None:
            errors = excess = self.errors(x[after])
        else:
            every = self.errors(x)
            errors, excess = every[after], torch.relu(every[after] - self.alpha * every[before])
        self.moments.update(errors[:, None])
        return excess / torch.maximum(self.moments.deviation, LEAST * self.moments.mean).clamp(min=1e-12).float()

    def loss(self, before: Tensor, after: Tensor, action: Tensor) -> Tensor:
        """What is to become small, of B steps between numbers [B, width]: squared errors, summed over outputs."""
        return self.errors(after).mean() * self.hidden


def layers(*widths: int) -> nn.Sequential:
    """Linear layers with ReLU between them, orthogonal at first."""
    found: list[nn.Module] = []
    for size, following in pairwise(widths):
        linear = nn.Linear(size, following)
        nn.init.orthogonal_(linear.weight, math.sqrt(2))
        nn.init.zeros_(linear.bias)
        found += [linear, nn.ReLU()]
    return nn.Sequential(*found[:-1])
