"""The discretisation of actions: cluster centres, one list for each wheel.

    speeds of one wheel ──> at most BINS values and how often ──> the best intervals, exactly ──> centres, ascending

k-means in one dimension, where clusters are intervals and dynamic programming finds the best ones (Wang and Song 2011,
"Ckmeans.1d.dp"), so that nothing depends on an initial guess. An action is then the cluster of each wheel and an offset
from its centre (Salehi and Doncieux 2023; their clusters come from training and test data, ours from training data
alone).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BINS = 1024
"""If there are more distinct values than this, they are first grouped in bins of equal width."""


def centres(values: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """`count` centres, float32 ascending, of values [N]; fewer where there are fewer distinct values.

    Raises:
        ValueError: there is no value, or one is not finite.
    """
    if not len(values) or not np.isfinite(values).all():
        raise ValueError("clusters need values, all of them finite")
    distinct, times = np.unique(values.astype(np.float64), return_counts=True)
    if len(distinct) > BINS:
        at = ((distinct - distinct[0]) * (BINS / (distinct[-1] - distinct[0]))).astype(np.int64).clip(max=BINS - 1)
        mass, total = np.bincount(at, times, BINS), np.bincount(at, times * distinct, BINS)
        distinct, times = total[mass > 0] / mass[mass > 0], mass[mass > 0]
    size, count = len(distinct), min(count, len(distinct))
    weight, first, second = (np.cumsum(np.append(0.0, times * distinct**power)) for power in range(3))
    begin, end = np.arange(size)[:, None], np.arange(1, size + 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = second[end] - second[begin] - (first[end] - first[begin]) ** 2 / (weight[end] - weight[begin])
    spread[end <= begin] = np.inf  # no interval is empty
    best, cuts = spread[0], []  # best[e - 1]: of the first e values in so many intervals
    for _ in range(count - 1):
        through = np.vstack([np.full(size, np.inf), best[:-1, None] + spread[1:]])
        cuts.append(through.argmin(0))
        best = through.min(0)
    bounds = [size]
    for cut in reversed(cuts):
        bounds.append(int(cut[bounds[-1] - 1]))
    edges = np.array([0, *reversed(bounds)])
    found: NDArray[np.float32] = (np.diff(first[edges]) / np.diff(weight[edges])).astype(np.float32)
    return found
