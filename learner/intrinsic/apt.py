"""APT: reward for being far from others, among representations that tell what was done.

Liu & Abbeel 2021 (arXiv 2103.04551), on the trunk of a curiosity module (Pathak et al. 2017), as Laskin et al. 2021
(arXiv 2110.15191) join the two:

    numbers of an observation ──> trunk ──> representation
    representations before and after ──> inverse model: which action it was  (cross-entropy)
    representation before, action ──> forward model: representation after     (squared error)
    distances to the k nearest, by their mean so far ──> log(1 + their mean)
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learner.collective import Group
from learner.intrinsic.config import IntrinsicConfig
from learner.intrinsic.moments import Moments
from learner.intrinsic.rnd import layers
from learner.intrinsic.steps import Steps

NEXT_TO_NOTHING = 1e-4  # of the mean distance: what is nearer counts as the same place


class APT(nn.Module):
    """Judges observations by numbers [M, width], of a world of so many `actions`."""

    def __init__(self, width: int, actions: int, config: IntrinsicConfig, group: Group) -> None:
        super().__init__()
        hidden = config.hidden
        self.actions, self.neighbours = actions, config.neighbours
        self.trunk = layers(width, 2 * hidden, hidden)
        self.inverse = layers(2 * hidden, 2 * hidden, actions)
        self.forwards = layers(hidden + actions, 2 * hidden, hidden)
        self.moments = Moments(1, group)

    @torch.no_grad()
    def worth(self, x: Tensor, steps: Steps, crowd: NDArray[np.int64]) -> Tensor:
        """Rewards [S] of the steps that were taken, whose observations have numbers `x` [M, width].

        crowd: [P] walks; neighbours are looked for among the observations after their first steps. Those of a walk are
        no neighbours of it.
        """
        walk, _, after = steps.taken
        place = self.trunk(x)
        place = place - place.mean(0)  # products of smaller numbers lose fewer digits
        distance = torch.cdist(place[torch.from_numpy(after)], place[torch.from_numpy(steps.after[crowd, 0])])
        distance[torch.from_numpy(walk[:, None] == crowd)] = torch.inf
        near = distance.topk(min(self.neighbours, len(crowd) - 1), largest=False, sorted=False).values  # [S, k]
        self.moments.update(near.reshape(-1, 1))
        near = near / self.moments.mean.clamp(min=1e-12).float() - NEXT_TO_NOTHING
        worth: Tensor = near.clamp(min=0).mean(-1).log1p()
        return worth

    def loss(self, before: Tensor, after: Tensor, action: Tensor) -> Tensor:
        """What is to become small, of B steps between numbers [B, width] by actions int64 [B]."""
        here, there = self.trunk(before), self.trunk(after)
        guess = self.inverse(torch.cat([here, there], -1))
        done = nn.functional.one_hot(action, self.actions).to(here.dtype)
        # What is to be foreseen is given: the easiest world to foresee would be one where all places are one.
        ahead = self.forwards(torch.cat([here, done], -1)) - there.detach()
        loss: Tensor = nn.functional.cross_entropy(guess, action) + ahead.square().mean()
        return loss
