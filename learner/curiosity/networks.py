"""A reward term with networks that evaluate observations: it reads them, rewards steps, and learns from them.

    Steps ──> Reader: numbers [M, width] ──> Judge: worth of each step ──> weighed, summed over views
                                         └─> its loss, gradients averaged over ranks, Adam

Texts are evaluated separately from the rest, in a view of their own. Rewards are computed with the networks' weights at
the time of sampling; then the networks learn from the first step of each walk, in minibatches. Weights, optimiser and
statistics are equal on all ranks.
The limit is arithmetic: three layers forward for every observation, and forward and backward for every walk.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from envs.api import Field
from learner.checkpoint import Arrays, part_of
from learner.curiosity.reading import Reader
from learner.curiosity.steps import Steps
from learner.optim.adam import Adam, optimiser_step, side_by_side
from learner.optim.device import read, read_mean, send
from learner.rewards import RewardSetup, RewardTerm
from learner.store.replay import Floats

STREAM = 1_000_003  # separates the random numbers here from others with the same counters


@dataclass
class Places:
    """The observations that a judge evaluates, as rows, int64, on the networks' device.

    For the S steps that were taken: the walk, and the rows before and after. For the first step of each of B walks:
    rows and action. And a random order of the walks, the same for all views.
    """

    walk: Tensor  # [S]
    before: Tensor  # [S]
    after: Tensor  # [S]
    first_before: Tensor  # [B]
    first_after: Tensor  # [B]
    action: Tensor  # [B]
    order: Tensor  # [B]

    @staticmethod
    def of(steps: Steps, order: NDArray[np.int64], where: torch.device) -> Places:
        """Sent in one copy."""
        columns = (*steps.taken, steps.before[:, 0], steps.after[:, 0], steps.action, order)
        return Places(*send(dict(enumerate(columns)), where).values())


class Judge(nn.Module):
    """The networks that evaluate one view. All parameters with gradients are trained by `loss`."""

    @abstractmethod
    def worth(self, x: Tensor, places: Places) -> Tensor:
        """Rewards [S] of the steps that were taken, from features `x` [M, width] of the observations; no gradient."""

    @abstractmethod
    def loss(self, before: Tensor, after: Tensor, action: Tensor) -> Tensor:
        """The loss of B steps between features [B, width] by actions int64 [B]."""


class View(nn.Module):
    """Fields that are evaluated together."""

    def __init__(
        self, fields: Mapping[str, Field], weight: float, setup: RewardSetup, judge: Callable[[int], Judge]
    ) -> None:
        super().__init__()
        self.weight = weight
        self.reader = Reader(fields, setup.words, setup.group)
        self.judge = judge(self.reader.width)


class NetworkTerm(RewardTerm):
    """A term that defines its networks by `judge`; the rest is here."""

    def __init__(self, setup: RewardSetup) -> None:
        self.setup = setup
        with torch.random.fork_rng(devices=[]):  # drawn on the processor
            torch.manual_seed(setup.seed)
            self.views = [View(fields, weight, setup, self.judge) for fields, weight in setup.views]
        self.device = torch.device(setup.device)
        self.networks = nn.ModuleList(self.views).to(self.device)
        self.owned = [p for p in self.networks.parameters() if p.requires_grad]
        parameters, self.gradient = side_by_side(self.owned)
        self.adam = Adam(parameters)
        self.calls = 0
        self._paid: tuple[list[Tensor], Places] | None = None  # features by view

    @abstractmethod
    def judge(self, width: int) -> Judge:
        """A new judge of observations with this many features."""

    def pay(self, steps: Steps) -> Floats:
        random = np.random.default_rng([self.setup.seed, self.calls, self.setup.group.rank, STREAM])
        places = Places.of(steps, random.permutation(len(steps.after)), self.device)
        worth, numbers = torch.zeros(len(places.walk), device=self.device), []
        for view in self.views:
            seen = view.reader.read(steps.obs, steps.texts)
            view.reader.moments.update(seen[places.first_after])
            numbers.append(view.reader.scale(seen))
            worth += view.weight * view.judge.worth(numbers[-1], places)
        self._paid = numbers, places
        self.calls += 1
        return read(worth)

    def update(self, steps: Steps) -> float:
        """One pass over the walks that were just rewarded. Returns the mean loss."""
        assert self._paid, "what is learned from was paid for"
        numbers, places = self._paid
        parts = places.order.tensor_split(max(1, round(len(places.order) / self.setup.minibatch)))
        return float(read_mean([self._step(numbers, places, part) for part in parts]))

    def _step(self, numbers: Sequence[Tensor], places: Places, walk: Tensor) -> Tensor:
        before, after, action = (rows[walk] for rows in (places.first_before, places.first_after, places.action))
        self.gradient.zero_()
        losses = [view.judge.loss(x[before], x[after], action) for view, x in zip(self.views, numbers, strict=True)]
        loss = torch.stack(losses).sum()
        torch.autograd.backward(loss, inputs=self.owned)
        optimiser_step(self.adam, [self.gradient], self.setup.group, math.inf, self.setup.config.learning_rate)
        return loss.detach()

    def state(self) -> Arrays:
        """Networks, optimiser, and the number of calls, from which the random numbers follow."""
        arrays = {f"networks.{name}": read(value).copy() for name, value in self.networks.state_dict().items()}
        arrays |= {f"optimiser.{name}": value for name, value in self.adam.state().items()}
        return arrays | {"calls": np.array(self.calls)}

    def restore(self, state: Arrays, own: Arrays) -> None:
        try:
            self.networks.load_state_dict({n: torch.from_numpy(v) for n, v in part_of(state, "networks.").items()})
        except RuntimeError:
            raise ValueError("the checkpoint's intrinsic reward is of other networks") from None
        self.adam.restore(part_of(state, "optimiser."))
        self.calls = int(state["calls"])


def layers(*widths: int) -> nn.Sequential:
    """Linear layers with ReLU between them, orthogonal at first."""
    found: list[nn.Module] = []
    for size, following in pairwise(widths):
        linear = nn.Linear(size, following)
        nn.init.orthogonal_(linear.weight, math.sqrt(2))
        nn.init.zeros_(linear.bias)
        found += [linear, nn.ReLU()]
    return nn.Sequential(*found[:-1])
