"""Memory of the published loop: embeddings of texts, and the replay.

Both are plain arrays in memory that point to each other by number. The published loop has dictionaries of token tuples
and a compressed file for each episode.

Limit: copying the sampled rows, some 0.1 ms for 64.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

WIDTH = 384  # of an embedding
SIDE = 64  # of a picture
N_STEP, GAMMA = 3, 0.99
AT_ONCE = 64  # texts embedded in one batch

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts -> float32 [N, 384], unit length."""


class Embeddings:
    """Texts by number. Each is embedded once, when it is first needed, together with the other missing ones.

    Args:
        encode: the frozen encoder.
        by_sentence: a text's embedding is the mean of its sentences' embeddings, which are cached: most new texts
            consist of known sentences.
    """

    def __init__(self, encode: Encode, by_sentence: bool = False) -> None:
        self.encode = encode
        self.sentences = Embeddings(encode) if by_sentence else None
        self.texts: list[str] = []
        self.row_of: dict[str, int] = {}
        self.table = torch.zeros(1024, WIDTH)
        self.known = np.zeros(1024, np.bool_)

    def row(self, text: str) -> int:
        """The number of a text."""
        row = self.row_of.get(text)
        if row is None:
            row = self.row_of[text] = len(self.texts)
            self.texts.append(text)
            if row == len(self.known):
                self.table = torch.cat([self.table, torch.zeros_like(self.table)])
                self.known = np.concatenate([self.known, np.zeros_like(self.known)])
        return row

    def prepare(self, rows: NDArray[np.integer]) -> int:
        """Embed those of `rows`, of any shape, that are still missing. Returns their number."""
        missing = np.unique(rows[~self.known[rows]]).tolist()
        for first in range(0, len(missing), AT_ONCE):
            part = missing[first : first + AT_ONCE]
            self.table[part] = self._vectors([self.texts[row] for row in part])
        self.known[missing] = True
        return len(missing)

    def __call__(self, rows: NDArray[np.integer]) -> Tensor:
        """float32 [B, 384] of prepared rows [B]."""
        return self.table.index_select(0, torch.from_numpy(rows.astype(np.int64)))

    def _vectors(self, texts: list[str]) -> Tensor:
        if self.sentences is None:
            return torch.from_numpy(self.encode(texts))
        rows = [np.array([self.sentences.row(part) for part in text.split(". ")]) for text in texts]
        self.sentences.prepare(np.concatenate(rows))
        return torch.stack([self.sentences(row).mean(0) for row in rows])


class Replay:
    """Observations stored once, and rows of `N_STEP` steps that point to two of them."""

    def __init__(self, capacity: int, pixels: bool = False) -> None:
        self.capacity, self.rows, self.observations = capacity, 0, 0
        most = 2 * capacity + N_STEP  # an episode's end is an observation without a row
        self.texts = np.empty((most, 2), np.int32)  # state and goals
        self.frames = np.empty((most if pixels else 0, SIDE, SIDE, 3), np.uint8)
        self.index = np.empty((capacity, 3), np.int64)  # observation before, action, observation after
        self.number = np.empty((capacity, 2), np.float32)  # summed reward, discount of the value after it
        self.pending: deque[tuple[int, int, float]] = deque()

    def observe(self, state: int, goals: int, frame: NDArray[np.uint8] | None = None) -> int:
        """Store an observation. Returns its place."""
        place = self.observations % len(self.texts)
        self.texts[place] = state, goals
        if frame is not None:
            self.frames[place] = frame
        self.observations += 1
        return place

    def add(self, before: int, action: int, reward: float, after: int, terminated: bool, ended: bool) -> None:
        """Add a step between two stored observations."""
        self.pending.append((before, action, reward))
        while self.pending and (ended or len(self.pending) == N_STEP):
            row, (first, taken, _) = self.rows % self.capacity, self.pending[0]
            total = sum(GAMMA**k * paid for k, (_, _, paid) in enumerate(self.pending))
            self.index[row] = first, taken, after
            self.number[row] = total, 0.0 if terminated else GAMMA ** len(self.pending)
            self.rows += 1
            self.pending.popleft()

    def sample(self, size: int, random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows sampled uniformly: [size, 3] and [size, 2]."""
        drawn = random.integers(0, min(self.rows, self.capacity), size)
        return self.index[drawn], self.number[drawn]
