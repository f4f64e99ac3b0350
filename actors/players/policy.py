"""A PyTorch policy as a player: weights by version; arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from actors.players import Acted, LogitsPlayer, Step
from envs.api import DenseEnv, Observation
from learner.group import Weights, build_policy, set_weights
from learner.models.policy import Policy
from learner.models.text_encoder import MOST_EMBEDDED, FrozenMiniLM
from llm_service.embedding import MINILM_WIDTH, embed_one

if TYPE_CHECKING:
    from actors.setup import ActorSetup


def make(setup: ActorSetup, caller: str) -> TorchPlayer:
    policy = build_policy(setup.policy, setup.spec, setup.seed)
    assert isinstance(policy, Policy), "a language model's policy has its own players"
    return TorchPlayer(policy, setup.sync)


class TorchPlayer(LogitsPlayer):
    """A policy that only acts: weights by version, and what depends on a text alone computed once per version.

    What the last version read mostly comes again, so a new one computes it all when it needs the first text: one call
    for a hundred texts takes as long as a few for one each. With `alone`, texts are computed one by one, so the last
    bits of their parts do not depend on the rest of a batch.

    A policy with action values explores without a pass of the network (`act`).
    """

    def __init__(self, policy: Policy, alone: bool) -> None:
        torch.set_num_threads(1)  # actors share the cores with each other
        self.policy, self.alone = policy.eval(), alone
        self.fields, self.text_fields = policy.fields, policy.text_fields
        self.version = -1
        self._sent = set[int]()  # hashes of texts
        self._begin()

    def _begin(self) -> None:
        """Forget the texts of the envs before: those of others have different ids."""
        self._parts = [torch.zeros(0, self.policy.text_width) for _ in self.text_fields]
        none = np.zeros((len(self.text_fields), 0), np.bool_)  # [F, texts]
        self._known, self._read = none, none.copy()  # by this version: what it has computed, and what it was asked for
        self._awaited = none.copy()  # what the last version read, until this one has computed it

    def load(self, weights: Weights | None, version: int) -> None:
        if version != self.version:
            assert weights is not None
            set_weights(self.policy, weights)
            self.version = version
            self._known[:] = False
            self._awaited, self._read = self._read, np.zeros_like(self._read)

    def begin(self, env: DenseEnv, seeds: NDArray[np.int64] | None = None) -> NDArray[Any] | None:
        self.env = env
        self._begin()
        state = self.policy.initial_state(env.num_envs)
        return None if state is None else state.numpy()

    def twin(self, elsewhere: ActorSetup | None = None) -> TorchPlayer:
        assert elsewhere is None, "this policy reads no prompts, and supports one environment"
        other = TorchPlayer(self.policy, self.alone)
        other.version = self.version
        return other

    def act(self, obs: Observation, state: NDArray[Any] | None, random: NDArray[np.float32] | None) -> Acted:
        """As `Player`. Of an epsilon-greedy policy, a random number below epsilon selects any action; only the other
        envs need a pass. What is selected at random has the log-probability of that, the best action or not."""
        q = self.policy.q
        if q is None or not q.greedy or random is None or state is not None:
            return super().act(obs, state, random)
        epsilon, n = float(q.epsilon), q.actions
        action = np.minimum(random / max(epsilon, 1e-9) * n, n - 1).astype(np.int64)
        log_prob = np.full(len(random), np.log(max(epsilon, 1e-9) / n), np.float32)
        best = np.flatnonzero(random >= epsilon)
        if len(best):
            action[best] = self.step({name: obs[name][best] for name in self.fields})[0].argmax(-1)
            log_prob[best] = np.log(1 - epsilon + epsilon / n)
        return Acted(action, log_prob, np.zeros(len(random), np.float32), None)

    def value(self, obs: Observation, state: NDArray[Any] | None) -> NDArray[np.float32]:
        """As `Player`; 0 with action values, which are learned without."""
        return (
            super().value(obs, state) if self.policy.q is None else np.zeros(len(next(iter(obs.values()))), np.float32)
        )

    def embedded(self, texts: Mapping[int, str]) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """As `Player`. Most were embedded when they were read; those that were played past at random are embedded here,
        since a learner of action values has less time than its actors."""
        if not isinstance(self.policy.text, FrozenMiniLM):
            return None
        if len(self._sent) > MOST_EMBEDDED:
            self._sent.clear()
        new = sorted(texts.keys() - self._sent)
        self._sent.update(new)
        vectors = np.zeros((len(new), MINILM_WIDTH), np.float32)
        for vector, key in zip(vectors, new, strict=True):
            vector[:] = embed_one(texts[key])
        return np.array(new, np.int64), vectors

    @torch.no_grad()
    def step(self, obs: Observation, state: NDArray[Any] | None = None) -> Step:
        """Logits [B, A], values [B] and next state of dense observations [B, ...].

        state: from `begin` or the previous step, 0 where an episode ended.
        """
        seen = {name: torch.from_numpy(obs[name]) for name in self.policy.fields}
        texts, total = [torch.zeros(0, self.policy.text_width)], 0
        for field, name in enumerate(self.text_fields):
            # One row for each env and field, whatever the ids: results must not depend on them.
            ids = obs[name].ravel()
            self._compute(field, ids)
            texts.append(self._parts[field].index_select(0, torch.from_numpy(ids)))
            seen[name] = torch.arange(total, total + len(ids)).view(obs[name].shape)
            total += len(ids)
        before = None if state is None else torch.from_numpy(state)
        if self.policy.frames:
            assert before is not None
            seen, before = self.policy.frames.add(seen, before)
        logits, value, after = self.policy.act(self.policy.inputs(seen), torch.cat(texts), before)
        return logits.numpy(), value.numpy(), None if after is None else after.numpy()

    def _compute(self, field: int, ids: NDArray[np.int32]) -> None:
        """Make sure that `_parts` of a text field has the parts of these texts."""
        known = len(self.env.texts)
        if known > self._known.shape[1]:
            more = max(64, 2 * known) - self._known.shape[1]
            grown = (np.pad(of, ((0, 0), (0, more))) for of in (self._known, self._read, self._awaited))
            self._known, self._read, self._awaited = grown
            self._parts = [torch.cat([part, part.new_zeros(more, part.shape[1])]) for part in self._parts]
        self._read[field, ids] = True
        if self._known[field, ids].all():
            return
        if not self.alone:
            ids = np.concatenate([ids, np.flatnonzero(self._awaited[field]).astype(np.int32)])
            self._awaited[field] = False
        ids = np.unique(ids)
        new = ids[~self._known[field, ids]]
        for group in np.split(new, len(new)) if self.alone else [new]:
            sizes = [len(group) * (other == field) for other in range(len(self.text_fields))]
            prepared = self.policy.prepare(self.env.texts.texts(group))
            self._parts[field][torch.from_numpy(group).long()] = self.policy.of_texts(prepared, sizes)
        self._known[field, new] = True
