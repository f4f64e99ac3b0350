"""The policy that training began with, to which a pretrained policy is kept close."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from learner.models.weights import Weighted, Weights, assert_same_shapes
from learner.optim.device import read


class Reference:
    """The initial policy, to which a pretrained policy is kept close.

    It has two uses. `reference_kl` penalises, throughout training, moving away from the initial policy. `critic_warmup`
    holds the policy in place while its values are learned: an untrained critic yields advantages of noise, and within
    some thousand steps noise destroys what a policy had learned before. The body that policy and values share is free
    to learn meanwhile: with a frozen body, the values explained a tenth as much.
    """

    def __init__(self, policy: Weighted) -> None:
        self._policy = policy
        self.begin()

    def begin(self) -> None:
        """The policy got its initial weights."""
        self._weights = self._copies()

    @property
    def weights(self) -> Weights:
        """The initial weights."""
        return {name: np.array(read(value)) for name, value in self._weights.items()}

    def restore(self, weights: Weights) -> None:
        """Set the initial weights; ValueError if they belong to another policy."""
        assert_same_shapes(self._weights, weights)
        for name, value in self._weights.items():
            value.copy_(torch.from_numpy(np.array(weights[name])))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within this context, the policy has its initial weights. Both copies are on its device, so that the host does
        not wait."""
        own = self._copies()
        try:
            self._load(self._weights)
            yield
        finally:
            self._load(own)

    def _copies(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self._policy.payload().items()}

    def _load(self, weights: Mapping[str, Tensor]) -> None:
        for name, value in self._policy.payload().items():
            value.copy_(weights[name])
