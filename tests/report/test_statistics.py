"""Intervals against published numbers, and against their own definition by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from cluster.metrics import statistics
from cluster.metrics.statistics import Estimate


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_equals_newcombes_table(successes: int, n: int, low: float, high: float) -> None:
    """Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3."""
    assert statistics.wilson(successes, n) == pytest.approx((low, high), abs=6e-5)


def test_wilson_at_its_ends() -> None:
    assert statistics.wilson(0, 0) == (0.0, 1.0)
    assert statistics.wilson(0, 7)[0] == 0.0
    assert statistics.wilson(7, 7)[1] == 1.0
    low, high = statistics.wilson(3, 7)
    assert statistics.wilson(4, 7) == pytest.approx((1 - high, 1 - low))
    for successes in (-1, 8):
        with pytest.raises(ValueError, match="successes must be in"):
            statistics.wilson(successes, 7)


@pytest.mark.parametrize(
    ("b", "a", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((10, 10), (0, 20), 0.6791, 1.0),
        ((10, 10), (0, 10), 0.6075, 1.0),
    ],
)
def test_newcombe_equals_newcombes_table(b: tuple[int, int], a: tuple[int, int], low: float, high: float) -> None:
    """Newcombe (1998), "Interval estimation for the difference between independent proportions", method 10."""
    assert statistics.newcombe(*a, *b) == pytest.approx((low, high), abs=6e-5)
    assert statistics.newcombe(*b, *a) == pytest.approx((-high, -low), abs=6e-5)


def test_newcombe_without_trials_knows_nothing() -> None:
    assert statistics.newcombe(0, 0, 5, 10) == (-1.0, 1.0)


def test_difference_of_symmetric_intervals_adds_squares() -> None:
    gap = statistics.difference(Estimate(1.0, 0.7, 1.3, 5), Estimate(2.0, 1.6, 2.4, 6))
    assert (gap.value, gap.low, gap.high, gap.n) == pytest.approx((1.0, 0.5, 1.5, 11))


def test_bootstrap_approaches_the_normal_interval() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    half = 1.96 * values.std() / 20
    expected = (values.mean() - half, values.mean() + half)
    assert statistics.bootstrap_mean(values) == pytest.approx(expected, abs=0.03)


def test_bootstrap_is_repeatable_and_bounded_in_memory() -> None:
    values = np.arange(3000.0)  # drawn in several blocks
    assert statistics.bootstrap_mean(values) == statistics.bootstrap_mean(values)
    assert statistics.bootstrap_mean([4.0]) == (4.0, 4.0)
    assert np.isnan(statistics.bootstrap_mean([])).all()


def of_means(values: statistics.Array) -> statistics.Array:
    found: statistics.Array = values.mean(1)
    return found


def test_a_stratified_bootstrap_knows_of_tasks_and_of_repetitions() -> None:
    random = np.random.default_rng(3)
    tasks = random.normal(0, 2, (1, 200))
    low, high = statistics.stratified_bootstrap(np.repeat(tasks, 3, 0), of_means)  # repetitions that are alike
    half = 1.96 * tasks.std() / np.sqrt(200)
    assert (low, high) == pytest.approx((tasks.mean() - half, tasks.mean() + half), abs=0.03)
    noise = np.repeat(random.normal(0, 2, (20, 1)), 50, 1)  # tasks that are alike
    low, high = statistics.stratified_bootstrap(noise, of_means)
    half = 1.96 * noise.std() / np.sqrt(20 * 50)
    assert (low, high) == pytest.approx((noise.mean() - half, noise.mean() + half), abs=0.015)
    assert statistics.stratified_bootstrap([[4.0]], of_means) == (4.0, 4.0)


def test_a_stratified_bootstrap_of_curves_is_that_of_their_points() -> None:
    curves = np.random.default_rng(4).normal(0, 1, (3, 7, 5))
    low, high = statistics.stratified_bootstrap(curves, of_means)
    for i in range(5):
        assert statistics.stratified_bootstrap(curves[:, :, i], of_means) == pytest.approx((low[i], high[i]))
    assert low.shape == (5,)


def test_the_interquartile_mean_is_that_of_the_middle_half() -> None:
    values = np.array([[8.0, 1.0, 2.0, 100.0, 4.0, 3.0, 5.0, -50.0], np.arange(8.0)])
    np.testing.assert_allclose(statistics.interquartile_mean(values), [3.5, 3.5])
    assert statistics.interquartile_mean(np.array([[1.0, 2.0, 6.0]])) == 3.0  # a quarter of three is none


def test_welch_equals_a_textbook_case() -> None:
    """Welch with equal sizes and variances is the pooled test: 4 degrees of freedom here."""
    gap = statistics.welch([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    half = 2.7764 * np.sqrt(2 / 3)
    assert (gap.value, gap.low, gap.high) == pytest.approx((3.0, 3 - half, 3 + half), abs=1e-3)
    assert statistics.welch([2.0, 2.0], [3.0, 3.0]) == Estimate(1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="two values"):
        statistics.welch([1.0], [1.0, 2.0])


def test_over_seeds_says_what_its_interval_is() -> None:
    one = Estimate(0.9, 0.8, 0.95, 100)
    assert statistics.over_seeds([one]) is one
    few = statistics.over_seeds([Estimate(v, 0, 1, 10) for v in (0.7, 0.8, 0.9)])
    assert few == Estimate(pytest.approx(0.8), 0.7, 0.9, 30)
    assert statistics.spread_name("012") == "lowest to highest of 3 seeds"
    assert statistics.spread_name("000") == "lowest to highest of 3 runs of one seed"
    many = statistics.over_seeds([Estimate(v, 0, 1, 10) for v in np.linspace(0.5, 0.9, 9)])
    assert 0.5 < many.low < many.value < many.high < 0.9
    assert "bootstrap over 9 seeds" in statistics.spread_name("012345678")


def test_band_covers_only_what_all_curves_cover() -> None:
    first = np.array([0.0, 10.0]), np.array([0.0, 1.0])
    second = np.array([5.0, 20.0]), np.array([0.5, 0.5])
    x, mean, low, high = statistics.band([first, second], points=6)
    assert x.tolist() == [5, 6, 7, 8, 9, 10]
    assert mean == pytest.approx([0.5, 0.55, 0.6, 0.65, 0.7, 0.75])
    assert low == pytest.approx(0.5)
    assert high == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    apart = np.array([30.0, 40.0]), np.array([1.0, 1.0])
    assert all(len(part) == 0 for part in statistics.band([first, apart]))


def test_binned_keeps_means_and_maxima() -> None:
    x, y = np.arange(1000.0), np.zeros(1000)
    y[500] = 7.0
    assert statistics.binned(x, y)[1].max() < 1.0
    at, heights = statistics.binned(x, y, largest=True)
    assert heights.max() == 7.0
    assert len(at) == 120
    assert (np.diff(at) > 0).all()
    assert statistics.binned(x[:50], y[:50])[0] is not None
