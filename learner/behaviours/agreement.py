"""Do two raters agree? Correlations and errors of paired scores, with intervals.

Intervals are 95 % percentile bootstraps (Efron 1979) over the rated items: several scores of one behaviour stay
together (Field and Welsh 2007). A rater who gives everything the same score correlates with nobody: the correlation is
None, and so are the ends of its interval.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Scores = NDArray[np.float64]
SAMPLES = 1000


def pearson(a: Scores, b: Scores) -> float:
    """Correlation of scores [N]; nan if one does not vary."""
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) and np.ptp(b) else float("nan")


def spearman(a: Scores, b: Scores) -> float:
    """Correlation of ranks, from 1; equal scores share their mean rank. nan if one does not vary."""
    return pearson(scipy.stats.rankdata(a), scipy.stats.rankdata(b))


def kendall(a: Scores, b: Scores) -> float:
    """Tau-b (Kendall 1945): among pairs that neither rater ties, concordant less discordant ones, corrected for ties.
    nan if one does not vary."""
    return float(scipy.stats.kendalltau(a, b).statistic) if np.ptp(a) and np.ptp(b) else float("nan")


def mean_squared_error(a: Scores, b: Scores) -> float:
    return float(np.square(a - b).mean())


MEASURES: dict[str, Callable[[Scores, Scores], float]] = {
    "pearson": pearson,
    "spearman": spearman,
    "kendall": kendall,
    "mse": mean_squared_error,
}


def agreement(a: Scores, b: Scores, of: NDArray[Any] | None = None) -> dict[str, Any]:
    """Each of MEASURES of paired scores [N] in [0, 1] as {"value", "low", "high"}, and `n`.

    of: the item of each pair, [N]; None: each pair has its own item.

    Raises:
        ValueError: there are no pairs.
    """
    if len(a) != len(b) or not len(a):
        raise ValueError(f"agreement needs pairs of scores: there are {len(a)} and {len(b)}")
    generator = np.random.default_rng(0)
    names = np.arange(len(a)) if of is None else of
    order = np.argsort(names, kind="stable")
    clusters = np.split(order, np.unique(names[order], return_index=True)[1][1:])
    count = SAMPLES if len(a) <= 500 else SAMPLES // 5
    drawn = [generator.integers(0, len(clusters), len(clusters)) for _ in range(count)]
    draws = [np.concatenate([clusters[i] for i in draw]) for draw in drawn]
    found: dict[str, Any] = {"n": len(a)}
    for name, measure in MEASURES.items():
        values = np.array([measure(a[draw], b[draw]) for draw in draws])
        values = values[np.isfinite(values)]
        low, high = np.quantile(values, [0.025, 0.975]) if len(values) else (np.nan, np.nan)
        numbers = {"value": measure(a, b), "low": float(low), "high": float(high)}
        found[name] = {key: number if np.isfinite(number) else None for key, number in numbers.items()}
    return found
