"""Training: for each query point of each episode, the chunk of another episode that the steps from there on look at.

    episodes ──encoder──> keys of chunks ──> MemoryIndex, one owner per task
                    └──> queries ──search, rank──> Lookup: a chunk per point

An encoder computes all keys and queries of an episode at once, since they do not depend on later steps. The result
depends on the histories, the encoder and the seed alone, so it is computed once. Besides `nearest` there are two
lookups that know less: any chunk of the task, and any chunk at all (the same ablations: Schmied et al. 2024, arXiv
2410.07071, section 5); and one that knows more: any chunk of the task's best episodes.

The limit is the encoder's pass, as long as tasks have few episodes; a search covers only a task's own keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from learner.context.chunks import Chunks, Integers, chunks_of, paid_in, points_of
from learner.context.config import Looks, RetrieveConfig
from learner.context.encoders import Encoder
from learner.context.reader import Reader
from learner.store.ranking import rank
from learner.store.retrieval import MemoryIndex

QUERIES = 4096
"""Queries that are answered at once."""


class Keys(Protocol):
    """Keys and queries of episodes."""

    def __call__(self, episodes: Integers, at: list[Integers]) -> NDArray[np.float32]:
        """The vectors [K, width] of some steps of episodes [B]."""


@dataclass(frozen=True)
class Lookup:
    """The chunks that the P query points of all episodes of a store look at.

    Attributes:
        first: int64 [E + 1], the index of each episode's first point, and the number of all points.
        episode, start, stop: int64 [P], the chunk: steps [start, stop) of an episode of the store; episode -1: none.
        similarity: float32 [P], its cosine; nan where the chunk was random, or there is none.
        short: bool [P], points whose query was too short, and which look at a random chunk instead.
    """

    first: Integers
    episode: Integers
    start: Integers
    stop: Integers
    similarity: NDArray[np.float32]
    short: NDArray[np.bool_]

    def report(self, reader: Reader) -> dict[str, float]:
        """Shares of points that found a chunk and of `short` ones, the mean similarity of found chunks, and the mean
        distance to the chunk's episode, in episodes of the task, over chunks of the same task. A mean of nothing is
        left out."""
        store, there = reader.store, self.episode >= 0
        own = np.repeat(np.arange(len(store)), np.diff(self.first))[there]
        other = self.episode[there]
        same = store.task[own] == store.task[other]
        away = np.abs(store.episode[own] - store.episode[other])[same]
        known = self.similarity[np.isfinite(self.similarity)]
        told = {"points": float(len(there)), "answered": float(there.mean())}
        means = {"drawn_for_short": self.short, "same_task": same, "similarity": known, "away": away}
        return told | {name: float(values.mean()) for name, values in means.items() if len(values)}


def keys_by(encoder: Encoder, reader: Reader) -> Keys:
    """Keys by an encoder."""

    def keys(episodes: Integers, at: list[Integers]) -> NDArray[np.float32]:
        steps, _, lengths = reader.episodes(episodes)
        first = np.cumsum(lengths) - lengths
        places = np.concatenate([begin + own for begin, own in zip(first, at, strict=True)])
        return encoder.of(steps, lengths, torch.from_numpy(places)).cpu().numpy()

    return keys


def look_up(
    reader: Reader, config: RetrieveConfig, looks: Looks, keys: Keys | None, seed: int, tokens: int = 8192
) -> Lookup:
    """The chunks that all query points look at; never of their own episode.

    Args:
        reader: of the histories.
        config: how chunks are cut, and which are found.
        looks: the kind of chunk to look at.
        keys: for `nearest`.
        seed: of random choices.
        tokens: maximum steps that are encoded at once, at least one episode.
    """
    store = reader.store
    episode, step = points_of(store.length, config.every)
    first = np.searchsorted(episode, np.arange(len(store) + 1))
    chunks = _by_task(reader, config, looks == "best")
    drawn = _drawn(reader, chunks, episode, looks == "uniform", seed)  # index of a chunk, -1 for none
    similarity = np.full(len(episode), np.nan, np.float32)
    short = np.zeros(len(episode), np.bool_)
    if looks == "nearest":
        assert keys is not None, "what is nearest is found by keys"
        chosen, similarity = _nearest(reader, config, chunks, episode, step, keys, tokens)
        short = step + 1 < config.minimum
        chosen = np.where(short, drawn, chosen)
        similarity[short] = np.nan
    else:
        chosen = drawn
    there = chosen >= 0
    of, start, stop = (np.where(there, column[chosen], -1) for column in (chunks.episode, chunks.start, chunks.stop))
    return Lookup(first, of, start, stop, similarity, short & there)


def _by_task(reader: Reader, config: RetrieveConfig, best: bool) -> Chunks:
    """Chunks of the store, all or only of the best episodes, in order of task, number and step; `episode` is the
    store's."""
    order = reader.order[reader.best[reader.order]] if best else reader.order
    found = chunks_of(reader.store.length[order], config)
    return Chunks(order[found.episode], found.key, found.start, found.stop)


def _drawn(reader: Reader, chunks: Chunks, episode: Integers, of_all: bool, seed: int) -> Integers:
    """For each query [P] a random chunk, of its task or of all, but not of its own episode; -1 where there is none.

    Chunks of a task are adjacent, and among them the chunks of an episode: the excluded chunks form one gap.
    """
    tasks, place = reader.store.task[chunks.episode], np.empty(len(reader.order), np.int64)
    place[reader.order] = np.arange(len(reader.order))
    rank_of = place[chunks.episode]  # ascending
    gap, gap_end = _span(rank_of, place[episode])
    begin, end = np.zeros(len(episode), np.int64), np.full(len(episode), len(tasks))
    if not of_all:
        begin, end = _span(tasks, reader.store.task[episode])
    free = (end - begin) - (gap_end - gap)
    found = begin + (np.random.default_rng([seed, 2]).random(len(episode)) * free).astype(np.int64)
    return np.where(free > 0, found + np.where(found >= gap, gap_end - gap, 0), -1)


def _span(ascending: Integers, values: Integers) -> tuple[Integers, Integers]:
    """Where each value begins and ends among ascending ones."""
    return np.searchsorted(ascending, values, "left"), np.searchsorted(ascending, values, "right")


def _nearest(
    reader: Reader,
    config: RetrieveConfig,
    chunks: Chunks,
    episode: Integers,
    step: Integers,
    keys: Keys,
    tokens: int,
) -> tuple[Integers, NDArray[np.float32]]:
    """For each query [P] the index of the best chunk of its task, and its similarity; -1 and nan: there is none."""
    store, found = reader.store, []
    of_chunks = np.split(chunks.key, np.flatnonzero(np.diff(chunks.episode)) + 1)  # of each episode, in reader's order
    of_points = np.split(step, np.flatnonzero(np.diff(episode)) + 1)  # of each episode, in the store's order
    lengths = store.length[reader.order].astype(np.int64)
    piece = np.maximum(0, np.cumsum(lengths) - 1) // tokens
    asked: list[NDArray[np.float32] | None] = [None] * len(store)
    for each in np.unique(piece):
        rows = np.flatnonzero(piece == each)
        own = reader.order[rows]
        at = [np.concatenate([of_chunks[i], of_points[e]]) for i, e in zip(rows.tolist(), own.tolist(), strict=True)]
        vectors = np.split(keys(own, at), np.cumsum([len(one) for one in at])[:-1])
        for i, e, vector in zip(rows.tolist(), own.tolist(), vectors, strict=True):
            found.append(vector[: len(of_chunks[i])])
            asked[e] = vector[len(of_chunks[i]) :]
    made, queries = np.concatenate(found), np.concatenate([one for one in asked if one is not None])
    # The entry with id i is chunk i: both are in order of task.
    index = MemoryIndex(made.shape[1])
    tasks = store.task[chunks.episode]
    index.reserve(int(tasks.max()) + 1, int(np.bincount(tasks).max()))
    first, end = store.first[chunks.episode], store.first[chunks.episode + 1]
    columns: dict[str, NDArray[Any]] = {"task": tasks, "episode": chunks.episode}
    columns |= {"number": store.episode[chunks.episode], "return": store.total[chunks.episode]}
    columns |= {"start": chunks.start, "stop": chunks.stop}
    columns |= {"paid": paid_in(reader.to_go, first + chunks.start, first + chunks.stop, end)}
    index.append(made, columns)
    chosen, similarity = np.full(len(episode), -1), np.full(len(episode), np.nan, np.float32)
    for begin in range(0, len(episode), QUERIES):
        part = slice(begin, begin + QUERIES)
        own = store.task[episode[part]]
        near = index.search(queries[part], config.nearest, own, episode[part], config.at_most)
        best = rank(near, config.weights, 1, own).found
        chosen[part] = best.id[:, 0]
        similarity[part] = np.where(best.id[:, 0] >= 0, best.similarity[:, 0], np.nan)
    return chosen, similarity
