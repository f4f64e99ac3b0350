"""Chunks side by side: the batch of an update.

chunks of some actors ──> texts interned, rewards summed, arrays side by side ──> Batch [T, N, ...] ──> on a device
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.api import Chunk, Written
from learner.models.language.llm_policy import LanguagePolicy
from learner.models.policy import Policy
from learner.optim.device import send


@dataclass
class Batch:
    """Chunks side by side: N is the sum of their envs, D the sum of their ended episodes."""

    obs: dict[str, Tensor]  # [T+1, N, ...] what the network reads; a text field holds rows of `texts`
    final_obs: dict[str, Tensor]  # [D, ...]
    texts: Any  # [U, ...] prepared, in the order of their hashes; None without any
    final_index: NDArray[np.int32]  # [D, 2]
    action: NDArray[np.int64]  # [T, N]
    log_prob: NDArray[np.float32]  # [T, N]
    value: NDArray[np.float32]  # [T+1, N]
    final_value: NDArray[np.float32]  # [D]
    reward: NDArray[np.float32]  # [T, N] weighted sum of the columns, scaled
    terminated: NDArray[np.bool_]  # [T, N]
    truncated: NDArray[np.bool_]  # [T, N]
    state: Tensor | None  # [N, hidden]
    fresh: bool  # every chunk was made by the current policy
    episode_starts: Tensor  # bool [T+1, N]: an episode ended right before this observation
    named: dict[str, NDArray[np.int64]]  # [T+1, N, ...] the text fields of `obs`, on the host always
    episode: NDArray[np.int64]  # [T, N] counter of the episode in its env
    group: NDArray[np.int64]  # [N] envs of a chunk with equal numbers played equal episodes at equal counters
    written: Written | None  # [T, N] the answers of a language model that writes

    def on(self, where: torch.device) -> Batch:
        """The same batch with its tensors on a device, sent in one copy."""
        if where.type == "cpu":
            return self
        parts: dict[str, Mapping[str, Any]] = {
            "obs": self.obs,
            "final_obs": self.final_obs,
            "whole": {name: getattr(self, name) for name in ("texts", "state", "episode_starts")},
        }
        columns = {(part, name): x for part, own in parts.items() for name, x in own.items() if x is not None}
        there = send(columns, where)
        found: dict[str, Any] = {
            part: {name: there[part, name] for name in own if (part, name) in there} for part, own in parts.items()
        }
        return replace(self, obs=found["obs"], final_obs=found["final_obs"], **found["whole"])

    @cached_property
    def flat_obs(self) -> dict[str, Tensor]:
        """[T * N, ...] of the steps taken."""
        return {name: column[:-1].flatten(0, 1) for name, column in self.obs.items()}

    def equal_states(self) -> NDArray[np.int64]:
        """[T * N] a number for each state that steps were taken in, equal where the observations are. For a batch on
        the host."""
        told = [column.reshape(len(column), -1) for column in arrays(self.flat_obs).values()]
        found: NDArray[np.int64] = np.unique(np.concatenate(told, 1), axis=0, return_inverse=True)[1].ravel()
        return found

    @property
    def done(self) -> NDArray[np.bool_]:
        return self.terminated | self.truncated


def weigh(rewards: Mapping[str, NDArray[np.float32]], weights: Mapping[str, float]) -> NDArray[np.float32]:
    """The weighted sum of reward columns, each [...]; the weight is 1 where `weights` has none."""
    total: NDArray[np.float32] = sum(
        (np.float32(weights.get(name, 1.0)) * column for name, column in rewards.items()), np.zeros((), np.float32)
    )
    return total


def collate(
    chunks: Sequence[Chunk],
    policy: Policy | LanguagePolicy,
    version: int,
    reward_scale: float,
    weights: Mapping[str, float] = {},
) -> Batch:
    """Lay chunks side by side, turn text hashes into rows of prepared texts and observations into network inputs."""
    starts = np.cumsum([0, *[len(c.env_index) for c in chunks]])
    final_index = np.concatenate(
        [c.final_index + np.array([0, start], np.int32) for c, start in zip(chunks, starts, strict=False)]
    )
    obs = {n: np.concatenate([c.obs[n] for c in chunks], 1) for n in policy.fields}
    final_obs = {n: np.concatenate([c.final_obs[n] for c in chunks]) for n in policy.fields}
    # Rows are ordered by hash: the arrival order of texts must not change results.
    named = [part[n].ravel() for part in (obs, final_obs) for n in policy.text_fields]
    hashes = np.unique(np.concatenate([np.zeros(0, np.int64), *named]))
    for part in (obs, final_obs):
        part.update({n: np.searchsorted(hashes, part[n]) for n in policy.text_fields})
    texts = {key: text for c in chunks for key, text in c.texts.items()}
    states = [c.policy_state for c in chunks if c.policy_state is not None]
    rewards = [weigh(c.rewards, weights) for c in chunks]
    terminated, truncated = (np.concatenate([getattr(c, n) for c in chunks], 1) for n in ("terminated", "truncated"))
    done = terminated | truncated
    return Batch(
        obs=policy.inputs(_tensors(obs)),
        final_obs=policy.inputs(_tensors(final_obs)),
        texts=policy.prepare([texts[h] for h in hashes.tolist()]) if policy.text_fields else None,
        final_index=final_index,
        action=np.concatenate([c.action for c in chunks], 1).astype(np.int64),
        log_prob=np.concatenate([c.log_prob for c in chunks], 1),
        value=np.concatenate([c.value for c in chunks], 1),
        final_value=np.concatenate([c.final_value for c in chunks]),
        reward=np.concatenate(rewards, 1) * np.float32(reward_scale),
        terminated=terminated,
        truncated=truncated,
        state=torch.from_numpy(np.concatenate(states)) if states else None,
        fresh=all(c.version == version and c.versions is None for c in chunks),
        episode_starts=torch.from_numpy(np.concatenate([np.zeros_like(done[:1]), done])),
        named={n: obs[n] for n in policy.text_fields},
        episode=np.concatenate([c.episode for c in chunks], 1),
        group=np.concatenate(
            [(start + np.arange(len(c.env_index))) // c.group for c, start in zip(chunks, starts, strict=False)]
        ),
        written=_side_by_side([c.written for c in chunks if c.written is not None]),
    )


def _side_by_side(parts: Sequence[Written]) -> Written | None:
    if not parts:
        return None
    return Written(*(np.concatenate([getattr(part, name) for part in parts], 1) for name in vars(parts[0])))


def _tensors(obs: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value) for name, value in obs.items()}


def arrays(obs: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Observations as NumPy arrays that share memory."""
    return {name: column.numpy() for name, column in obs.items()}
