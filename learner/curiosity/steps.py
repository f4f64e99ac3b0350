"""The steps to evaluate, whether they come from chunks or from a replay.

The observation after a step is evaluated: at an episode's end its own last observation, never the next episode's first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import Chunk, Observation
from learner.store.replay import Floats, Replay, Rows, Walk

COLUMN = "intrinsic"
"""The reward column of intrinsic terms."""


@dataclass
class Steps:
    """B walks of n steps each; the first step of each was taken."""

    obs: Observation  # [M, ...] of all walks, each once; a text field holds names of `texts`
    texts: Callable[[NDArray[Any]], list[str]]  # names -> texts
    before: Rows  # [B, n] rows of `obs`
    after: Rows  # [B, n] the same
    live: NDArray[np.bool_]  # [B, n] whether a step was taken there
    action: NDArray[np.int64]  # [B] in the first step
    share: Floats | None = None  # [B, n] share of the reward that counts, 0 or 1; None: all

    @cached_property
    def taken(self) -> tuple[Rows, Rows, Rows]:
        """For the S steps that were taken, walk by walk: number of the walk, rows before and after, each [S]."""
        walk, place = np.nonzero(self.live)
        return walk, self.before[walk, place], self.after[walk, place]


def of_walk(walk: Walk, replay: Replay) -> Steps:
    """Walks that were drawn from a replay."""
    rows, place = np.unique(walk.row, return_inverse=True)
    place = place.reshape(walk.row.shape)
    return Steps(
        obs=walk.observe(rows),
        texts=replay.texts.texts,
        before=place[:, :-1],
        after=place[:, 1:],
        live=walk.live,
        action=replay.columns["action"][walk.row[:, 0]].astype(np.int64),
        share=walk.rewards.get(COLUMN),
    )


def of_chunks(chunks: Sequence[Chunk], fields: Sequence[str]) -> Steps:
    """Every step of chunks of equal T, as a walk of one: all envs of t = 0, of t = 1, and so on."""
    texts = {key: text for chunk in chunks for key, text in chunk.texts.items()}
    length, starts = len(chunks[0].terminated), np.cumsum([0, *[len(chunk.env_index) for chunk in chunks]])
    number = np.arange((length + 1) * starts[-1]).reshape(length + 1, -1)
    before, after = number[:-1], number[1:].copy()
    first = number.size
    for chunk, start in zip(chunks, starts, strict=False):
        t, n = chunk.final_index.T
        after[t, n + start] = first + np.arange(len(t))
        first += len(t)
    shares = [chunk.rewards[COLUMN] for chunk in chunks if COLUMN in chunk.rewards]
    return Steps(
        obs={name: _side_by_side(chunks, name) for name in fields},
        texts=lambda hashes: [texts[key] for key in hashes.tolist()],
        before=before.reshape(-1, 1),
        after=after.reshape(-1, 1),
        live=np.ones((before.size, 1), np.bool_),
        action=np.concatenate([chunk.action for chunk in chunks], 1).astype(np.int64).ravel(),
        share=np.concatenate(shares, 1).reshape(-1, 1) if shares else None,
    )


def _side_by_side(chunks: Sequence[Chunk], name: str) -> NDArray[Any]:
    """A field's observations [(T + 1) * N, ...], then the last ones of episodes that ended, [D, ...]."""
    within = np.concatenate([chunk.obs[name] for chunk in chunks], 1)
    return np.concatenate([within.reshape(-1, *within.shape[2:]), *[chunk.final_obs[name] for chunk in chunks]])
