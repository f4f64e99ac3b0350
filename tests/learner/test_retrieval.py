"""What is found is what comparing with every key finds, whatever the batch, the shards, and what happened before."""

import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.store import retrieval
from learner.store.ranking import rank
from learner.store.retrieval import MemoryIndex
from tests.learner.vectors import KINDS, about, built, cosines, drawn, expected, rows_of, same


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    width=st.integers(1, 40),
    sizes=st.lists(st.integers(0, 150), min_size=1, max_size=4),
    tasks=st.integers(1, 4),
    count=st.integers(1, 60),
    restricted=st.booleans(),
    own=st.booleans(),
    at_most=st.sampled_from([np.inf, 0.98, 0.5, -2.0, "one that occurs"]),
    bounds=st.fixed_dictionaries(
        {"CELLS": st.sampled_from([1, 300, 2**22]), "PAIRS": st.integers(1, 200), "QUERIES": st.integers(1, 20)}
    ),
    seed=st.integers(0, 2**31),
)
def test_equal_to_comparing_with_every_key(kind, width, sizes, tasks, count, restricted, own, at_most, bounds, seed):
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
    if at_most == "one that occurs":
        at_most = float(random.choice(similarity.ravel())) if total else 0.0
    allowed = ~(similarity > np.float32(at_most))
    if restricted:
        allowed &= columns["task"] == owner[:, None]
    if own:
        allowed &= columns["episode"] != episode[:, None]
    with pytest.MonkeyPatch.context() as patch:
        for name, bound in bounds.items():
            patch.setattr(retrieval, name, bound)
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


def test_of_equal_keys_the_lower_ids_are_found_however_many_there_are():
    keys = np.tile(drawn("normal", 1, 8, 0), (3000, 1)) * np.float32(2) ** (np.arange(3000) % 5)[:, None]
    index = built(keys, about(3000, 7, 0))
    np.testing.assert_array_equal(index.search(keys[:1], 20).id, [np.arange(20)])


@pytest.mark.parametrize("owned", [False, True])
def test_copies_that_are_left_out_cost_no_more_than_other_entries(owned, monkeypatch):
    """A learner that has learned all that it will lives the same episode hundreds of times."""
    keys, kept = drawn("normal", 4000, 8, 0), []
    keys[::3] = keys[0] * np.float32(2) ** (np.arange(1334) % 5)[:, None]
    index, owner = built(keys, about(4000, 1, 0)), np.zeros(2, int) if owned else None
    watched(monkeypatch, lambda rows, count: kept.append(count))
    for at_most in (0.98, -2.0):
        found = index.search(keys[:2], 50, owner, at_most=at_most)
        allowed = ~(cosines(keys[:2], keys) > np.float32(at_most))
        ids, best = expected(keys[:2], keys, np.arange(4000), allowed, 50)
        np.testing.assert_array_equal(found.id, ids)
        np.testing.assert_array_equal(found.similarity, best)
    assert set(kept) == {50 + retrieval.SPARE}


@pytest.mark.parametrize("owned", [False, True])
def test_pairs_that_are_settled_at_once_are_bounded_however_many_are_equally_near(owned, monkeypatch):
    keys, pairs = np.tile(drawn("normal", 1, 8, 0), (1000, 1)), []
    index, owner = built(keys, about(1000, 1, 0)), np.zeros(64, int) if owned else None
    monkeypatch.setattr(retrieval, "PAIRS", 2**13)
    watched(monkeypatch, lambda rows, count: pairs.append(rows * count))
    assert (index.search(keys[:64], 20, owner).id == np.arange(20)).all()
    assert max(pairs) <= 2**13


def test_products_are_let_go_before_the_next_are_made(monkeypatch):
    monkeypatch.setattr(retrieval, "CELLS", 120)
    keys, columns = drawn("normal", 90, 6, 0), {**about(90, 1, 0), "owner": np.arange(90) % 3}
    settle, multiply, scans = MemoryIndex._settle, retrieval.products_of, []

    def settled(index, scan, *rest):
        settle(index, scan, *rest)
        scans.append(weakref.ref(scan.products))

    def multiplied(*factors):
        assert all(scan() is None for scan in scans)
        return multiply(*factors)

    monkeypatch.setattr(MemoryIndex, "_settle", settled)
    monkeypatch.setattr(retrieval, "products_of", multiplied)
    built(keys, columns).search(drawn("normal", 20, 6, 1), 3, np.arange(20) % 3)
    assert len(scans) > 3


def watched(monkeypatch, tell):
    """Call `tell` with the number of rows and of entries whenever the largest are looked for."""
    own, every = retrieval.largest, retrieval.largest_products
    monkeypatch.setattr(retrieval, "largest", lambda values, count: tell(len(values), count) or own(values, count))
    monkeypatch.setattr(
        retrieval,
        "largest_products",
        lambda queries, keys, count, most: tell(len(queries), count) or every(queries, keys, count, most),
    )


@pytest.mark.parametrize("owned", [False, True])
def test_autocast_does_not_round_products(owned):
    keys, columns = drawn("clusters", 300, 24, 0), about(300, 3, 0)
    index, queries, owner = built(keys, columns), drawn("clusters", 9, 24, 1), np.arange(9) % 3 if owned else None
    with torch.autocast("cpu", torch.bfloat16):
        found = index.search(queries, 12, owner)
        assert torch.get_autocast_dtype("cpu") == torch.mm(torch.ones(1, 1), torch.ones(1, 1)).dtype  # it goes on
    same(found, index.search(queries, 12, owner))


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
    nobody = np.empty(0, int)
    for one in (index, built(np.ones((2, 3)), about(2, 1, 0))):
        assert one.search(np.empty((0, 3)), 4).id.shape == (0, 4)
        assert one.search(np.empty((0, 3)), 4, nobody, nobody).id.shape == (0, 4)
        assert one.draw(np.empty((0, 3)), nobody, np.empty(0), nobody).id.shape == (0, 1)
    assert index.append(np.empty((0, 3)), about(0, 1, 0)).shape == (0,)
    assert (index.draw(np.ones((2, 3)), np.array([0, -1]), np.zeros(2)).id == -1).all()
    assert index.deduplicate() == index.keep_newest(0) == 0


def test_what_was_appended_is_copied_and_normalised_once():
    index, keys = MemoryIndex(2), np.array([[3.0, 4.0]], np.float32)
    index.append(keys, about(1, 1, 0))
    keys[:] = 1
    assert index.search(np.array([[30.0, 40.0]]), 1).similarity.tolist() == [[1.0]]
    assert index.search(np.array([[1e-20, 0.0]]), 1).similarity[0, 0] == np.float32(0.6)


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


def test_who_has_seen_too_little_gets_any_chunk_of_the_task():
    keys, columns = drawn("normal", 120, 8, 0), about(120, 4, 0)
    index, queries = built(keys, columns), drawn("normal", 400, 8, 1)
    task, uniform = np.zeros(400, int), np.random.default_rng(3).random(400)
    fits = np.flatnonzero(columns["task"] == 0)
    episode = np.full(400, columns["episode"][fits[0]])
    fits = fits[columns["episode"][fits] != episode[0]]
    found, one = index.search(queries, 5, task, episode), index.draw(queries, task, uniform, episode)
    assert set(one.id[:, 0].tolist()) == set(fits.tolist())  # every one of them, and never the own episode
    np.testing.assert_array_equal(one.similarity[:, 0], cosines(queries, keys)[np.arange(400), one.id[:, 0]])
    short = np.arange(400) < 150
    mixed = found.replaced(short, one)
    np.testing.assert_array_equal(mixed.id[150:], found.id[150:])
    np.testing.assert_array_equal(mixed.id[:150, 0], one.id[:150, 0])
    assert (mixed.id[:150, 1:] == -1).all()
    ranked = rank(mixed, {"similarity": 1, "task": 1}, 1, task)
    np.testing.assert_array_equal(ranked.found.id[:150, 0], one.id[:150, 0])
    with pytest.raises(ValueError, match="draw fewer entries"):
        one.replaced(short, found)


@settings(max_examples=60, deadline=None)
@given(
    total=st.integers(0, 60),
    tasks=st.integers(1, 4),
    gone=st.sets(st.integers(0, 59)),
    cells=st.sampled_from([1, 2**26]),
    seed=st.integers(0, 2**31),
)
def test_a_number_draws_its_share_of_the_owners_entries_in_order_of_ids(total, tasks, gone, cells, seed):
    """Alone or beside others: the n entries that may be drawn have the numbers [0, 1/n), [1/n, 2/n), ..."""
    columns, random = about(total, tasks, seed), np.random.default_rng(seed)
    order = random.permutation(total)  # those of an episode stand apart
    columns = rows_of(columns, order)
    index, keys = built(drawn("normal", total, 4, seed), columns), drawn("normal", 30, 4, seed + 1)
    index.evict(list(gone))
    owner, own, uniform = random.integers(-1, tasks + 1, 30), random.integers(-1, 20, 30), random.random(30)
    uniform[:2] = 0, np.nextafter(1, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrieval, "CELLS", cells)
        found = index.draw(keys, owner, uniform, own)
    left = np.setdiff1d(np.arange(total), list(gone))
    for row in range(30):
        fits = left[(columns["task"][left] == owner[row]) & (columns["episode"][left] != own[row])]
        assert found.id[row, 0] == (fits[int(uniform[row] * len(fits))] if len(fits) else -1)
        at = slice(row, row + 1)
        alone = index.draw(keys[at], owner[at], uniform[at], own[at])
        assert (alone.id[0], alone.similarity[0]) == (found.id[row], found.similarity[row])
        assert all(alone[name][0] == found[name][row] for name in columns)
    any_episode = index.draw(keys, owner, uniform)
    same(any_episode, index.draw(keys, owner, uniform, np.full(30, -1)))


def test_a_column_is_one_number_for_each_query():
    index, queries = built(drawn("normal", 4, 3, 0), about(4, 2, 0)), np.ones((2, 3))
    good = {"owner": np.zeros(2, int), "uniform": np.zeros(2), "not_episode": np.zeros(2, int)}
    for wrong, says in (
        (np.zeros(1, int), r"has shape \(1,\), not \(2,\)"),
        (np.zeros(3, int), r"has shape \(3,\), not \(2,\)"),
        (0, r"has shape \(\), not \(2,\)"),
        (np.zeros(2), "is of type float64, not int64"),
    ):
        for name in ("owner", "not_episode"):
            with pytest.raises(ValueError, match=f"{name} of 2 queries {says}"):
                index.search(queries, 1, **{name: wrong})
            with pytest.raises(ValueError, match=f"{name} of 2 queries {says}"):
                index.draw(queries, **good | {name: wrong})
    with pytest.raises(ValueError, match=r"uniform of 2 queries has shape \(3,\)"):
        index.draw(queries, **good | {"uniform": np.zeros(3)})
    for wrong in (1.0, -0.1):
        with pytest.raises(ValueError, match=rf"uniform {wrong} is not in \[0, 1\)"):
            index.draw(queries, **good | {"uniform": np.array([0.5, wrong])})
