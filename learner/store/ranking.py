"""Ranking of a memory index's results: entries of several shards are merged, then scored by named terms.

    Found of each shard ──merge──> Found ──rank──> Ranked: the best k, their score, and each term as a column

A row belongs to a query, and its entries are ordered by similarity, then id. If there are too few, ids are -1 and
similarities -inf; such places are never ranked, and do not affect scaling.

Terms (Schmied et al. 2024, arXiv 2410.07071, section 3: similarity and task while training, similarity and return while
acting; paid and recency are ours). Scaling is per row: the least value becomes 0, the largest 1; all are 0 if they are
equal.

    similarity  cosine of query and key, scaled
    task        1 if the entry has the query's task, otherwise 0
    return      return of the entry's episode, scaled
    paid        rewards of the chunk's own steps, scaled
    recency     number of the entry's episode in its task, scaled: the latest is 1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS: Mapping[str, str] = {
    "owner": "int64",  # owner of the memory: in training the task, in trials the row of arm, seed and task
    "task": "int64",
    "episode": "int64",  # number in the store, unique
    "start": "int64",  # steps [start, stop) of the episode are the chunk
    "stop": "int64",
    "number": "int64",  # number of the episode in its task, ascending with time
    "return": "float32",  # of the whole episode
    "paid": "float32",  # sum of the rewards of steps [start, stop)
}
"""Columns of an entry besides its key, with their types."""

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Found:
    """Entries of Q queries, L each.

    id: int64 [Q, L], ordered by similarity, then id; -1 if there is none.
    similarity: float32 [Q, L], cosines; -inf if there is none.
    columns: [Q, L] by name, see `COLUMNS`; -1 if there is none.
    """

    id: Integers
    similarity: Floats
    columns: dict[str, NDArray[Any]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    @staticmethod
    def nothing(queries: int, count: int) -> Found:
        """The same number of rows, without entries."""
        shape = (queries, count)
        columns = {name: np.full(shape, -1, kind) for name, kind in COLUMNS.items()}
        return Found(np.full(shape, -1), np.full(shape, -np.inf, np.float32), columns)

    def take(self, places: Integers) -> Found:
        """The entries at these indices of each row, int64 [Q, K]."""
        columns = {name: np.take_along_axis(column, places, 1) for name, column in self.columns.items()}
        return Found(np.take_along_axis(self.id, places, 1), np.take_along_axis(self.similarity, places, 1), columns)

    def replaced(self, rows: NDArray[np.bool_], other: Found) -> Found:
        """A copy with the rows [Q] that are true replaced by another result's, which may have fewer columns.

        For queries with too little information: early in an episode a window does not distinguish tasks, so a random
        chunk of the right task (`MemoryIndex.draw`) replaces the nearest ones.
        """
        wide = _joined([other, Found.nothing(len(other.id), max(0, self.id.shape[1] - other.id.shape[1]))])
        if wide.id.shape != self.id.shape:
            raise ValueError(f"rows of {wide.id.shape} do not fit into {self.id.shape}: draw fewer entries")
        pick = rows[:, None]
        columns = {name: np.where(pick, wide[name], column) for name, column in self.columns.items()}
        return Found(np.where(pick, wide.id, self.id), np.where(pick, wide.similarity, self.similarity), columns)


def _joined(parts: Sequence[Found]) -> Found:
    columns = {name: np.concatenate([part[name] for part in parts], 1) for name in COLUMNS}
    return Found(
        np.concatenate([part.id for part in parts], 1), np.concatenate([part.similarity for part in parts], 1), columns
    )


def merge(parts: Sequence[Found], count: int) -> Found:
    """The nearest `count` of several shards' results for the same Q queries.

    If each part has the nearest `count` of its shard, ids differ between shards, and normalised keys are equal, the
    result equals that of one index with all entries, bit for bit.
    """
    both = _joined([*parts, Found.nothing(len(parts[0].id), count)])
    return both.take(np.lexsort((both.id, -both.similarity), 1)[:, :count])


# ---- score -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranked:
    """The best K entries of Q queries.

    found: the entries, best first.
    score: float32 [Q, K], the weighted sum of terms; -inf if there is no entry.
    terms: float32 [Q, K] by name, each in 0..1 and without its weight, for logging; 0 if there is no entry.
    """

    found: Found
    score: Floats
    terms: dict[str, Floats]


Term = Callable[[Found, Integers], NDArray[Any]]
"""(found, tasks int64 [Q] of the queries) -> [Q, L]."""


def scaled(values: NDArray[Any], there: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Scale each row [Q, L]: the least present value becomes 0, the largest 1; all are 0 if they are equal or
    absent."""
    values = values.astype(np.float64)
    least = np.where(there, values, np.inf).min(1, initial=np.inf, keepdims=True)
    most = np.where(there, values, -np.inf).max(1, initial=-np.inf, keepdims=True)
    spread = most > least
    found = np.zeros(values.shape)
    np.divide(values - np.where(spread, least, 0), np.where(spread, most - least, 1), out=found, where=spread & there)
    return found


TERMS: Mapping[str, Term] = {
    "similarity": lambda found, tasks: scaled(found.similarity, found.id >= 0),
    "task": lambda found, tasks: (found["task"] == tasks[:, None]) & (found.id >= 0),
    "return": lambda found, tasks: scaled(found["return"], found.id >= 0),
    "paid": lambda found, tasks: scaled(found["paid"], found.id >= 0),
    "recency": lambda found, tasks: scaled(found["number"], found.id >= 0),
}


def rank(found: Found, weights: Mapping[str, float], count: int, tasks: Integers) -> Ranked:
    """The best `count` entries by the weighted sum of terms; among equal scores, the more similar one.

    weights: by name of a term; missing ones have weight 0. All terms are computed and returned.
    tasks: int64 [Q], tasks of the queries.

    Raises:
        ValueError: a term does not exist.
    """
    if unknown := weights.keys() - TERMS.keys():
        raise ValueError(f"a score has no term {min(unknown)!r}: there are {', '.join(TERMS)}")
    found = _joined([found, Found.nothing(len(found.id), max(0, count - found.id.shape[1]))])
    terms = {name: term(found, tasks).astype(np.float64) for name, term in TERMS.items()}
    score = np.where(found.id >= 0, 0.0, -np.inf)
    for name in terms:  # always in this order, because rounding depends on it
        if name in weights:
            score += weights[name] * terms[name]
    best = np.argsort(-score, 1, kind="stable")[:, :count]
    chosen = {name: np.take_along_axis(term, best, 1).astype(np.float32) for name, term in terms.items()}
    return Ranked(found.take(best), np.take_along_axis(score, best, 1).astype(np.float32), chosen)
