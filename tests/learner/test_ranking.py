"""What shards found is merged to what one index finds, and a score is a sum of named terms."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.store.ranking import COLUMNS, Found, merge, rank
from learner.store.retrieval import MemoryIndex
from tests.learner.vectors import KINDS, about, built, drawn, rows_of, same


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    total=st.integers(0, 300),
    count=st.integers(1, 40),
    restricted=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_four_shards_find_what_one_index_finds(kind, total, count, restricted, seed):
    keys, columns = drawn(kind, total, 12, seed), about(total, 3, seed)
    shards = [MemoryIndex(12) for _ in range(4)]
    deal = np.random.default_rng(seed).integers(0, 4, total)
    for number, shard in enumerate(shards):
        rows = np.flatnonzero(deal == number)
        shard.append(keys[rows], rows_of(columns, rows), ids=rows)
    queries = drawn(kind, 7, 12, seed + 1)
    options = {"owner": np.arange(7) % 3 if restricted else None, "not_episode": np.arange(7), "at_most": 0.99}
    parts = [shard.search(queries, count, **options) for shard in shards]
    same(merge(parts, count), built(keys, columns).search(queries, count, **options))


def some(ids, similarity, **columns):
    shape = np.shape(ids)
    made = {name: np.asarray(columns.get(name, np.zeros(shape)), kind) for name, kind in COLUMNS.items()}
    return Found(np.asarray(ids, np.int64), np.asarray(similarity, np.float32), made)


def test_a_score_is_a_sum_of_terms_that_are_returned():
    found = some(
        [[5, 2, 9, -1], [1, -1, -1, -1]],
        [[0.9, 0.8, 0.5, -np.inf], [0.7, -np.inf, -np.inf, -np.inf]],
        task=[[1, 2, 1, -1], [3, -1, -1, -1]],
        number=[[10, 30, 20, -1], [4, -1, -1, -1]],
        paid=[[1, 3, 5, -1], [3, -1, -1, -1]],
        **{"return": [[0, 4, 8, -1], [2, -1, -1, -1]]},
    )
    weights = {"similarity": 1.0, "task": 2.0, "return": 3.0, "paid": 0.25, "recency": 0.5}
    ranked = rank(found, weights, 4, np.array([1, 8]))
    assert ranked.found.id.tolist() == [[9, 5, 2, -1], [1, -1, -1, -1]]
    np.testing.assert_allclose(ranked.terms["similarity"], [[0, 1, 0.75, 0], [0, 0, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(ranked.terms["task"], [[1, 1, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(ranked.terms["return"], [[1, 0, 0.5, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(ranked.terms["paid"], [[1, 0, 0.5, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(ranked.terms["recency"], [[0.5, 0, 1, 0], [0, 0, 0, 0]])
    score = [[2 + 3 + 0.25 + 0.25, 1 + 2, 0.75 + 1.5 + 0.125 + 0.5, -np.inf], [0, -np.inf, -np.inf, -np.inf]]
    np.testing.assert_allclose(ranked.score, score, rtol=1e-6)
    assert rank(found, {"paid": 1}, 2, np.array([1, 8])).found.id.tolist() == [[9, 2], [1, -1]]
    assert rank(found, {"recency": 1}, 2, np.array([1, 8])).found.id.tolist() == [[2, 9], [1, -1]]
    assert rank(found, {"recency": -1}, 1, np.array([1, 8])).found.id.tolist() == [[5], [1]]
    assert rank(found, {}, 2, np.array([1, 8])).found.id.tolist() == [[5, 2], [1, -1]]
    assert rank(found, {"task": 1}, 6, np.array([2, 8])).found.id.tolist() == [[2, 5, 9, -1, -1, -1], [1] + [-1] * 5]
    with pytest.raises(ValueError, match="no term 'novelty': there are similarity, task, return, paid, recency"):
        rank(found, {"novelty": 1}, 2, np.array([1, 8]))


def test_a_sum_does_not_depend_on_the_order_in_which_weights_are_given():
    found = some([[1, 2]], [[0.9, 0.5]], task=[[3, 8]], number=[[1, 2]], **{"return": [[1, 2]]})
    weights = {"similarity": 0.6, "task": 0.1, "return": 0.2, "recency": 0.3}  # 0.1 + 0.2 + 0.3 > 0.3 + 0.2 + 0.1
    for names in permutations(weights):
        ranked = rank(found, {name: weights[name] for name in names}, 2, np.array([8]))
        assert ranked.found.id.tolist() == [[2, 1]]


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(["normal", "clusters"]), tasks=st.integers(2, 12), seed=st.integers(0, 2**31))
def test_a_search_of_the_own_task_is_the_search_of_all_with_the_task_as_a_term(kind, tasks, seed):
    """Wherever an entry of the task is among the nearest; one that is the last of them ties with the first."""
    keys, columns = drawn(kind, 240, 12, seed), about(240, tasks, seed)
    index, queries = built(keys, columns), drawn(kind, 30, 12, seed + 1)
    random = np.random.default_rng(seed)
    task, episode = random.integers(0, tasks, 30), random.integers(0, 80, 30)
    near = index.search(queries, 25, None, episode, 0.999)
    ranked = rank(near, {"similarity": 1, "task": 1}, 1, task)
    own = rank(index.search(queries, 25, task, episode, 0.999), {"similarity": 1}, 1, task)
    there = ((near["task"] == task[:, None]) & (near.similarity > near.similarity.min(1, keepdims=True))).any(1)
    np.testing.assert_array_equal(ranked.found.id[there], own.found.id[there])
