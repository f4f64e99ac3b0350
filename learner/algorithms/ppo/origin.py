"""The policy that training began with, for those that were something before: what they shall stay close to.

    weights given ──> kept aside ──> in the policy's place for one pass ──> logits, which `losses.pull` pulls towards

Two uses. `reference_kl` makes it dear, all along, to become another policy. `critic_warmup` holds the policy where it
is while its values are learned: a critic that knows nothing makes advantages of noise, and noise undoes within some
thousand steps what a policy had been given. The body that policy and values share is free to learn meanwhile: values
that a frozen body was asked for explained a tenth of what they then did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from learner.checkpoint import Arrays


class Origin:
    """Keeps the weights of `policy` as they are now.

    policy: has a `payload()` of views of what is trained.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.begin()

    def begin(self) -> None:
        """The policy was given the weights that it begins with."""
        self._weights = {name: value.clone() for name, value in self._policy.payload().items()}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the policy is what it began as."""
        own = {name: value.clone() for name, value in self._policy.payload().items()}
        try:
            self._place(self._weights)
            yield
        finally:
            self._place(own)

    def state(self) -> Arrays:
        """The weights."""
        return {name: value.cpu().numpy() for name, value in self._weights.items()}

    def restore(self, state: Arrays) -> None:
        """Continue with those of `state`."""
        for name, value in self._weights.items():
            value.copy_(torch.from_numpy(np.array(state[name])))

    @torch.no_grad()
    def _place(self, weights: Mapping[str, Tensor]) -> None:
        for name, value in self._policy.payload().items():
            value.copy_(weights[name])
