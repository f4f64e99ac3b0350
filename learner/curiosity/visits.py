"""Which observations an episode has shown already: the indicator of first visits (Zhang et al. 2021, eq. 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import Chunk, Observation
from learner.checkpoint import Arrays


@dataclass
class Life:
    """The running episode of an env."""

    sequence: int = -1  # of the last chunk
    episode: int = -1
    shown: set[int] = field(default_factory=set)  # hashes of observations


class Visits:
    """Follows the envs of a rank from chunk to chunk. Two observations are one if all `fields` are equal.

    An episode that was not followed from its beginning counts from where it was first seen.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = list(fields)
        self.lives: dict[int, Life] = {}  # by global index of the env

    def first(self, chunk: Chunk) -> NDArray[np.float32]:
        """[T, N]: 1 where the observation after a step is shown for the first time in its episode, else 0.

        Of a chunk that came before, all are 0.
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
        """One number for each of M observations, whose arrays have so many leading axes."""
        columns = []
        for name in self.fields:
            value = np.ascontiguousarray(obs[name])
            rows = math.prod(value.shape[:axes]), math.prod(value.shape[axes:])
            columns.append(value.reshape(rows).view(np.uint8))
        rows_of_bytes = np.concatenate(columns, 1)
        digests = b"".join(blake2b(row, digest_size=8).digest() for row in rows_of_bytes)
        return np.frombuffer(digests, np.int64)

    def state(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint holds, of E envs: int64 [E] each, and the hashes, env after env."""
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
