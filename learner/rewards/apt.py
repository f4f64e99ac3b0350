"""APT: reward for distance to other states, in a representation that is trained to identify actions.

Liu & Abbeel 2021 (arXiv 2103.04551), on the trunk of a curiosity module (Pathak et al. 2017), as Laskin et al. 2021
(arXiv 2110.15191) combine the two:

    numbers of an observation ──> trunk ──> representation
    representations before and after ──> inverse model: which action it was (cross-entropy)
    representation before, action ──> forward model: representation after     (squared error)
    distances to the k nearest, by their mean so far ──> log(1 + their mean)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from envs.config import Part
from learner.curiosity.networks import Judge, NetworkTerm, Places, layers
from learner.curiosity.reading import Moments
from learner.optim.collective import Group
from learner.rewards import IntrinsicConfig

NEXT_TO_NOTHING = 1e-4  # as a share of the mean distance: states nearer than this count as the same


class APTConfig(Part):
    """Options of `method.intrinsic.name=apt`."""

    neighbours: int = 12
    """`apt`: number of neighbours."""
    particles: int = 1024
    """`apt`: largest number of states among which neighbours are searched, sampled anew each time."""


class Representation(Judge):
    """A trunk that learns which of `actions` was taken, and distances between its representations."""

    def __init__(self, width: int, hidden: int, actions: int, options: APTConfig, group: Group) -> None:
        super().__init__()
        self.actions, self.neighbours, self.particles = actions, options.neighbours, options.particles
        self.trunk = layers(width, 2 * hidden, hidden)
        self.inverse = layers(2 * hidden, 2 * hidden, actions)
        self.forwards = layers(hidden + actions, 2 * hidden, hidden)
        self.moments = Moments(1, group)

    @torch.no_grad()
    def worth(self, x: Tensor, places: Places) -> Tensor:
        """Rewards [S]: distances to neighbours, which are searched among the observations after the first step of each
        walk.

        A walk's own observations do not count as its neighbours.
        """
        crowd = places.order[: self.particles]
        place = self.trunk(x)
        place = place - place.mean(0)  # products of smaller numbers are more accurate
        distance = torch.cdist(place[places.after], place[places.first_after[crowd]])
        distance.masked_fill_(places.walk[:, None] == crowd, torch.inf)
        near = distance.topk(min(self.neighbours, len(crowd) - 1), largest=False, sorted=False).values  # [S, k]
        self.moments.update(near.reshape(-1, 1))
        near = near / self.moments.mean.clamp(min=1e-12).float() - NEXT_TO_NOTHING
        return near.clamp(min=0).mean(-1).log1p()

    def loss(self, before: Tensor, after: Tensor, action: Tensor) -> Tensor:
        """Losses of the two models: cross-entropy of the action, squared error of the next representation."""
        here, there = self.trunk(before), self.trunk(after)
        guess = self.inverse(torch.cat([here, there], -1))
        done = nn.functional.one_hot(action, self.actions).to(here.dtype)
        # The predicted representation is a constant here. Otherwise the trunk could map all states to one point,
        # which is easy to predict.
        ahead = self.forwards(torch.cat([here, done], -1)) - there.detach()
        loss: Tensor = nn.functional.cross_entropy(guess, action) + ahead.square().mean()
        return loss


class APT(NetworkTerm):
    """Pays the distance of a state from its neighbours."""

    Config = APTConfig

    @classmethod
    def check(cls, config: IntrinsicConfig, found: int) -> None:
        """Require more states than neighbours."""
        options = config.own(APTConfig)
        if options.neighbours >= min(options.particles, found):
            raise ValueError(
                f"method.intrinsic.neighbours={options.neighbours} must be less than the states they are looked for"
                f" among: {found} a rank here, and at most method.intrinsic.particles={options.particles}"
            )

    def judge(self, width: int) -> Judge:
        config, options = self.setup.config, self.setup.config.own(APTConfig)
        return Representation(width, config.hidden, self.setup.actions, options, self.setup.group)


TERM = APT
