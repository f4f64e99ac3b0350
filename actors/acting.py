"""A policy at work: weights by version, dense observations in, actions out."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.api import Observation, VectorEnv
from learner.group import Weights, set_weights
from learner.models.policy import Policy


class ActingPolicy:
    """A policy that only acts: weights by version, and every text encoded once per version.

    With `alone`, texts are encoded one by one: a code's last bits then do not depend on which texts came together.
    """

    def __init__(self, policy: Policy, env: VectorEnv, alone: bool) -> None:
        self.policy, self.env, self.alone = policy.eval(), env, alone
        self.version = -1
        self._codes = torch.zeros(0, policy.hidden)
        self._encoded = np.zeros(0, np.bool_)

    def load(self, weights: Weights, version: int) -> None:
        """Take new weights; equal versions are skipped."""
        if version != self.version:
            set_weights(self.policy, weights)
            self.version = version
            self._encoded[:] = False

    def play_in(self, env: VectorEnv) -> ActingPolicy:
        """The same policy at work in another env, whose texts have other ids."""
        other = ActingPolicy(self.policy, env, self.alone)
        other.version = self.version
        return other

    @torch.no_grad()
    def step(self, obs: Observation, state: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Logits [B, A], values [B] and next state of dense observations [B, ...]."""
        names = self.policy.text_fields
        if names:
            self._encode(np.unique(np.stack([obs[name] for name in names])))
        visible = {name: torch.from_numpy(obs[name]) for name in self.policy.fields}
        return self.policy.step(visible, self._codes, state)

    def _encode(self, ids: NDArray[np.int32]) -> None:
        known = len(self.env.texts)
        if known > len(self._encoded):
            grown = max(64, 2 * known)
            self._encoded = np.concatenate([self._encoded, np.zeros(grown - len(self._encoded), np.bool_)])
            self._codes = torch.cat([self._codes, torch.zeros(grown - len(self._codes), self.policy.hidden)])
        new = ids[~self._encoded[ids]]
        for group in [new[i : i + 1] for i in range(len(new))] if self.alone else [new] if len(new) else []:
            self._codes[torch.from_numpy(group).long()] = self.policy.codes(
                self.policy.prepare(self.env.texts.texts(group))
            )
        self._encoded[new] = True


def sample(logits: Tensor, uniform: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Draw actions [B] from logits [B, A] with uniform numbers [B] in [0, 1); also their log-probabilities [B]."""
    log_probs = torch.log_softmax(logits, -1).numpy()
    cumulative = np.exp(log_probs).cumsum(-1)
    action = (cumulative < uniform[:, None] * cumulative[:, -1:]).sum(-1)
    return action, log_probs[np.arange(len(action)), action]
