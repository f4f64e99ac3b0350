"""NovelD (Zhang et al. 2021, "NovelD: a simple yet effective exploration criterion"): reward for crossing into the new.

It pays what the novelty after a step (the error of `rnd`) exceeds alpha times the novelty before it by, if anything,
and only on the first visit of an episode.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.api import Chunk
from envs.config import Part
from learner.checkpoint import Arrays, part_of
from learner.curiosity.networks import Judge, NetworkTerm
from learner.curiosity.steps import Steps
from learner.curiosity.visits import Visits
from learner.optim.collective import Group
from learner.rewards import RewardSetup
from learner.rewards.rnd import Distillation


class NovelDConfig(Part):
    """Options of `method.intrinsic.name=noveld`."""

    first_visit: bool = True
    """`noveld`: pay for an observation only when it is met for the first time in an episode."""
    alpha: float = 1.0
    """`noveld`: how much of the novelty before the step counts."""


class Excess(Distillation):
    """Pays for errors that are larger after a step than `alpha` times those before it."""

    def __init__(self, width: int, hidden: int, group: Group, alpha: float) -> None:
        super().__init__(width, hidden, group)
        self.alpha = alpha

    @torch.no_grad()
    def worth(self, x: Tensor, steps: Steps, order: NDArray[np.int64]) -> Tensor:
        """Rewards [S]: what errors exceed those before the steps by."""
        _, before, after = (torch.from_numpy(part) for part in steps.taken)
        errors = self.errors(x)
        return self.in_deviations(torch.relu(errors[after] - self.alpha * errors[before]), errors[after])


class NovelD(NetworkTerm):
    """Pays how much more badly a network repeats a random one after a step than before it."""

    Config = NovelDConfig

    def __init__(self, setup: RewardSetup) -> None:
        self.options = setup.config.own(NovelDConfig)
        super().__init__(setup)
        self.visits = Visits(setup.fields) if self.options.first_visit else None

    def judge(self, width: int) -> Judge:
        return Excess(width, self.setup.config.hidden, self.setup.group, self.options.alpha)

    def mark(self, chunk: Chunk) -> NDArray[np.float32] | None:
        """1 where an observation is shown for the first time in its episode, else 0."""
        return self.visits.first(chunk) if self.visits else None

    def rank_state(self) -> Arrays:
        """What the episodes of this rank's envs have shown."""
        return {f"visits.{name}": value for name, value in self.visits.state().items()} if self.visits else {}

    def restore(self, state: Arrays, own: Arrays) -> None:
        super().restore(state, own)
        if self.visits is not None and (visits := part_of(own, "visits.")):
            self.visits.restore(visits)


TERM = NovelD
