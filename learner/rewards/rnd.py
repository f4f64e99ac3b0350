"""Random network distillation (Burda et al. 2019, arXiv 1810.12894): reward for observations that a network has not
learned yet.

    numbers of an observation ──> target (random, never trained) ──┐
                              └─> predictor (trained to repeat) ───┴─> error: large where little was seen

It pays the error after a step, in standard deviations of all errors so far.
"""

from __future__ import annotations

import torch
from torch import Tensor

from learner.curiosity.networks import Judge, NetworkTerm, Places, layers
from learner.curiosity.reading import Moments
from learner.optim.collective import Group

LEAST = 0.1  # share of the mean error: smallest deviation to divide by


class Distillation(Judge):
    """Errors of a predictor that is trained to match a random network of the same `hidden` width."""

    def __init__(self, width: int, hidden: int, group: Group) -> None:
        super().__init__()
        self.hidden = hidden
        self.predictor = layers(width, hidden, hidden, hidden)
        self.target = layers(width, hidden, hidden, hidden).requires_grad_(False)
        self.moments = Moments(1, group)

    def errors(self, x: Tensor) -> Tensor:
        """Mean squared error of the predictor: [M, width] -> [M]."""
        result: Tensor = (self.predictor(x) - self.target(x)).square().mean(-1)
        return result

    @torch.no_grad()
    def worth(self, x: Tensor, places: Places) -> Tensor:
        """Rewards [S]: the errors after the steps that were taken."""
        errors = self.errors(x[places.after])
        return self.in_deviations(errors, errors)

    def in_deviations(self, worth: Tensor, errors: Tensor) -> Tensor:
        """`worth` [S], divided by the standard deviation of all errors so far, including these [S]."""
        self.moments.update(errors[:, None])
        return worth / torch.maximum(self.moments.deviation, LEAST * self.moments.mean).clamp(min=1e-12).float()

    def loss(self, before: Tensor, after: Tensor, action: Tensor) -> Tensor:
        """Squared errors after the steps, summed over outputs."""
        return self.errors(after).mean() * self.hidden


class RND(NetworkTerm):
    """Pays the error with which a network predicts a random one."""

    def judge(self, width: int) -> Judge:
        return Distillation(width, self.setup.config.hidden, self.setup.group)


TERM = RND
