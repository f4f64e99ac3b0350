"""Neighbours are those that comparing with every point finds, whatever the points, their order and their batches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.store import neighbours
from learner.store.kd_tree import DEEPEST, SPARE
from learner.store.neighbours import LEAF, Neighbours


def all_distances(queries, points):
    return np.sqrt(((queries[:, None] - points[None]) ** 2).sum(-1))


def brute_mean(queries, points, k, skip=0):
    return np.sort(all_distances(queries, points), 1)[:, skip:k].mean(1)


def depth(found):
    return int(found._tree.counters[DEEPEST])


def buckets(found):
    return len(found._tree.spare) - int(found._tree.counters[SPARE])


def drawn(kind, count, dimensions, seed):
    random = np.random.default_rng(seed)
    if kind == "lattice":  # many coordinates and many points are equal
        return random.integers(0, 4, (count, dimensions)).astype(float)
    if kind == "walls":  # one coordinate is often the same
        return np.where(random.random((count, dimensions)) < 0.5, 30.0, random.random((count, dimensions)) * 600)
    if kind == "clusters":
        return random.integers(0, 5, (count, dimensions)) * 100.0 + random.normal(size=(count, dimensions))
    if kind == "tiny":
        return 1.0 + random.random((count, dimensions)) * 1e-13
    if kind == "ascending":
        return np.sort(random.normal(size=(count, dimensions)), 0)
    return random.random((count, dimensions)) * 600 - 300


KINDS = ["uniform", "lattice", "walls", "clusters", "tiny", "ascending"]


@settings(max_examples=80, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    dimensions=st.integers(1, 6),
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=4),
    k=st.integers(1, 20),
    seed=st.integers(0, 2**31),
)
def test_equal_to_comparing_with_every_point(kind, dimensions, sizes, k, seed):
    points = drawn(kind, sum(sizes) + 1, dimensions, seed)
    found = Neighbours(dimensions, 20)
    for batch in np.split(points, np.cumsum(sizes)):
        found.insert(batch)
    assert len(found) == len(points)
    near = points[np.random.default_rng(seed).integers(0, len(points), 20)]
    queries = np.concatenate([near, drawn(kind, 20, dimensions, seed + 1), near * 1.5 + 7])
    np.testing.assert_allclose(found.mean_distance(queries, k), brute_mean(queries, points, k), rtol=1e-13, atol=1e-12)
    distance, number = found.nearest(queries, k)
    many = min(k, len(points))
    expected = np.sort(all_distances(queries, points), 1)[:, :many]
    np.testing.assert_allclose(distance[:, :many], expected, rtol=1e-13, atol=1e-12)
    to_those = np.sqrt(((points[number[:, :many]] - queries[:, None]) ** 2).sum(-1))
    np.testing.assert_allclose(to_those, expected, rtol=1e-13, atol=1e-12)
    assert all(len(set(row)) == many for row in number[:, :many].tolist())
    assert (distance[:, many:] == np.inf).all()
    assert (number[:, many:] == -1).all()


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    known=st.integers(0, 300),
    others=st.integers(1, 120),
    k=st.integers(2, 15),
    seed=st.integers(0, 2**31),
)
def test_a_population_counts_for_once_and_may_leave_itself_out(kind, known, others, k, seed):
    points, crowd = drawn(kind, known, 2, seed), drawn(kind, others, 2, seed + 1)
    found = Neighbours(2)
    found.insert(points)
    everything = np.concatenate([points, crowd])
    options = {"rtol": 1e-13, "atol": 1e-12}
    with_self = found.mean_distance(crowd, k, others=crowd)
    np.testing.assert_allclose(with_self, brute_mean(crowd, everything, k), **options)
    if len(everything) > 1:
        without = found.mean_distance(crowd, k, others=crowd, without_self=True)
        np.testing.assert_allclose(without, brute_mean(crowd, everything, k, skip=1), **options)
    assert len(found) == known


def test_few_points():
    found = Neighbours(2, 3)
    here = np.array([[0.0, 0.0]])
    assert found.mean_distance(here, 3).tolist() == [np.inf]
    assert found.mean_distance(here, 3, others=here).tolist() == [0.0]
    assert found.mean_distance(here, 3, others=here, without_self=True).tolist() == [np.inf]
    found.insert(np.array([[3.0, 4.0]]))
    assert found.mean_distance(here, 3).tolist() == [5.0]
    assert found.mean_distance(here, 3, others=here).tolist() == [2.5]
    assert found.mean_distance(here, 3, others=here, without_self=True).tolist() == [5.0]
    assert found.mean_distance(np.empty((0, 2)), 3).shape == (0,)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_do_not_matter(kind):
    points = drawn(kind, 3000, 2, 0)
    at_once, one_by_one, mixed = (Neighbours(2) for _ in range(3))
    at_once.insert(points)
    for point in points:
        one_by_one.insert(point[None])
    for batch in np.split(points, [1, 7, 500, 501, 2000]):
        mixed.insert(batch)
    queries = drawn("uniform", 200, 2, 1)
    first, which = at_once.nearest(queries, 15)
    for other in (one_by_one, mixed):
        again, same = other.nearest(queries, 15)
        assert first.tobytes() == again.tobytes()
        assert which.tobytes() == same.tobytes()
        assert other.mean_distance(queries, 15).tobytes() == at_once.mean_distance(queries, 15).tobytes()


ORDERS = {
    "ascending": np.stack([np.arange(60_000.0), np.zeros(60_000)], 1),
    "descending": np.stack([np.zeros(60_000), -np.arange(60_000.0)], 1),
    "geometric": np.stack([1 - 0.9995 ** np.arange(60_000), np.arange(60_000.0) % 7], 1),
    "spiral": np.stack([f(np.arange(60_000) / 500) * np.sqrt(np.arange(60_000)) for f in (np.cos, np.sin)], 1),
}


@pytest.mark.parametrize("order", ORDERS)
def test_points_in_order_do_not_make_a_list_of_the_tree(order):
    points = ORDERS[order]
    found = Neighbours(2)
    for batch in np.split(points, 300):
        found.insert(batch)
    assert depth(found) <= 2 * 16 + 4 + 1  # twice log2 of the points, and what the two dimensions may add
    assert buckets(found) < 2.5 * len(points) / LEAF  # what replanting gave back is used again
    queries = points[:: len(points) // 50]
    np.testing.assert_allclose(
        found.mean_distance(queries, 15), brute_mean(queries, points, 15), rtol=1e-13, atol=1e-12
    )
    assert set(found.nearest(queries, 1)[0][:, 0]) == {0.0}


def test_a_place_that_is_often_visited_is_kept_as_often_as_can_be_asked():
    random = np.random.default_rng(0)
    places = random.random((5, 2)) * 600
    points = places[random.integers(0, 5, 50_000)]
    found = Neighbours(2)
    found.insert(points)
    assert len(found) == 50_000
    assert buckets(found) <= 10
    distance, number = found.nearest(places, 15)
    assert not distance.any()
    assert (points[number] == places[:, None]).all()
    found = Neighbours(2)
    for count in range(1, 3 * LEAF):
        found.insert(places[:1])
        assert (found.nearest(places[:1], 15)[0] == 0).sum() == min(count, 15)


def test_places_that_are_often_visited_count_as_often_from_afar():
    random = np.random.default_rng(0)
    places = random.random((5, 2)) * 600
    points = places[random.integers(0, 5, 5000)]
    found = Neighbours(2)
    found.insert(points)
    far = np.array([[1000.0, 1000.0]])
    np.testing.assert_allclose(found.mean_distance(far, 15), brute_mean(far, points, 15), rtol=1e-13)


def test_many_neighbours_and_a_million_apart():
    """More neighbours than a usual leaf has points; numbers of very different sizes."""
    random = np.random.default_rng(0)
    points = random.normal(size=(5000, 3)) * 10.0 ** random.integers(-6, 7, (5000, 1))
    found = Neighbours(3, 100)
    found.insert(points)
    queries = points[:40]
    np.testing.assert_allclose(found.mean_distance(queries, 100), brute_mean(queries, points, 100), rtol=1e-13)


def test_what_was_inserted_is_copied():
    found, points, queries = Neighbours(2), drawn("uniform", 100, 2, 0), drawn("uniform", 10, 2, 1)
    expected = brute_mean(queries, points, 15)
    found.insert(points)
    points[:] = 0
    np.testing.assert_allclose(found.mean_distance(queries, 15), expected)
    float32 = Neighbours(2)
    float32.insert(np.ones((3, 2), np.float32)[:, ::-1])
    assert float32.nearest(np.ones((1, 2)), 3)[1].tolist() == [[0, 1, 2]]


def test_refusals_are_one_sentence():
    found = Neighbours(2)
    for wrong in (np.zeros((3, 3)), np.zeros(2), np.zeros((1, 2, 2))):
        with pytest.raises(ValueError, match=r"are not \[number, 2\]"):
            found.insert(wrong)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"point 1 of 2 is \[.*\]: it must be finite"):
            found.mean_distance(np.array([[0.0, 0.0], [0.0, bad]]), 15)
    with pytest.raises(ValueError, match="finite"):
        found.mean_distance(np.zeros((1, 2)), 15, others=np.array([[np.nan, 0]]))
    for k in (0, 16):
        with pytest.raises(ValueError, match=f"k is {k}: these neighbours were made for 1 to 15"):
            found.nearest(np.zeros((1, 2)), k)
    for dimensions, k in ((0, 15), (2, 0), (2, neighbours.MOST + 1)):
        with pytest.raises(ValueError, match="neighbours need"):
            Neighbours(dimensions, k)
    assert len(found) == 0
