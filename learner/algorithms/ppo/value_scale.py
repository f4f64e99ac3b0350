"""Values with mean 0 and variance 1, whatever the scale of rewards (van Hasselt et al. 2016, "Learning values across
many orders of magnitude", section 2).

    the critic's output ──> times `std`, plus `mean` ──> value in the units of the reward
    targets of an update ──> mean and std move towards theirs ──> the critic's last layer changes so that values do not

A critic that must reach a return of 20 from 0 needs many steps of Adam. In units of the returns' own spread it is there
at once, and its share of the loss does not depend on the environment's reward scale.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from learner.optim.collective import Group

RATE = 0.1
"""Step size of the running mean and mean square towards those of an update."""
LEAST = 1e-4
"""Smallest standard deviation."""

Array = NDArray[np.float32]


class ValueScale:
    """Units of a critic, of which `layer` is the last."""

    def __init__(self, layer: nn.Linear) -> None:
        self._layer = layer
        self.mean, self.square, self._weight = 0.0, 0.0, 0.0  # `_weight`: bias correction, as in Adam

    @property
    def std(self) -> float:
        """Standard deviation of the targets; 1 before the first."""
        if not self._weight:
            return 1.0
        return max(math.sqrt(max(self.square - self.mean * self.mean, 0.0)), LEAST)

    def restore_units(self, value: Array) -> Array:
        """The critic's outputs -> values."""
        return (value * self.std + self.mean).astype(np.float32)

    def normalise(self, value: Array) -> Array:
        """Values -> targets for the critic's outputs."""
        return ((value - self.mean) / self.std).astype(np.float32)

    def follow(self, target: Array, group: Group) -> None:
        """Move towards the targets [...] of an update, over all ranks; predicted values do not change."""
        mean, square = group.mean([float(target.mean()), float(np.square(target, dtype=np.float64).mean())])
        before = self.mean, self.std
        weight = self._weight + RATE * (1 - self._weight)
        part = RATE / weight
        self.mean, self.square = self.mean + part * (mean - self.mean), self.square + part * (square - self.square)
        self._weight = weight
        with torch.no_grad():
            self._layer.weight.mul_(before[1] / self.std)
            self._layer.bias.mul_(before[1]).add_(before[0] - self.mean).div_(self.std)

    def state(self) -> dict[str, NDArray[Any]]:
        """What a restarted rank needs."""
        return {"numbers": np.array([self.mean, self.square, self._weight])}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state()`, together with the critic's weights of the same time."""
        self.mean, self.square, self._weight = state["numbers"].tolist()
