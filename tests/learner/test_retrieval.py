"""What is found is what comparing with every key finds, whatever the batch, the shards, and what happened before."""

import json

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.files import Attempt, Superseded
from learner.store import retrieval
from learner.store.entries import RetrievalError
from learner.store.ranking import COLUMNS, Found, merge, rank
from learner.store.retrieval import MemoryIndex, largest


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
    return {"task": task, "episode": episode, "start": start, "stop": start + 10, "number": episode, "return": value}


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


KINDS = ["normal", "lattice", "clusters"]


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    width=st.integers(1, 40),
    sizes=st.lists(st.integers(0, 150), min_size=1, max_size=4),
    tasks=st.integers(1, 4),
    count=st.integers(1, 60),
    restricted=st.booleans(),
    own=st.booleans(),
    at_most=st.sampled_from([np.inf, 0.98, 0.5, -2.0]),
    cells=st.sampled_from([1, 300, 2**26]),
    seed=st.integers(0, 2**31),
)
def test_equal_to_comparing_with_every_key(kind, width, sizes, tasks, count, restricted, own, at_most, cells, seed):
    total = sum(sizes)
    keys, columns = drawn(kind, total, width, seed), about(total, tasks, seed)
    index = MemoryIndex(width)
    for rows in np.split(np.arange(total), np.cumsum(sizes)):
        index.append(keys[rows], rows_of(columns, rows))
    assert len(index) == total
    near = keys[np.random.default_rng(seed).integers(0, total, 6)] if total else keys
    queries = np.concatenate([near, drawn(kind, 9, width, seed + 1)])
    random = np.random.default_rng(seed + 2)
    owner = random.integers(0, tasks + 1, len(queries)) if restricted else None
    episode = random.integers(-1, total // 3 + 1, len(queries)) if own else None
    similarity = cosines(queries, keys)
    allowed = ~(similarity > np.float32(at_most))
    if restricted:
        allowed &= columns["task"] == owner[:, None]
    if own:
        allowed &= columns["episode"] != episode[:, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrieval, "CELLS", cells)
        found = index.search(queries, count, owner, episode, at_most)
    ids, best = expected(queries, keys, np.arange(total), allowed, count)
    np.testing.assert_array_equal(found.id, ids)
    np.testing.assert_array_equal(found.similarity, best)
    there = ids >= 0
    for name, values in columns.items():
        np.testing.assert_array_equal(found[name][there], values[ids[there]])
        assert (found[name][~there] == -1).all()


def test_equal_to_comparing_with_every_key_where_only_the_best_groups_are_looked_into():
    keys, columns = drawn("normal", 6000, 16, 0), about(6000, 5, 0)
    index, queries = built(keys, columns), drawn("normal", 40, 16, 1)
    ids, best = expected(queries, keys, np.arange(6000), np.ones((40, 6000), bool), 50)
    found = index.search(queries, 50)
    np.testing.assert_array_equal(found.id, ids)
    np.testing.assert_array_equal(found.similarity, best)


@settings(max_examples=60, deadline=None)
@given(columns=st.integers(1, 3000), count=st.integers(1, 40), levels=st.integers(1, 1000), seed=st.integers(0, 2**31))
def test_the_largest_are_the_largest_and_the_bound_holds(columns, count, levels, seed):
    values = np.random.default_rng(seed).integers(0, levels, (3, columns)).astype(np.float32)
    count = min(count, columns)
    places, bound = (value.numpy() for value in largest(torch.from_numpy(values), count))
    top = np.sort(values, 1)[:, ::-1][:, :count]
    np.testing.assert_array_equal(np.take_along_axis(values, places, 1), top)
    np.testing.assert_array_equal(bound, top[:, -1])
    assert all(len(set(row)) == count for row in places.tolist())


def test_of_equal_keys_the_lower_ids_are_found_however_many_there_are():
    keys = np.tile(drawn("normal", 1, 8, 0), (3000, 1)) * np.float32(2) ** (np.arange(3000) % 5)[:, None]
    index = built(keys, about(3000, 7, 0))
    np.testing.assert_array_equal(index.search(keys[:1], 20).id, [np.arange(20)])


def test_an_answer_does_not_depend_on_its_batch():
    keys, columns = drawn("clusters", 900, 24, 0), about(900, 6, 0)
    index, queries = built(keys, columns), drawn("clusters", 50, 24, 1)
    owner = np.arange(50) % 6
    for options in ({}, {"owner": owner}):
        together = index.search(queries, 12, **options)
        for i in range(50):
            alone = index.search(queries[i : i + 1], 12, **{name: value[i : i + 1] for name, value in options.items()})
            assert alone.id.tobytes() == together.id[i].tobytes()
            assert alone.similarity.tobytes() == together.similarity[i].tobytes()


@pytest.mark.parametrize("sizes", [[5, 5, 5, 5], [5, 0, 7, 7, 1]])
def test_memories_of_many_owners_are_searched_side_by_side(sizes):
    owner = np.repeat(np.arange(len(sizes)), sizes)
    keys = drawn("normal", len(owner), 6, 0)
    index = built(keys, {**about(len(owner), 1, 0), "owner": owner})
    asked = np.repeat(np.arange(len(sizes)), 2)[::-1]
    queries = drawn("normal", len(asked), 6, 1)
    found = index.search(queries, 6, owner=asked)
    ids, best = expected(queries, keys, np.arange(len(owner)), owner == asked[:, None], 6)
    np.testing.assert_array_equal(found.id, ids)
    np.testing.assert_array_equal(found.similarity, best)
    equal = len(set(sizes)) == 1
    assert len(list(index._runs(asked))) == (1 if equal else 3)  # one product, or one for each size


def test_nothing_is_ordinary():
    index = MemoryIndex(3)
    for owner in (None, np.array([0, 4])):
        found = index.search(np.ones((2, 3)), 4, owner=owner)
        assert (found.id == -1).all()
        assert (found.similarity == -np.inf).all()
        ranked = rank(found, {"similarity": 1, "return": 1}, 2, np.zeros(2, int))
        assert (ranked.found.id == -1).all()
        assert (ranked.score == -np.inf).all()
        assert not any(term.any() for term in ranked.terms.values())
    assert index.search(np.empty((0, 3)), 4).id.shape == (0, 4)
    assert index.append(np.empty((0, 3)), about(0, 1, 0)).shape == (0,)
    assert (index.draw(np.ones((2, 3)), np.zeros(2, int), np.random.default_rng(0)).id == -1).all()
    assert index.deduplicate() == index.keep_newest(0) == 0


def test_what_was_appended_is_copied_and_normalised_once():
    index, keys = MemoryIndex(2), np.array([[3.0, 4.0]], np.float32)
    index.append(keys, about(1, 1, 0))
    keys[:] = 1
    assert index.search(np.array([[30.0, 40.0]]), 1).similarity.tolist() == [[1.0]]
    assert index.search(np.array([[1e-20, 0.0]]), 1).similarity[0, 0] == np.float32(0.6)


# ---- what an index goes through --------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(kind=st.sampled_from(["normal", "clusters"]), total=st.integers(1, 200), seed=st.integers(0, 2**31))
def test_the_order_of_appending_is_no_matter(kind, total, seed):
    keys, columns = drawn(kind, total, 12, seed), about(total, 4, seed)
    queries, random = drawn(kind, 8, 12, seed + 1), np.random.default_rng(seed)
    order = random.permutation(total)
    one, other = built(keys, columns), MemoryIndex(12)
    for rows in np.array_split(order, 3):
        other.append(keys[rows], rows_of(columns, rows))
    for owner in (None, random.integers(0, 4, 8)):
        first, again = one.search(queries, total, owner), other.search(queries, total, owner)
        np.testing.assert_array_equal(first.similarity, again.similarity)
        in_first = [set(zip(*row, strict=True)) for row in zip(first["episode"], first["start"], strict=True)]
        in_other = [set(zip(*row, strict=True)) for row in zip(again["episode"], again["start"], strict=True)]
        assert in_first == in_other
        content = np.where(again.id >= 0, order[again.id], -1)
        padded = np.pad(first.similarity, ((0, 0), (1, 1)), constant_values=np.nan)
        apart = padded[:, 1:] != padded[:, :-1]
        alone = apart[:, :-1] & apart[:, 1:]
        np.testing.assert_array_equal(content[alone], first.id[alone])


def test_evicted_entries_are_not_found_and_the_others_keep_their_ids():
    keys, columns = drawn("normal", 300, 10, 0), about(300, 4, 0)
    index, queries = built(keys, columns), drawn("normal", 20, 10, 1)
    random = np.random.default_rng(0)
    stays = np.ones(300, bool)
    stays[random.choice(300, 120, replace=False)] = False
    assert index.evict(np.flatnonzero(~stays)) == 120
    assert index.evict(np.flatnonzero(~stays)) == 0
    np.testing.assert_array_equal(index.ids, np.flatnonzero(stays))
    for owner in (None, random.integers(0, 4, 20)):
        allowed = stays if owner is None else stays & (columns["task"] == owner[:, None])
        ids, best = expected(queries, keys, np.arange(300), allowed, 30)
        found = index.search(queries, 30, owner)
        np.testing.assert_array_equal(found.id, ids)
        np.testing.assert_array_equal(found.similarity, best)
    assert index.append(keys[:2], rows_of(columns, [0, 1])).tolist() == [300, 301]


def test_the_oldest_go_first():
    keys, columns = drawn("normal", 60, 4, 0), about(60, 4, 0)
    index = built(keys, columns)
    assert index.keep_newest(100) == 0
    assert index.keep_newest(25) == 35
    np.testing.assert_array_equal(index.ids, np.arange(35, 60))
    index = built(keys, columns)
    gone = index.keep_newest(5, each_owner=True)
    newest = np.concatenate([np.flatnonzero(columns["task"] == task)[-5:] for task in range(4)])
    np.testing.assert_array_equal(index.ids, np.sort(newest))
    assert gone == 60 - len(newest)


@pytest.mark.parametrize("cells", [8, 2**26])
def test_of_near_copies_the_first_stays(monkeypatch, cells):
    monkeypatch.setattr(retrieval, "CELLS", cells)
    keys, columns = drawn("clusters", 240, 6, 3), about(240, 3, 3)
    keys[200:] = drawn("normal", 40, 6, 4)
    similarity, stays = cosines(keys, keys), []
    for i in range(240):
        if not any(columns["task"][j] == columns["task"][i] and similarity[j, i] > np.float32(0.98) for j in stays):
            stays.append(i)
    index = built(keys, columns)
    assert index.deduplicate(0.98) == 240 - len(stays) > 100
    assert index.ids.tolist() == stays
    assert index.deduplicate(0.98) == 0
    mixed = built(keys, {**columns, "owner": np.zeros(240, int)})  # one owner, whose tasks still do not mix
    mixed.deduplicate(0.98)
    assert mixed.ids.tolist() == stays


def test_saved_and_read_again_it_is_the_same(tmp_path):
    keys, columns = drawn("clusters", 200, 12, 0), about(200, 4, 0)
    index, queries = built(keys, columns), drawn("clusters", 10, 12, 1)
    index.evict(np.arange(20, 60))
    index.evict([199])
    index.save(tmp_path / "index")
    read = MemoryIndex.load(tmp_path / "index")
    for change in (lambda one: None, lambda one: one.append(keys[:9], rows_of(columns, np.arange(9)))):
        assert len(read) == len(index)
        change(index), change(read)
        for owner in (None, np.arange(10) % 4):
            same(index.search(queries, 25, owner), read.search(queries, 25, owner))
    assert index.ids[-1] == read.ids[-1] == 208  # no id is given out twice
    read.save(tmp_path / "index")
    assert len(list((tmp_path / "index").iterdir())) == 2
    same(index.search(queries, 25), MemoryIndex.load(tmp_path / "index").search(queries, 25))
    MemoryIndex(5).save(tmp_path / "empty")
    assert len(MemoryIndex.load(tmp_path / "empty")) == 0


def test_equal_content_is_saved_as_equal_bytes(tmp_path):
    keys, columns = drawn("normal", 90, 5, 0), about(90, 4, 0)
    at_once, in_parts = built(keys, columns), MemoryIndex(5)
    in_parts.reserve(9, 64)
    for rows in np.array_split(np.arange(90), 7):
        in_parts.append(keys[rows], rows_of(columns, rows))
    for index, name in ((at_once, "a"), (in_parts, "b")):
        index.save(tmp_path / name)
    assert (tmp_path / "a/retrieval.json").read_bytes() == (tmp_path / "b/retrieval.json").read_bytes()


def test_a_damaged_index_is_one_sentence(tmp_path):
    index = built(drawn("normal", 9, 4, 0), about(9, 2, 0))
    with pytest.raises(RetrievalError, match=r"no memory index: it holds no retrieval\.json"):
        MemoryIndex.load(tmp_path)
    index.save(tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(RetrievalError, match="is damaged: its hash"):
        MemoryIndex.load(tmp_path)
    file.unlink()
    with pytest.raises(RetrievalError, match="is damaged"):
        MemoryIndex.load(tmp_path)
    says = json.loads((tmp_path / "retrieval.json").read_bytes())
    (tmp_path / "retrieval.json").write_text(json.dumps({**says, "format": 9}))
    with pytest.raises(RetrievalError, match="has format 9, this version reads 1"):
        MemoryIndex.load(tmp_path)


def test_an_older_attempt_does_not_save(tmp_path):
    older, newer = Attempt.begin(tmp_path), Attempt.begin(tmp_path)
    first, second = built(drawn("normal", 9, 4, 0), about(9, 2, 0)), built(drawn("normal", 5, 4, 0), about(5, 2, 0))
    second.save(tmp_path / "index", newer)
    with pytest.raises(Superseded):
        first.save(tmp_path / "index", older)
    assert len(MemoryIndex.load(tmp_path / "index")) == 5
    second.save(tmp_path / "index", Attempt.begin(tmp_path))
    assert len(list((tmp_path / "index").iterdir())) == 2  # nothing of the others is left
    assert len(MemoryIndex.load(tmp_path / "index")) == 5


def test_entries_are_pointers(tmp_path):
    index = built(drawn("normal", 9, 4, 0), about(9, 2, 0))
    index.save(tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    arrays = safetensors.numpy.load_file(file)
    assert {name: (str(value.dtype), value.shape) for name, value in arrays.items()} == {
        "key": ("float32", (9, 4)),
        "id": ("int64", (9,)),
        **{name: (kind, (9,)) for name, kind in COLUMNS.items()},
    }


# ---- shards, scores --------------------------------------------------------------------------------------------------


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
        **{"return": [[0, 4, 8, -1], [2, -1, -1, -1]]},
    )
    weights = {"similarity": 1.0, "task": 2.0, "return": 3.0, "recency": 0.5}
    ranked = rank(found, weights, 4, np.array([1, 8]))
    assert ranked.found.id.tolist() == [[9, 5, 2, -1], [1, -1, -1, -1]]
    np.testing.assert_allclose(ranked.terms["similarity"], [[0, 1, 0.75, 0], [0, 0, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(ranked.terms["task"], [[1, 1, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(ranked.terms["return"], [[1, 0, 0.5, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(ranked.terms["recency"], [[0.5, 0, 1, 0], [0, 0, 0, 0]])
    score = [[2 + 3 + 0.25, 1 + 2, 0.75 + 1.5 + 0.5, -np.inf], [0, -np.inf, -np.inf, -np.inf]]
    np.testing.assert_allclose(ranked.score, score, rtol=1e-6)
    assert rank(found, {"recency": 1}, 2, np.array([1, 8])).found.id.tolist() == [[2, 9], [1, -1]]
    assert rank(found, {"recency": -1}, 1, np.array([1, 8])).found.id.tolist() == [[5], [1]]
    assert rank(found, {}, 2, np.array([1, 8])).found.id.tolist() == [[5, 2], [1, -1]]
    assert rank(found, {"task": 1}, 6, np.array([2, 8])).found.id.tolist() == [[2, 5, 9, -1, -1, -1], [1] + [-1] * 5]
    with pytest.raises(ValueError, match="a score has no term 'novelty': there are similarity, task, return, recency"):
        rank(found, {"novelty": 1}, 2, np.array([1, 8]))


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


def test_who_has_seen_too_little_gets_any_chunk_of_the_task():
    keys, columns = drawn("normal", 120, 8, 0), about(120, 4, 0)
    index, queries = built(keys, columns), drawn("normal", 400, 8, 1)
    task = np.zeros(400, int)
    fits = np.flatnonzero(columns["task"] == 0)
    episode = np.full(400, columns["episode"][fits[0]])
    fits = fits[columns["episode"][fits] != episode[0]]
    found = index.search(queries, 5, task, episode)
    one = index.draw(queries, task, np.random.default_rng(3), owner=task, not_episode=episode)
    assert set(one.id[:, 0].tolist()) == set(fits.tolist())  # every one of them, and never the own episode
    same(one, index.draw(queries, task, np.random.default_rng(3), not_episode=episode))
    np.testing.assert_array_equal(one.similarity[:, 0], cosines(queries, keys)[np.arange(400), one.id[:, 0]])
    short = np.arange(400) < 150
    mixed = found.replaced(short, one)
    np.testing.assert_array_equal(mixed.id[150:], found.id[150:])
    np.testing.assert_array_equal(mixed.id[:150, 0], one.id[:150, 0])
    assert (mixed.id[:150, 1:] == -1).all()
    ranked = rank(mixed, {"similarity": 1, "task": 1}, 1, task)
    np.testing.assert_array_equal(ranked.found.id[:150, 0], one.id[:150, 0])
    some_more = index.draw(queries[:50], task[:50], np.random.default_rng(3), 200)
    assert all(sorted(row[row >= 0]) == np.flatnonzero(columns["task"] == 0).tolist() for row in some_more.id)
    with pytest.raises(ValueError, match="draw fewer entries"):
        found.replaced(short[:50], some_more)


def test_refusals_are_one_sentence():
    index, columns = built(drawn("normal", 4, 3, 0), about(4, 2, 0)), about(1, 1, 0)
    for wrong in (np.ones((1, 4)), np.ones(3)):
        with pytest.raises(ValueError, match=r"are not \[number, 3\]"):
            index.search(wrong, 1)
    for bad in (0.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="vector 1 of 2 is zero or not finite"):
            index.append(np.array([[1.0, 0, 0], [bad, 0, 0]]), about(2, 1, 0))
    with pytest.raises(ValueError, match="1 entry or more, not 0"):
        index.search(np.ones((1, 3)), 0)
    with pytest.raises(ValueError, match=r"ids of new entries ascend from 4 on: \[3\]"):
        index.append(np.ones((1, 3)), columns, ids=np.array([3]))
    with pytest.raises(ValueError, match="an entry has the columns owner, task"):
        index.append(np.ones((1, 3)), {"task": columns["task"]})
    with pytest.raises(ValueError, match=r"start of 1 entries has shape \(2,\)"):
        index.append(np.ones((1, 3)), {**columns, "start": np.zeros(2, int)})
    with pytest.raises(ValueError, match="owner -1 is below 0"):
        index.append(np.ones((1, 3)), {**columns, "owner": np.array([-1])})
    with pytest.raises(ValueError, match="width of 1 or more, not 0"):
        MemoryIndex(0)
    with pytest.raises(ValueError, match="cannot keep -1"):
        index.keep_newest(-1)
    assert len(index) == 4
    assert index.next_id == 4
