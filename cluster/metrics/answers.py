"""How well yes/no answers agree with labels: counts, measures with intervals, calibration, and a threshold.

answers, labels ──> counts [..., 4] ──> measures, by group; intervals over what the questions are about
probabilities   ──> reliability: bins for a picture       ──> threshold of the best F1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from cluster.metrics.statistics import Array, Estimate

CELLS = ("hits", "false yes", "false no", "rejections")
"""What is counted: both answer and label are yes; only the answer; only the label; neither."""
MEASURES = ("accuracy", "precision", "recall", "F1")
SAMPLES = 2000


def counts(answers: NDArray[np.generic], labels: NDArray[np.bool_], of: NDArray[np.intp] | None = None) -> Array:
    """Counts of answers by their labels, float64 [C, 4] in the order of `CELLS`.

    Args:
        answers: [Q] bool; or the probability of yes, if answers are drawn at random.
        labels: bool [Q].
        of: [Q], the subject of each question, 0 to C - 1; None: one subject, C = 1.

    Raises:
        ValueError: one sentence: shapes or types differ.
    """
    if answers.shape != labels.shape or labels.dtype != np.bool_ or labels.ndim != 1:
        raise ValueError(
            f"answers and bool labels must be one row of equal length: got {list(answers.shape)} and {labels.dtype} "
            f"{list(labels.shape)}"
        )
    yes = answers.astype(np.float64)
    which = np.zeros(len(labels), np.intp) if of is None else of
    cells = (yes * labels, yes * ~labels, (1 - yes) * labels, (1 - yes) * ~labels)
    size = int(which.max(initial=0)) + 1
    return np.stack([np.bincount(which, cell, size) for cell in cells], 1)


def measures(counted: Array) -> dict[str, Array]:
    """Each of `MEASURES` of counts [..., 4], in [0, 1]; NaN where the denominator is 0."""
    hits, false_yes, false_no, rejections = np.moveaxis(counted, -1, 0)
    shares = (
        (hits + rejections, counted.sum(-1)),
        (hits, hits + false_yes),
        (hits, hits + false_no),
        (2 * hits, 2 * hits + false_yes + false_no),
    )
    found = [np.divide(some, every, out=np.full(np.shape(every), np.nan), where=every > 0) for some, every in shares]
    return dict(zip(MEASURES, found, strict=True))


def intervals(counted: Array, other: Array | None = None) -> dict[str, Estimate]:
    """Measures of all answers, or their differences from others' measures, with 95 % bootstrap intervals (Efron 1979).

    Subjects are resampled with all their questions (Field and Welsh 2007), because many questions about one subject
    tell less than questions about many subjects.

    counted, other: [C, 4], of the same C subjects. n of an estimate is C.
    """
    size = len(counted)
    weights = np.random.default_rng(0).multinomial(size, np.full(size, 1 / size), SAMPLES).astype(np.float64)
    weights = np.concatenate([np.ones((1, size)), weights])  # first the sample itself
    found = measures(weights @ counted)
    if other is not None:
        theirs = measures(weights @ other)
        found = {name: values - theirs[name] for name, values in found.items()}
    return {name: _estimate(values, size) for name, values in found.items()}


def _estimate(values: Array, n: int) -> Estimate:
    drawn = values[1:][np.isfinite(values[1:])]
    low, high = np.quantile(drawn, [0.025, 0.975]) if len(drawn) else (np.nan, np.nan)
    return Estimate(float(values[0]), float(low), float(high), n)


def threshold(probabilities: Array, labels: NDArray[np.bool_]) -> float:
    """The threshold above which a probability counts as yes, for the best F1: halfway between two that occur.

    Among equally good thresholds, the one nearest to 0.5; 0.5 if no label is yes.
    """
    if not labels.any():
        return 0.5
    levels = np.unique(np.append(probabilities, 0.0))
    places = np.append((levels[:-1] + levels[1:]) / 2, 0.0)
    ours = np.sort(probabilities[labels])
    every = np.sort(probabilities)
    hits = len(ours) - np.searchsorted(ours, places, "right")
    said = len(every) - np.searchsorted(every, places, "right")
    scores = 2 * hits / (said + len(ours))
    best = places[scores >= scores.max() - 1e-12]
    return float(best[np.argmin(abs(best - 0.5))])


def area(probabilities: Array, labels: NDArray[np.bool_]) -> float:
    """How often a question labelled yes has a higher probability than one labelled no, ties counted half: the area
    under the receiver operating characteristic. NaN if all labels are the same."""
    yes, no = int(labels.sum()), int((~labels).sum())
    if not yes or not no:
        return float("nan")
    found = scipy.stats.mannwhitneyu(probabilities[labels], probabilities[~labels], method="asymptotic")
    return float(found.statistic / (yes * no))


@dataclass(frozen=True, eq=False)
class Reliability:
    """The share of yes labels among answers with about the same probability, in B bins of equal width.

    Attributes:
        edges: float64 [B + 1], 0 to 1. A bin includes its lower edge; only the last bin includes its upper edge.
        count: int64 [B], answers.
        said: float64 [B], their mean probability of yes; NaN in empty bins.
        came: float64 [B], the share of yes labels; NaN in empty bins.
        error: mean distance between the two over all answers (the expected calibration error).
    """

    edges: NDArray[np.float64]
    count: NDArray[np.int64]
    said: NDArray[np.float64]
    came: NDArray[np.float64]
    error: float


def reliability(probabilities: NDArray[np.floating], labels: NDArray[np.bool_], bins: int = 10) -> Reliability:
    """Bins of probabilities of yes.

    Args:
        probabilities: 0 to 1, of any shape.
        labels: bool of the same shape.
        bins: at least 1.

    Raises:
        ValueError: one sentence: shapes differ, something is not a probability, or there are no bins.
    """
    if probabilities.shape != labels.shape or labels.dtype != np.bool_:
        raise ValueError(
            f"probabilities and bool labels must have equal shapes: got {list(probabilities.shape)} and {labels.dtype} "
            f"{list(labels.shape)}"
        )
    if bins < 1:
        raise ValueError(f"bins must be at least 1: got {bins}")
    given = probabilities.astype(np.float64).ravel()
    if not ((given >= 0) & (given <= 1)).all():
        raise ValueError("probabilities must be between 0 and 1")
    edges = np.linspace(0, 1, bins + 1)
    which = np.minimum(np.searchsorted(edges, given, "right") - 1, bins - 1)
    count = np.bincount(which, minlength=bins)
    sums = (np.bincount(which, weights, bins) for weights in (given, labels.ravel().astype(np.float64)))
    said, came = (np.divide(total, count, out=np.full(bins, np.nan), where=count > 0) for total in sums)
    apart = np.abs(said - came)[count > 0]
    error = float((apart * count[count > 0]).sum() / len(given)) if len(given) else float("nan")
    return Reliability(edges, count, said, came, error)
