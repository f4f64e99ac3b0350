"""Agreement of answers with labels: counts, intervals over things, a threshold, what sureness came to."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.metrics.answers import MEASURES, area, counts, intervals, measures, reliability, threshold

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 4)), min_size=1, max_size=60)


def columns(pairs, *types):
    return [np.array(column, kind) for column, kind in zip(zip(*pairs, strict=True), types, strict=True)]


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_counts_are_those_of_a_loop_whatever_they_are_split_by(pairs):
    said, labels, of = columns(pairs, np.bool_, np.bool_, np.intp)
    found = counts(said, labels, of)
    for thing, row in enumerate(found):
        here = [(a, b) for a, b, c in pairs if c == thing]
        assert row.tolist() == [
            here.count(cell) for cell in ((True, True), (True, False), (False, True), (False, False))
        ]
    assert found.sum(0).tolist() == counts(said, labels)[0].tolist()


def test_measures_of_counts():
    found = measures(np.array([[6.0, 2, 4, 8], [0, 0, 0, 0], [0, 0, 3, 5]]))
    assert [float(found[name][0]) for name in MEASURES] == pytest.approx([0.7, 0.75, 0.6, 12 / 18])
    assert all(np.isnan(found[name][1]) for name in MEASURES)
    assert np.isnan(found["precision"][2])
    assert [float(found[name][2]) for name in ("accuracy", "recall", "F1")] == pytest.approx([5 / 8, 0, 0])


def test_a_probability_counts_as_the_mean_of_what_it_draws():
    """Shuffled answers are counted by their share of yes: the mean over permutations."""
    random = np.random.default_rng(0)
    labels, said = random.random(200) < 0.2, random.random(200) < 0.35
    drawn = np.mean([counts(random.permutation(said), labels)[0] for _ in range(4000)], 0)
    assert counts(np.full(200, said.mean()), labels)[0] == pytest.approx(drawn, abs=0.3)


def test_things_are_drawn_with_all_that_was_asked_of_them():
    """Ten things with equal answers each: copies of a question make an interval no narrower."""
    random = np.random.default_rng(1)
    labels, said = random.random(10) < 0.5, random.random(10) < 0.5
    once = intervals(counts(said, labels, np.arange(10)))
    often = intervals(counts(np.repeat(said, 50), np.repeat(labels, 50), np.repeat(np.arange(10), 50)))
    loose = intervals(counts(np.repeat(said, 50), np.repeat(labels, 50), np.arange(500)))
    for name in MEASURES:
        assert [once[name].value, once[name].low, once[name].high] == pytest.approx(
            [often[name].value, often[name].low, often[name].high]
        )
    assert loose["accuracy"].high - loose["accuracy"].low < 0.3 * (once["accuracy"].high - once["accuracy"].low)


def test_intervals_of_a_mean_are_those_of_theory_and_differences_are_paired():
    random = np.random.default_rng(2)
    labels = random.random(2000) < 0.5
    said = labels ^ (random.random(2000) < 0.2)
    found = intervals(counts(said, labels, np.arange(2000)))["accuracy"]
    half = 1.96 * np.sqrt(found.value * (1 - found.value) / 2000)
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half), abs=0.003)
    worse = said.copy()
    worse[:20] ^= said[:20] == labels[:20]  # twenty answers made wrong, nothing else
    apart = intervals(counts(said, labels, np.arange(2000)), counts(worse, labels, np.arange(2000)))["accuracy"]
    assert 0 < apart.low < apart.value < apart.high < 0.02
    assert found.high - found.low > 2 * (apart.high - apart.low)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.50001, 0.9, 1.0]), st.booleans()), min_size=1))
def test_no_threshold_is_better_than_the_chosen_one(pairs):
    said, labels = columns(pairs, np.float64, np.bool_)
    best = threshold(said, labels)
    assert 0 <= best < 1

    def score(level):
        return np.nan_to_num(measures(counts(said > level, labels))["F1"][0])

    others = (0.0, 0.05, 0.2, 0.4, 0.500005, 0.7, 0.95)
    assert score(best) >= max(map(score, others)) - 1e-9
    if not labels.any():
        assert best == 0.5


def test_a_threshold_lies_between_what_it_parts():
    assert threshold(np.array([0.1, 0.2, 0.6, 0.8]), np.array([False, False, True, True])) == pytest.approx(0.4)
    assert threshold(np.array([0.7, 0.9]), np.array([True, True])) == pytest.approx(0.35)


def test_area_is_the_share_of_pairs_in_order():
    random = np.random.default_rng(3)
    said, labels = np.round(random.random(60), 1), random.random(60) < 0.3
    pairs = [(a > b) + 0.5 * (a == b) for a in said[labels] for b in said[~labels]]
    assert area(said, labels) == pytest.approx(np.mean(pairs))
    assert np.isnan(area(said, np.ones(60, np.bool_)))


def test_what_does_not_fit_is_refused():
    yes = np.ones(5, np.bool_)
    for said, labels in ((yes[:1], yes), (yes, yes.astype(int)), (yes[None], yes[None])):
        with pytest.raises(ValueError, match="one row of equal length"):
            counts(said, labels)
    for probabilities in (np.full(5, 1.1), np.full(5, np.nan)):
        with pytest.raises(ValueError, match="between 0 and 1"):
            reliability(probabilities, yes, 10)
    with pytest.raises(ValueError, match="bins"):
        reliability(np.ones(5), yes, 0)
    with pytest.raises(ValueError, match="equal shapes"):
        reliability(np.ones(3), yes)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60), st.integers(1, 12))
def test_reliability_is_a_count(given_pairs, bins):
    probabilities = np.array([p for p, _ in given_pairs], np.float64)
    labels = np.array([label for _, label in given_pairs], np.bool_)
    found = reliability(probabilities, labels, bins)
    assert found.count.sum() == len(given_pairs)
    error = 0.0
    for i in range(bins):
        low, high = found.edges[i], found.edges[i + 1]
        inside = [(p, y) for p, y in given_pairs if low <= p < high or (i == bins - 1 and p == high)]
        assert found.count[i] == len(inside)
        if inside:
            said, came = np.mean([p for p, _ in inside]), np.mean([y for _, y in inside])
            assert (found.said[i], found.came[i]) == pytest.approx((said, came))
            error += abs(said - came) * len(inside) / len(given_pairs)
        else:
            assert np.isnan([found.said[i], found.came[i]]).all()
    if given_pairs:
        assert found.error == pytest.approx(error)
