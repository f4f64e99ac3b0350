"""A PyTorch policy as a player: weights by version; arrays in, arrays out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from actors.players import LogitsPlayer, Step
from envs.api import DenseEnv, Observation
from learner.group import Weights, build_policy, set_weights
from learner.models.policy import Policy

if TYPE_CHECKING:
    from actors.setup import ActorSetup


def make(setup: ActorSetup, caller: str) -> TorchPlayer:
    policy = build_policy(setup.policy, setup.spec, setup.seed)
    assert isinstance(policy, Policy), "a language model's policy has its own players"
    return TorchPlayer(policy, setup.sync)


class TorchPlayer(LogitsPlayer):
    """A policy that only acts: weights by version, and every text encoded once per version.

    With `alone`, texts are encoded one by one, so a code's last bits do not depend on the rest of a batch.
    """

    def __init__(self, policy: Policy, alone: bool) -> None:
        torch.set_num_threads(1)  # actors share the cores with each other
        self.policy, self.alone = policy.eval(), alone
        self.fields, self.text_fields = policy.fields, policy.text_fields
        self.version = -1
        self._codes = torch.zeros(0, policy.hidden)
        self._encoded = np.zeros(0, np.bool_)

    def load(self, weights: Weights | None, version: int) -> None:
        if version != self.version:
            assert weights is not None
            set_weights(self.policy, weights)
            self.version = version
            self._encoded[:] = False

    def begin(self, env: DenseEnv, seeds: NDArray[np.int64] | None = None) -> NDArray[Any] | None:
        self.env = env
        self._codes, self._encoded = self._codes[:0], self._encoded[:0]  # its texts have different ids
        state = self.policy.initial_state(env.num_envs)
        return None if state is None else state.numpy()

    def twin(self, elsewhere: ActorSetup | None = None) -> TorchPlayer:
        assert elsewhere is None, "this policy reads no prompts, and supports one environment"
        other = TorchPlayer(self.policy, self.alone)
        other.version = self.version
        return other

    @torch.no_grad()
    def step(self, obs: Observation, state: NDArray[Any] | None = None) -> Step:
        """Logits [B, A], values [B] and next state of dense observations [B, ...].

        state: from `begin` or the previous step, 0 where an episode ended.
        """
        seen = {name: torch.from_numpy(obs[name]) for name in self.policy.fields}
        codes = self._codes
        if names := self.policy.text_fields:
            # One code for each env and field, whatever the ids: results must not depend on them.
            ids = np.concatenate([obs[name].ravel() for name in names])
            self._encode(ids)
            codes = self._codes.index_select(0, torch.from_numpy(ids))
            rows = torch.split(torch.arange(len(codes)), [obs[name].size for name in names])
            seen |= {name: of.view(obs[name].shape) for name, of in zip(names, rows, strict=True)}
        before = None if state is None else torch.from_numpy(state)
        if self.policy.frames:
            assert before is not None
            seen, before = self.policy.frames.add(seen, before)
        logits, value, after = self.policy.step(self.policy.inputs(seen), codes, before)
        return logits.numpy(), value.numpy(), None if after is None else after.numpy()

    def _encode(self, ids: NDArray[np.int32]) -> None:
        """Make sure that `_codes` has the codes of these texts."""
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
