"""The largest products are those that sorting all of them finds, whatever is made at once."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.store import products
from learner.store.products import largest, largest_products, products_of


@settings(max_examples=60, deadline=None)
@given(columns=st.integers(1, 3000), count=st.integers(1, 40), levels=st.integers(1, 1000), seed=st.integers(0, 2**31))
def test_the_largest_are_the_largest_and_descend(columns, count, levels, seed):
    values = np.random.default_rng(seed).integers(0, levels, (3, columns)).astype(np.float32)
    count = min(count, columns)
    places, top = (value.numpy() for value in largest(torch.from_numpy(values), count))
    np.testing.assert_array_equal(top, np.sort(values, 1)[:, ::-1][:, :count])
    np.testing.assert_array_equal(np.take_along_axis(values, places, 1), top)
    assert all(len(set(row)) == count for row in places.tolist())


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=5),
    rows=st.integers(1, 30),
    count=st.integers(1, 40),
    levels=st.sampled_from([2, 5, 200]),
    most=st.sampled_from([np.inf, 3.0, 0.0, -100.0]),
    order=st.sampled_from(["drawn", "rising", "falling"]),
    block=st.sampled_from([1, 500, 2**19]),
    seed=st.integers(0, 2**31),
)
def test_without_all_products_the_largest_are_the_same(sizes, rows, count, levels, most, order, block, seed):
    """Whole numbers, so that products are exact and equal ones are many."""
    random, total = np.random.default_rng(seed), sum(sizes)
    keys = random.integers(-levels, levels + 1, (total, 3)).astype(np.float32)
    if order != "drawn":
        keys = keys[np.argsort(keys[:, 0] if order == "rising" else -keys[:, 0])]
    queries = random.integers(-3, 4, (rows, 3)).astype(np.float32)
    count = min(count, total)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "BLOCK", block)
        own = torch.from_numpy(keys).split(sizes)
        numbers, found = (value.numpy() for value in largest_products(torch.from_numpy(queries), own, count, most))
    every = queries @ keys.T
    every[every > most] = -np.inf
    np.testing.assert_array_equal(found, np.sort(every, 1)[:, ::-1][:, :count])
    there = found > -np.inf
    np.testing.assert_array_equal(np.take_along_axis(every, numbers, 1)[there], found[there])
    assert all(len(set(row[own].tolist())) == own.sum() for row, own in zip(numbers, there, strict=True))


def test_no_more_products_are_made_at_once_than_a_block(monkeypatch):
    multiply, made = products.multiply, []
    monkeypatch.setattr(products, "BLOCK", 320)
    monkeypatch.setattr(
        products, "multiply", lambda left, right, into: made.append(into.numel()) or multiply(left, right, into)
    )
    largest_products(torch.randn(4, 6), torch.randn(1000, 6).split(300), 5, np.inf)
    assert max(made) <= 320
    assert sum(made) == 4000


@settings(deadline=None)
@given(
    shape=st.tuples(st.integers(0, 60), st.integers(1, 20)),
    most=st.sampled_from([np.inf, 3.0, 0.0]),
    bounds=st.integers(-4, 5),
    seed=st.integers(0, 2**31),
)
def test_what_passes_is_what_lies_between_its_bounds(shape, most, bounds, seed):
    random = np.random.default_rng(seed)
    found = torch.from_numpy(random.integers(-4, 5, shape).astype(np.float32))
    found[torch.from_numpy(random.random(shape) < 0.1)] = -torch.inf
    above = torch.from_numpy((bounds + random.integers(-1, 2, shape[1])).astype(np.float32))
    key, row = ((found > above) & (found <= most)).nonzero(as_tuple=True)
    for mine, expected in zip(products.passing(found, above, most), (key, row, found[key, row]), strict=True):
        assert mine.dtype == expected.dtype
        np.testing.assert_array_equal(mine, expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_product_is_the_same_by_either_library(threads):
    """One thread is NumPy's, more are PyTorch's; keys are views of a longer array, as an index has them."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        random = torch.Generator().manual_seed(0)
        left, keys = torch.randn(3, 4, 5, generator=random), torch.randn(3, 9, 5, generator=random)[:, :7]
        product = torch.empty(3, 4, 7)
        products.multiply(left, keys.transpose(1, 2), product)
        torch.testing.assert_close(product, torch.einsum("orw,onw->orn", left, keys))
        products.multiply(left[0], keys[0].T, product[0])
        torch.testing.assert_close(product[0], left[0] @ keys[0].T)
    finally:
        torch.set_num_threads(before)


def test_products_of_owners():
    random = torch.Generator().manual_seed(0)
    own = [
        (torch.randn(n, r, 5, generator=random), torch.randn(n, 7, 5, generator=random)) for n, r in ((3, 4), (1, 2))
    ]
    every = torch.cat([torch.bmm(queries, keys.transpose(1, 2)).flatten(0, 1) for queries, keys in own])
    torch.testing.assert_close(products_of(own, torch.inf), every)
    torch.testing.assert_close(products_of(own, 0.5), every.masked_fill(every > 0.5, -torch.inf))
