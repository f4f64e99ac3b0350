"""APT: reward for being far from others, among representations that tell what was done.

Liu & Abbeel 2021 (arXiv 2103.04551), on the trunk of a curiosity module (Pathak et al. 2017), as Laskin et al. 2021
(arXiv 2110.15191) join the two:

    numbers of an observation ──> trunk ──> representation
    representations before and after ──> inverse model: which action it was  (cross-entropy)
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

NEXT_TO_NOTHING = 1e-4  # of the mean distance: what is nearer counts as the same place


class APTConfig(Part):
    """Options of `method.intrinsic.name=apt`."""

    neighbours: int = 12
    """`apt`: how many neighbours."""
    particles: int = 1024
    """`apt`: neighbours are looked for among so many states at most, drawn anew each time."""


class Representation(Judge):
    """A trunk that learns to tell which of `actions` was taken, and distances in what it makes of observations."""

    def __init__(self, width: int, hidden: int, actions: int, options: APTConfig, group: Group) -> None:
        super().__init__()
        self.actions, self.neighbours, self.particles = actions, options.neighbours, options.particles
        self.trunk = layers(width, 2 * hidden, hidden)
        self.inverse = layers(2 * hidden, 2 * hidden, actions)
        self.forwards = layers(hidden + actions, 2 * hidden, hidden)
        self.moments = Moments(1, group)

    @torch.no_grad()
    def worth(self, x: Tensor, places: Places) -> Tensor:
        """Rewards [S]: distances to neighbours, which are looked for among the observations after first steps.

        Those of a walk are no neighbours of it.
        """
        crowd = places.order[: self.particles]
        place = self.trunk(x)
        place = place - place.mean(0)  # products of smaller numbers lose fewer digits
        distance = torch.cdist(place[places.after], place[places.first_after[crowd]])
        distance.masked_fill_(places.walk[:, None] == crowd, torch.inf)
        near = distance.topk(min(self.neighbours, len(crowd) - 1), largest=False, sorted=False).values  # [S, k]
        self.moments.update(near.reshape(-1, 1))
        near = near / self.moments.mean.clamp(min=1e-12).float() - NEXT_TO_NOTHING
        return near.clamp(min=0).mean(-1).log1p()

    def loss(self, before: Tensor, after: Tensor, action: Tensor) -> Tensor:
        """Of the two models: cross-entropy of the action, squared error of what comes after it."""
        here, there = self.trunk(before), self.trunk(after)
        guess = self.inverse(torch.cat([here, there], -1))
        done = nn.functional.one_hot(action, self.actions).to(here.dtype)
        # What is to be foreseen is given: the easiest world to foresee would be one where all places are one.
        ahead = self.forwards(torch.cat([here, done], -1)) - there.detach()
        loss: Tensor = nn.functional.cross_entropy(guess, action) + ahead.square().mean()
        return loss


class APT(NetworkTerm):
    """Pays how far from its neighbours a state is."""

    Config = APTConfig

    @classmethod
    def check(cls, config: IntrinsicConfig, found: int) -> None:
        """There must be more states than neighbours."""
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
