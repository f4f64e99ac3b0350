"""Intervals: how sure a number is. Rates, means, differences, and bands over training seeds.

Every function takes plain numbers or arrays. What SciPy has is SciPy's. A rate is in [0, 1]; every interval aims at a
coverage of `CONFIDENCE` over repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its submodules are loaded when they are needed: most runs start without them
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Curve = tuple[Array, Array]
CONFIDENCE = 0.95
FEWEST_FOR_BOOTSTRAP = 5
"""Below this many seeds a percentile bootstrap is far too narrow; the range from lowest to highest is shown instead."""


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, all three in the unit of the number; `n` is how many episodes it rests on."""

    value: float
    low: float
    high: float
    n: int = 0


def wilson(successes: float, n: int) -> tuple[float, float]:
    """Interval of a rate from `successes` out of `n` trials; (0, 1) when there were none.

    The score interval of Wilson (1927), "Probable inference, the law of succession, and statistical inference",
    JASA 22; unlike rate +- z * deviation it stays inside [0, 1] and is usable for few trials and for rates near 1.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must be in [0, {n}], got {successes}")
    if n == 0:
        return 0.0, 1.0
    low, high = scipy.stats.binomtest(round(successes), n).proportion_ci(CONFIDENCE, "wilson")
    # The ends are exact at rates 0 and 1, where rounding would leave 1e-17 or 0.9999...
    return (0.0 if successes == 0 else float(low)), (1.0 if successes == n else float(high))


def bootstrap_mean(values: ArrayLike) -> tuple[float, float]:
    """Interval of the mean of `values`, in their unit: the percentile bootstrap.

    Efron (1979), "Bootstrap methods: another look at the jackknife", Annals of Statistics 7. The same
    values give the same interval. One value gives (value, value), none gives (nan, nan).
    """
    data = np.asarray(values, np.float64).ravel()
    if data.size == 0:
        return float("nan"), float("nan")
    if data.size == 1:
        return float(data[0]), float(data[0])
    batch = max(1, 1_000_000 // data.size)  # resamples drawn at once: bounds the memory, 8 MB of indices
    found = _percentiles(data, np.mean, vectorized=True, n_resamples=2000, batch=batch)
    return float(found.low), float(found.high)


def _percentiles(data: ArrayLike, statistic: Callable[..., Any], **options: Any) -> Any:
    """The ends `low` and `high` of a percentile bootstrap, the same for the same data."""
    random = np.random.default_rng(0)
    return scipy.stats.bootstrap(
        (data,), statistic, confidence_level=CONFIDENCE, method="percentile", rng=random, **options
    ).confidence_interval


def bootstrap(values: ArrayLike, of: ArrayLike, statistic: Callable[[Array], float]) -> Estimate:
    """A statistic of `values` [N] with its 95 % percentile bootstrap; values of one cluster `of` [N] stay together.

    Clusters are drawn, with all that belongs to them (Field and Welsh 2007): repeated measurements of one thing are not
    as good as measurements of as many things. No value gives nan.
    """
    data, names = np.asarray(values, np.float64).ravel(), np.asarray(of).ravel()
    if not data.size:
        return Estimate(float("nan"), float("nan"), float("nan"))
    order = np.argsort(names, kind="stable")
    _, first = np.unique(names[order], return_index=True)
    clusters = np.split(data[order], first[1:])
    value = float(statistic(data))
    if len(clusters) == 1:
        return Estimate(value, value, value, data.size)

    def of_clusters(drawn: NDArray[np.intp]) -> float:
        return statistic(np.concatenate([clusters[i] for i in drawn]))

    found = _percentiles(np.arange(len(clusters)), of_clusters, vectorized=False, n_resamples=1000)
    return Estimate(value, float(found.low), float(found.high), data.size)


def stratified_bootstrap(values: ArrayLike, statistic: Callable[[Array], Array]) -> tuple[Array, Array]:
    """95 % interval of a statistic of `values` [S, T, ...], S repetitions of each of T tasks; both ends are [...].

    Stratified (Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice", arXiv
    2108.13264): each task's repetitions are drawn from its own. The tasks are drawn, too: they stand for others like
    them. One repetition tells nothing of their spread, one task nothing of tasks.

    statistic: of [R, N, ...], of each of R resamples of N = S * T values, [R, ...].
    """
    data = np.asarray(values, np.float64)
    repetitions, tasks = data.shape[:2]
    generator, samples = np.random.default_rng(0), 2000
    block = max(1, 1_000_000 // data.size)  # resamples drawn at once: bounds the memory
    found = []
    for done in range(0, samples, block):
        count = min(block, samples - done)
        task = generator.integers(0, tasks, (count, tasks, 1))
        repetition = generator.integers(0, repetitions, (count, tasks, repetitions))
        drawn = data[repetition, task]  # [count, T, S, ...]
        found.append(statistic(drawn.reshape(count, tasks * repetitions, *data.shape[2:])))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(found), [tail, 1 - tail], axis=0)
    return low, high


def interquartile_mean(values: Array) -> Array:
    """Mean of the middle half along axis 1: without the lowest and the highest quarter, rounded down."""
    middle: Array = scipy.stats.trim_mean(values, 0.25, axis=1)
    return middle


def difference(a: Estimate, b: Estimate) -> Estimate:
    """`b - a` of two independent estimates, from their own intervals.

    Squares of the distances from value to end add up, side by side: the method of variance estimates recovery, Zou and
    Donner (2008), Statistics in Medicine 27. On Wilson intervals it is Newcombe's interval; on symmetric intervals of
    means it is the usual one.
    """
    value = b.value - a.value
    below = np.hypot(b.value - b.low, a.high - a.value)
    above = np.hypot(b.high - b.value, a.value - a.low)
    return Estimate(value, float(value - below), float(value + above), a.n + b.n)


def newcombe(successes_a: float, n_a: int, successes_b: float, n_b: int) -> tuple[float, float]:
    """Interval of `rate_b - rate_a`, two independent rates; in [-1, 1].

    Method 10 of Newcombe (1998), "Interval estimation for the difference between independent proportions: comparison
    of eleven methods", Statistics in Medicine 17.
    """
    if n_a == 0 or n_b == 0:
        return -1.0, 1.0
    a = Estimate(successes_a / n_a, *wilson(successes_a, n_a), n_a)
    b = Estimate(successes_b / n_b, *wilson(successes_b, n_b), n_b)
    result = difference(a, b)
    return result.low, result.high


def welch(a: ArrayLike, b: ArrayLike) -> Estimate:
    """`mean(b) - mean(a)` of two independent groups of at least two values, one value a training seed.

    Welch (1947), "The generalization of Student's problem when several different population variances are involved",
    Biometrika 34. Between-seed variance is in it, which an interval over pooled episodes leaves out.
    """
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if min(first.size, second.size) < 2:
        raise ValueError("each group needs at least two values")
    value = float(second.mean() - first.mean())
    if first.var() == second.var() == 0:
        return Estimate(value, value, value)
    found = scipy.stats.ttest_ind(second, first, equal_var=False).confidence_interval(CONFIDENCE)
    return Estimate(value, float(found.low), float(found.high))


def over_seeds(estimates: Sequence[Estimate]) -> Estimate:
    """One estimate from one per training seed: their mean, with the spread between seeds (see `spread_name`)."""
    if len(estimates) == 1:
        return estimates[0]
    values = [e.value for e in estimates]
    low, high = _spread(np.array(values))
    return Estimate(float(np.mean(values)), low, high, sum(e.n for e in estimates))


def spread_name(seeds: Sequence[str], single: str = "95 % Wilson interval") -> str:
    """What the interval of `over_seeds` and `band` is, in words.

    seeds: of each run. single: what the interval is of one run.
    """
    if len(seeds) == 1:
        return single
    if len(seeds) < FEWEST_FOR_BOOTSTRAP:
        return f"lowest to highest of {counted(seeds)}"
    return f"95 % bootstrap over {counted(seeds)}"


def counted(seeds: Sequence[str]) -> str:
    """How many runs there are, by the seed of each: "3 seeds", or "3 runs of one seed", or "3 runs of 2 seeds"."""
    different = len(set(seeds))
    if different == len(seeds):
        return f"{different} seeds"
    return f"{len(seeds)} runs of {'one seed' if different == 1 else f'{different} seeds'}"


def _spread(values: Array) -> tuple[float, float]:
    if len(values) < FEWEST_FOR_BOOTSTRAP:
        return float(values.min()), float(values.max())
    return bootstrap_mean(values)


def band(curves: Sequence[Curve], points: int = 100) -> tuple[Array, Array, Array, Array]:
    """Mean and spread over seeds of the curves (x, y), x increasing: arrays (x, mean, low, high), each [points].

    Curves are interpolated linearly onto the part of x that all of them cover; nothing is extrapolated, and all four
    arrays are empty where there is no common part.
    """
    start, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if end < start:
        return np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0)
    grid = np.linspace(start, end, points if end > start else 1)
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    low, high = np.array([_spread(column) for column in values.T]).T
    return grid, values.mean(axis=0), low, high


def binned(x: Array, y: Array, bins: int = 120, largest: bool = False) -> Curve:
    """At most `bins` points, each of a stretch of neighbouring rows, so that a long curve stays readable and small.

    A point is the mean of its rows, or the largest y where `largest` (a maximum is not to be averaged away).
    """
    if len(x) <= bins:
        return x, y
    starts = np.linspace(0, len(x), bins, endpoint=False).astype(np.intp)
    counts = np.diff(np.append(starts, len(x)))
    heights = np.maximum.reduceat(y, starts) if largest else np.add.reduceat(y, starts) / counts
    return np.add.reduceat(x, starts) / counts, heights


def mean_over(x: Array, y: Array, end: float) -> float:
    """Mean of a curve over [0, end], by trapezoids: from 0 at 0, with its last value held to the end.

    Of success over env steps it is the sample efficiency of Carta et al. (2023), arXiv 2302.02662.
    """
    at, heights = np.concatenate([[0.0], x]), np.concatenate([[0.0], y])
    before = at < end
    inside, last = heights[before], np.interp(end, at, heights)
    return float(np.trapezoid([*inside, last], [*at[before], end]) / end)
