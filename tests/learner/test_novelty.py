"""The parts of novelty search: mutation as published, novelty as defined, and a search that anybody can repeat."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.search.elites import cell_of
from learner.search.novelty import Purpose, members, novelty, parents, polynomial_mutation, stream, survivors
from learner.store.neighbours import Neighbours


def mutated(x, u, eta, low, high):
    """One weight, by the steps of the NSGA-II program: a perturbation of the share of the range."""
    exponent = 1.0 / (eta + 1.0)
    if u < 0.5:
        rest = 1.0 - (x - low) / (high - low)
        value = 2.0 * u + (1.0 - 2.0 * u) * rest ** (eta + 1.0)
        delta = value**exponent - 1.0
    else:
        rest = 1.0 - (high - x) / (high - low)
        value = 2.0 * (1.0 - u) + 2.0 * (u - 0.5) * rest ** (eta + 1.0)
        delta = 1.0 - value**exponent
    return min(max(x + delta * (high - low), low), high)


# ---- mutation -------------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    shape=st.tuples(st.integers(0, 6), st.integers(1, 30)),
    eta=st.floats(0, 40),
    bounds=st.tuples(st.floats(-5, 5), st.floats(0.01, 5)),
    probability=st.floats(0, 1),
    seed=st.integers(0, 2**31),
)
def test_each_weight_moves_as_published_or_not_at_all(shape, eta, bounds, probability, seed):
    low, high = bounds[0], bounds[0] + bounds[1]
    random = np.random.default_rng(seed)
    weights = np.clip(low + random.random(shape) * (high - low), low, high)
    weights[random.random(shape) < 0.1] = low  # some are at the bounds
    weights[random.random(shape) < 0.1] = high
    before = weights.copy()
    children = polynomial_mutation(weights, np.random.default_rng(seed), eta, low, high, probability)
    same = np.random.default_rng(seed)
    moved, u = same.random(shape) < probability, same.random(shape)
    for place in np.ndindex(shape):
        expected = mutated(weights[place], u[place], eta, low, high) if moved[place] else weights[place]
        assert children[place] == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert ((children >= low) & (children <= high)).all()
    np.testing.assert_array_equal(weights, before)


@pytest.mark.parametrize(("eta", "x"), [(5.0, 0.0), (5.0, 0.9), (20.0, -0.4), (1.0, -1.0)])
def test_moments_are_those_of_the_published_distribution(eta, x):
    """Against an integral over u of the scalar reference."""
    middle = (np.arange(200_000) + 0.5) / 200_000
    outcomes = np.array([mutated(x, u, eta, -1.0, 1.0) for u in middle])
    weights = np.full((400, 500), x)
    children = polynomial_mutation(weights, np.random.default_rng(0), eta=eta, probability=1.0)
    n = children.size
    for power in (1, 2, 3):
        expected, spread = (outcomes**power).mean(), (outcomes**power).std()
        assert abs((children**power).mean() - expected) < 5 * spread / np.sqrt(n)
    np.testing.assert_allclose(
        np.quantile(children, [0.1, 0.5, 0.9]), np.quantile(outcomes, [0.1, 0.5, 0.9]), atol=0.01
    )


def test_one_in_ten_moves_and_half_of_them_down():
    weights = np.zeros((200, 302), np.float32)
    children = polynomial_mutation(weights, np.random.default_rng(0))
    n = weights.size
    moved = children != 0
    assert children.dtype == np.float32
    assert abs(moved.mean() - 0.1) < 5 * np.sqrt(0.1 * 0.9 / n)
    assert abs((children < 0).sum() / moved.sum() - 0.5) < 5 * 0.5 / np.sqrt(moved.sum())
    assert polynomial_mutation(weights, np.random.default_rng(0), probability=0.0).tobytes() == weights.tobytes()


def test_float32_stays_between_bounds_that_it_cannot_say():
    weights = np.zeros((100, 100), np.float32)
    for _ in range(30):
        weights = polynomial_mutation(weights, np.random.default_rng(_), 0.0, -0.1, 0.3, 1.0)
    assert weights.dtype == np.float32
    assert weights.min() < -0.09
    assert weights.max() > 0.29


def test_what_makes_no_sense_is_refused():
    random, weights = np.random.default_rng(0), np.zeros((2, 3))
    for bad in (1.1, -1.1, np.nan):
        weights[1, 1] = bad
        with pytest.raises(ValueError, match=r"mutation needs weights between -1\.0 and 1\.0"):
            polynomial_mutation(weights, random)
    for wrong in ({"low": 1.0}, {"eta": -1.0}, {"probability": 1.5}):
        with pytest.raises(ValueError, match="low must be below high, eta not negative"):
            polynomial_mutation(np.zeros((2, 3)), random, **wrong)


# ---- choices --------------------------------------------------------------------------------------------------------


def test_numbers_follow_from_seed_generation_and_purpose():
    drawn = {
        (seed, generation, purpose): stream(seed, generation, purpose).random(4).tobytes()
        for seed in (0, 1)
        for generation in (0, 1, 10**6)
        for purpose in Purpose
    }
    assert len(set(drawn.values())) == len(drawn)
    assert stream(1, 2, Purpose.PARENTS).random(4).tobytes() == stream(1, 2, Purpose.PARENTS).random(4).tobytes()


def test_parents_are_drawn_again_and_again_and_all_as_likely():
    chosen = parents(50, 50_000, np.random.default_rng(0))
    counts = np.bincount(chosen, minlength=50)
    assert len(counts) == 50
    assert ((counts - 1000) ** 2 / 1000).sum() < 49 + 5 * np.sqrt(98)  # chi-square
    assert len(set(parents(50, 50, np.random.default_rng(1)).tolist())) < 50


def test_survivors_are_the_newest_and_of_equals_the_first():
    assert survivors(np.array([1.0, 3.0, 2.0, 3.0, 1.0]), 4).tolist() == [1, 3, 2, 0]
    assert survivors(np.array([0.0, np.inf]), 5).tolist() == [1, 0]
    assert survivors(np.arange(300) % 2 * 1.0, 150).tolist() == list(range(1, 300, 2))


def test_members_are_different_ones_of_the_pool():
    pool = np.array([10, 20, 30, 40])
    for seed in range(20):
        found = members(pool, np.random.default_rng(seed), 3)
        assert len(set(found.tolist())) == 3
        assert set(found.tolist()) <= set(pool.tolist())
    assert sorted(members(pool, np.random.default_rng(0)).tolist()) == pool.tolist()
    assert len({members(np.arange(50), np.random.default_rng(s))[0] for s in range(200)}) > 40


def test_novelty_is_the_mean_of_fourteen_neighbours_in_archive_and_population():
    random = np.random.default_rng(0)
    archive, population = random.random((300, 2)) * 600, random.random((100, 2)) * 600
    known = Neighbours(2)

    def expected(archive):
        distance = np.sqrt(((population[:, None] - np.concatenate([archive, population])[None]) ** 2).sum(-1))
        return np.sort(distance, 1)[:, 1:15].mean(1)

    np.testing.assert_allclose(novelty(known, population), expected(archive[:0]), rtol=1e-13)  # generation 0
    known.insert(archive)
    np.testing.assert_allclose(novelty(known, population), expected(archive), rtol=1e-13)
    known.insert(population[:3])  # kept: they are less new from now on
    again = novelty(known, population)
    np.testing.assert_allclose(again, expected(np.concatenate([archive, population[:3]])), rtol=1e-13)
    assert (again[:3] < expected(archive)[:3]).all()


# ---- a search -------------------------------------------------------------------------------------------------------


def play(weights, order):
    """Where an arm of many joints ends, whose angles are small by habit; workers are through in any order."""
    found = np.empty((len(weights), 2))
    for i in order:
        angles = np.cumsum(weights[i])
        found[i] = np.cos(angles).sum(), np.sin(angles).sum()
    return found


def search(seed, generations, workers, newest=True):
    """Mu plus lambda, 20 and 20; returns all that was found, what was kept, and the last population."""
    shuffle = np.random.default_rng(workers)
    weights = polynomial_mutation(np.zeros((20, 12)), stream(seed, 0, Purpose.MUTATION))
    places = play(weights, shuffle.permutation(20))
    known, everything, kept = Neighbours(2), [places], []
    for generation in range(1, generations):
        chosen = parents(20, 20, stream(seed, generation, Purpose.PARENTS))
        children = polynomial_mutation(weights[chosen], stream(seed, generation, Purpose.MUTATION))
        weights = np.concatenate([weights, children])
        places = np.concatenate([places, play(children, shuffle.permutation(20))])
        everything.append(places[20:])
        worth = novelty(known, places)
        pool = survivors(worth, 20) if newest else np.random.default_rng([seed, generation]).permutation(40)[:20]
        candidates = members(np.union1d(pool, np.arange(20, 40)), stream(seed, generation, Purpose.MEMBERS))
        kept.append(places[candidates[worth[candidates] > 0.2]])
        known.insert(kept[-1])
        weights, places = weights[pool], places[pool]
    return np.concatenate(everything), np.concatenate(kept), weights


def coverage(places):
    return len(np.unique(cell_of(places + 12, 24, 24.0))) / 24**2


def test_a_search_is_the_same_however_its_workers_come_back():
    first, again, other = search(3, 30, workers=1), search(3, 30, workers=2), search(4, 30, workers=1)
    for one, two in zip(first, again, strict=True):
        assert one.tobytes() == two.tobytes()
    assert first[0].tobytes() != other[0].tobytes()


def test_selecting_the_newest_covers_more_than_drifting():
    found, kept, _ = search(0, 150, workers=1)
    drifted, _, _ = search(0, 150, workers=1, newest=False)
    assert coverage(found) > 1.5 * coverage(drifted)
    assert 100 < len(kept) <= 6 * 149
