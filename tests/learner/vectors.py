"""Keys, queries and columns that are drawn, and what is nearest by a sort of everything."""

import numpy as np

from learner.store.ranking import COLUMNS
from learner.store.retrieval import MemoryIndex

KINDS = ["normal", "lattice", "clusters"]


def unit(vectors):
    """As the index normalises: length in float64, quotient in float32."""
    vectors = np.asarray(vectors, np.float32)
    return vectors / np.sqrt((vectors.astype(np.float64) ** 2).sum(1)).astype(np.float32)[:, None]


def cosines(queries, keys):
    return (unit(queries).astype(np.float64) @ unit(keys).astype(np.float64).T).astype(np.float32)


def expected(queries, keys, ids, allowed, count):
    """(ids, similarities) [Q, count] by a sort of everything."""
    found = np.where(allowed, cosines(queries, keys), -np.inf).astype(np.float32)
    order = np.lexsort((np.broadcast_to(ids, found.shape), -found), 1)
    best, similarity = ids[order], np.take_along_axis(found, order, 1)
    best = np.where(similarity > -np.inf, best, -1)
    pad = ((0, 0), (0, count))
    return (
        np.pad(best, pad, constant_values=-1)[:, :count],
        np.pad(similarity, pad, constant_values=-np.inf)[:, :count],
    )


def drawn(kind, count, width, seed):
    random = np.random.default_rng(seed)
    if kind == "lattice":  # many directions are the same, and more are equally far
        vectors = random.integers(-1, 2, (count, width)).astype(np.float32)
        vectors[:, 0] += 3 * (np.abs(vectors).sum(1) == 0)
        return vectors
    if kind == "clusters":
        centres = np.random.default_rng(7).normal(size=(5, width))
        return (centres[random.integers(0, 5, count)] + random.normal(size=(count, width)) * 1e-3).astype(np.float32)
    return (random.normal(size=(count, width)) * 10.0 ** random.integers(-3, 4, (count, 1))).astype(np.float32)


def about(count, tasks, seed):
    """Columns of entries: chunks of ten steps of episodes of up to three chunks, in any of the tasks."""
    random = np.random.default_rng(seed)
    episode = np.arange(count) // 3
    task = random.integers(0, tasks, count // 3 + 1)[episode]
    start = 10 * (np.arange(count) % 3)
    value = random.integers(0, 5, count // 3 + 1)[episode].astype(np.float32)
    columns = {"task": task, "episode": episode, "start": start, "stop": start + 10, "number": episode, "return": value}
    return columns | {"paid": random.integers(0, 4, count).astype(np.float32)}


def rows_of(columns, rows):
    return {name: value[rows] for name, value in columns.items()}


def built(keys, columns):
    index = MemoryIndex(keys.shape[1])
    index.append(keys, columns)
    return index


def same(one, other):
    assert one.id.tobytes() == other.id.tobytes()
    assert one.similarity.tobytes() == other.similarity.tobytes()
    for name in COLUMNS:
        assert one[name].tobytes() == other[name].tobytes(), name
