"""NovelD (Zhang et al. 2021, "NovelD: a simple yet effective exploration criterion"): reward for crossing into new
territory.

It pays the amount by which the novelty after a step (the error of `rnd`) exceeds alpha times the novelty before it, at
least 0, and only on the first visit in an episode (eq. 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.api import Chunk, Observation
from envs.config import Part
from learner.checkpoint import Arrays, part_of
from learner.curiosity.networks import Judge, NetworkTerm, Places
from learner.optim.collective import Group
from learner.rewards import RewardSetup
from learner.rewards.rnd import Distillation


class NovelDConfig(Part):
    """Options of `method.intrinsic.name=noveld`."""

    first_visit: bool = True
    """`noveld`: pay for an observation only the first time that it appears in an episode."""
    alpha: float = 1.0
    """`noveld`: weight of the novelty before the step (alpha)."""


class Excess(Distillation):
    """Pays for errors after a step that exceed `alpha` times those before it."""

    def __init__(self, width: int, hidden: int, group: Group, alpha: float) -> None:
        super().__init__(width, hidden, group)
        self.alpha = alpha

    @torch.no_grad()
    def worth(self, x: Tensor, places: Places) -> Tensor:
        """Rewards [S]: the excess of the errors over those before the steps."""
        errors = self.errors(x)
        before, after = errors[places.before], errors[places.after]
        return self.in_deviations(torch.relu(after - self.alpha * before), after)


@dataclass
class Life:
    """The running episode of an env."""

    sequence: int = -1  # of the last chunk
    episode: int = -1
    shown: set[int] = field(default_factory=set)  # hashes of observations


class Visits:
    """The observations that the current episodes of a rank have shown, carried from chunk to chunk.

    Two observations are the same if all `fields` are equal. An episode that was not seen from its beginning starts at
    the first step that was seen.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = list(fields)
        self.lives: dict[int, Life] = {}  # by global index of the env

    def first(self, chunk: Chunk) -> NDArray[np.float32]:
        """[T, N]: 1 where the observation after a step appears for the first time in its episode, otherwise 0.

        All are 0 for a chunk that arrived before.
        """
        length, n = chunk.terminated.shape
        keys = self._keys(chunk.obs, 2).reshape(length + 1, n).tolist()
        ends = zip(map(tuple, chunk.final_index.tolist()), self._keys(chunk.final_obs, 1).tolist(), strict=True)
        last = dict(ends)
        found = np.zeros((length, n), np.float32)
        for i, env in enumerate(chunk.env_index.tolist()):
            life = self.lives.setdefault(env, Life())
            if chunk.sequence <= life.sequence:
                continue
            life.sequence = chunk.sequence
            for t, episode in enumerate(chunk.episode[:, i].tolist()):
                if episode != life.episode:
                    life.episode, life.shown = episode, set()
                life.shown.add(keys[t][i])
                after = last.get((t, i), keys[t + 1][i])
                found[t, i] = after not in life.shown
                life.shown.add(after)
        return found

    def _keys(self, obs: Observation, axes: int) -> NDArray[np.int64]:
        """One hash for each of M observations, whose arrays have this many leading axes."""
        columns = []
        for name in self.fields:
            value = np.ascontiguousarray(obs[name])
            rows = math.prod(value.shape[:axes]), math.prod(value.shape[axes:])
            columns.append(value.reshape(rows).view(np.uint8))
        rows_of_bytes = np.concatenate(columns, 1)
        digests = b"".join(blake2b(row, digest_size=8).digest() for row in rows_of_bytes)
        return np.frombuffer(digests, np.int64)

    def state(self) -> dict[str, NDArray[Any]]:
        """The checkpoint's contents for E envs: int64 [E] each, and the hashes, env after env."""
        lives = self.lives.values()
        shown = [key for life in lives for key in sorted(life.shown)]
        return {
            "env": np.array(list(self.lives), np.int64),
            "sequence": np.array([life.sequence for life in lives], np.int64),
            "episode": np.array([life.episode for life in lives], np.int64),
            "size": np.array([len(life.shown) for life in lives], np.int64),
            "shown": np.array(shown, np.int64),
        }

    def restore(self, state: Arrays) -> None:
        """Continue from `state`."""
        ends = np.cumsum(state["size"])
        columns = (
            column.tolist() for column in (state["env"], state["sequence"], state["episode"], ends, state["size"])
        )
        self.lives = {
            env: Life(sequence, episode, set(state["shown"][end - size : end].tolist()))
            for env, sequence, episode, end, size in zip(*columns, strict=True)
        }


class NovelD(NetworkTerm):
    """Pays for a larger prediction error after a step than before it."""

    Config = NovelDConfig

    def __init__(self, setup: RewardSetup) -> None:
        self.options = setup.config.own(NovelDConfig)
        super().__init__(setup)
        self.visits = Visits(setup.fields) if self.options.first_visit else None

    def judge(self, width: int) -> Judge:
        return Excess(width, self.setup.config.hidden, self.setup.group, self.options.alpha)

    def mark(self, chunk: Chunk) -> NDArray[np.float32] | None:
        """1 where an observation appears for the first time in its episode, otherwise 0."""
        return self.visits.first(chunk) if self.visits else None

    def rank_state(self) -> Arrays:
        """The observations that the episodes of this rank's envs have shown."""
        return {f"visits.{name}": value for name, value in self.visits.state().items()} if self.visits else {}

    def restore(self, state: Arrays, own: Arrays) -> None:
        super().restore(state, own)
        if self.visits is not None and (visits := part_of(own, "visits.")):
            self.visits.restore(visits)


TERM = NovelD
