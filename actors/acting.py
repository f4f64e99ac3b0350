"""A policy at work: weights by version, dense observations in, actions out."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from actors.language_policy import LanguageActing, LocalModel
from envs.api import Observation, VectorEnv
from envs.native.compiler import compiled
from learner.group import AnyPolicy, Weights, set_weights
from learner.models.llm_policy import LanguagePolicy
from learner.models.policy import Policy


class ActingPolicy:
    """A policy that only acts: weights by version, and every text encoded once per version.

    With `alone`, texts are encoded one by one: a code's last bits then do not depend on which texts came together.
    """

    def __init__(self, policy: Policy, env: VectorEnv, alone: bool) -> None:
        self.policy, self.env, self.alone = policy.eval(), env, alone
        self.fields, self.text_fields, self.initial_state = policy.fields, policy.text_fields, policy.initial_state
        self.version = -1
        self._codes = torch.zeros(0, policy.hidden)
        self._encoded = np.zeros(0, np.bool_)

    def load(self, weights: Weights | None, version: int) -> None:
        """Take new weights; equal versions are skipped."""
        if version != self.version:
            assert weights is not None
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
        """Logits [B, A], values [B] and next state of dense observations [B, ...].

        state: `Policy.initial_state`, or what the step before returned, 0 where an episode ended.
        """
        seen = {name: torch.from_numpy(obs[name]) for name in self.policy.fields}
        codes = self._codes
        if names := self.policy.text_fields:
            # One code for each env and field, whatever the ids are: what is computed must not depend on them.
            ids = np.concatenate([obs[name].ravel() for name in names])
            self._encode(ids)
            codes = self._codes.index_select(0, torch.from_numpy(ids))
            rows = torch.split(torch.arange(len(codes)), [obs[name].size for name in names])
            seen |= {name: of.view(obs[name].shape) for name, of in zip(names, rows, strict=True)}
        if self.policy.frames:
            assert state is not None
            seen, state = self.policy.frames.add(seen, state)
        return self.policy.step(self.policy.inputs(seen), codes, state)

    def _encode(self, ids: NDArray[np.int32]) -> None:
        """Make `_codes` hold the codes of these texts."""
        known = len(self.env.texts)
        if known > len(self._encoded):
            grown = max(64, 2 * known)
            self._encoded = np.concatenate([self._encoded, np.zeros(grown - len(self._encoded), np.bool_)])
            self._codes = torch.cat([self._codes, torch.zeros(grown - len(self._codes), self.policy.hidden)])
        if self._encoded[ids].all():
            return
        ids = np.unique(ids)
        new = ids[~self._encoded[ids]]
        for group in [new[i : i + 1] for i in range(len(new))] if self.alone else [new] if len(new) else []:
            self._codes[torch.from_numpy(group).long()] = self.policy.codes(
                self.policy.prepare(self.env.texts.texts(group))
            )
        self._encoded[new] = True


def act_with(policy: AnyPolicy, env: VectorEnv, alone: bool) -> ActingPolicy | LanguageActing:
    """A policy at work in an env."""
    if isinstance(policy, LanguagePolicy):
        return LanguageActing(LocalModel(policy), env, alone)
    return ActingPolicy(policy, env, alone)


def sample(logits: Tensor, uniform: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Draw actions [B] from logits [B, A] with uniform numbers [B] in [0, 1); also their log-probabilities [B]."""
    actions, log_probs = np.empty(len(uniform), np.int64), np.empty(len(uniform), np.float32)
    _sample(np.ascontiguousarray(logits.numpy()), uniform, actions, log_probs)
    return actions, log_probs


@compiled
def _sample(
    logits: NDArray[np.float32],
    uniform: NDArray[np.float32],
    actions: NDArray[np.int64],
    log_probs: NDArray[np.float32],
) -> None:
    """Fill `actions` and `log_probs`: the first action whose cumulative probability reaches the number drawn."""
    for b in range(len(logits)):
        largest = logits[b].max()
        total = 0.0
        for logit in logits[b]:
            total += math.exp(logit - largest)
        # Both sums in float64: in float32 this one may end below `drawn`, and a forbidden action would be taken.
        action, reached, drawn = 0, np.float64(math.exp(logits[b, 0] - largest)), uniform[b] * total
        while (reached < drawn or reached == 0.0) and action + 1 < logits.shape[1]:  # 0: what a mask forbids
            action += 1
            reached += math.exp(logits[b, action] - largest)
        actions[b], log_probs[b] = action, logits[b, action] - largest - math.log(total)
