"""Pieces: consecutive steps of one episode, as written at once; and how they form complete episodes.

    pieces, in any order ──> by (env, episode, first step) ──> begun at 0, without a gap, ended? ──> whole episodes
                                                                  no: left out

A writer that records during training cannot wait for an episode's end, because it would have to carry all steps so far.
So an episode may consist of several pieces, and readers join them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import Observation

WHOLE = ("seed", "length", "total", "success", "kind")
"""Columns of a store in which every piece is a complete episode."""
COLUMNS: Mapping[str, np.dtype[Any]] = {
    "seed": np.dtype(np.int64),
    "length": np.dtype(np.int32),
    "total": np.dtype(np.float32),
    "success": np.dtype(np.bool_),
    "kind": np.dtype(np.int16),
    "env": np.dtype(np.int32),
    "episode": np.dtype(np.int64),
    "first": np.dtype(np.int32),
    "ended": np.dtype(np.bool_),
    "source": np.dtype(np.int64),
    "task": np.dtype(np.int64),
}
"""All columns that pieces can have, in a shard's order. New ones go at the end: stores list their columns, and older
stores are read without the new ones."""


@dataclass
class Steps:
    """S steps; in a shard, those of E episodes or pieces, one after the other."""

    obs: Observation  # [S, ...]; a text is its 64-bit hash
    action: NDArray[Any]  # [S, ...]
    reward: NDArray[np.float32]  # [S]


@dataclass
class Pieces:
    """P pieces, one row each ([P])."""

    seed: NDArray[np.int64]  # of the episode; 0 unless the piece is its last
    length: NDArray[np.int32]  # steps of the piece
    total: NDArray[np.float32]  # return of the whole episode; 0 unless the piece is its last
    success: NDArray[np.bool_]  # of the whole episode; false unless the piece is its last
    kind: NDArray[np.int16]  # of the episode's task; 0 unless the piece is its last
    env: NDArray[np.int32]  # global env index
    episode: NDArray[np.int64]  # k: counts the episodes of that env
    first: NDArray[np.int32]  # steps of the episode before the piece
    ended: NDArray[np.bool_]  # whether the episode ends with the piece
    source: NDArray[np.int64]  # steps of training, or of a history's learner, at the end; 0 if unknown
    task: NDArray[np.int64]  # as in `EnvSpec.task`; 0 unless the piece is its last, or if the world has no tasks

    @staticmethod
    def of(found: Mapping[str, NDArray[Any]]) -> Pieces:
        """Pieces from a store's columns. Without env, episode and first, every piece is a separate episode."""
        count = len(found["length"])
        columns = {name: np.zeros(count, dtype) for name, dtype in COLUMNS.items()}
        columns |= {"episode": np.arange(count), "ended": np.ones(count, np.bool_)}
        return Pieces(**columns | dict(found))

    def __len__(self) -> int:
        return len(self.length)

    def take(self, which: NDArray[Any] | slice) -> Pieces:
        """The rows `which`: bool [P], their numbers, or a slice."""
        return Pieces(**{name: getattr(self, name)[which] for name in COLUMNS})

    def joined(self) -> tuple[NDArray[np.intp], NDArray[np.intp], int]:
        """The pieces of complete episodes, in order of env, episode and first step, and which of them are last; and the
        number of incomplete episodes, with a piece that is missing, duplicated or not yet played."""
        order = np.lexsort((self.first, self.episode, self.env))
        env, episode, first, length, ended = (
            column[order] for column in (self.env, self.episode, self.first, self.length, self.ended)
        )
        new = np.ones(len(order), np.bool_)  # where a new episode begins
        new[1:] = (env[1:] != env[:-1]) | (episode[1:] != episode[:-1])
        fits = first == 0
        fits[1:] = np.where(new[1:], fits[1:], (first[1:] == first[:-1] + length[:-1]) & ~ended[:-1])
        last = np.flatnonzero(np.append(new[1:], np.ones(min(1, len(order)), np.bool_)))
        of = np.cumsum(new) - 1
        whole = (np.bincount(of[~fits], minlength=len(last)) == 0) & ended[last]
        return order[whole[of]], order[last[whole]], int((~whole).sum())
