"""The policy that training began with, for those that were something before: what they shall stay close to.

    weights given ──> kept aside ──> in the policy's place for one pass ──> logits, which `losses.pull` pulls towards

Two uses. `reference_kl` makes it dear, all along, to become another policy. `critic_warmup` holds the policy where it
is while its values are learned: a critic that knows nothing makes advantages of noise, and noise undoes within some
thousand steps what a policy had been given. The body that policy and values share is free to learn meanwhile: values
that a frozen body was asked for explained a tenth of what they then did.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from learner.models.weights import Weighted, get_weights, set_weights


class Origin:
    """Keeps the weights of `policy` as they are now."""

    def __init__(self, policy: Weighted) -> None:
        self._policy = policy
        self.begin()

    def begin(self) -> None:
        """The policy was given the weights that it begins with."""
        self.weights = get_weights(self._policy)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the policy is what it began as."""
        own = get_weights(self._policy)
        try:
            set_weights(self._policy, self.weights)
            yield
        finally:
            set_weights(self._policy, own)
