"""Does a robot follow texts about routes? The measures of every arm on the same trials, with intervals.

    two_alternative        an episode fits its own text better than its rival's: 1; as well: a half; worse: 0. The mean
                           over `how` trials; chance, and whoever reads no text, is 0.5
    normalised_obedience   (obedience - floor) / (1 - floor): the floor is that of `text_blind_replay` on the same
                           trials, the ceiling 1 is what the described behaviours did themselves
    obedience              the rule itself, 0 to 1 (`learner/behaviours/words.py`), the mean
    distance               from the end of an episode to the target, a share of the house's diagonal, the median
    best_distance          the same of the nearest of a trial's episodes

Each sample of a trial counts as a single episode. Intervals are 95 % percentile bootstraps over pairs of behaviours,
which keep everything together that was asked of a pair, in every arm: arms are compared on equal draws. Over several
seeds the value is their mean and the interval is the wider of the bootstrap's and of Student's t over the seeds'
values, since trials may be as many as one likes and runs are few. It ends where the measure does, of which Student's t
knows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from cluster.metrics.statistics import CONFIDENCE
from learner.behaviours.trials import Trial

Array = NDArray[np.float64]
ARMS = {"none": "text", "text": "no_text", "target": "no_target", "both": "neither"}
"""The arm of a model by what it never sees (`method.sequence.model.ablate`)."""
FLOOR = "text_blind_replay"
RESAMPLES = 1000
CASES: tuple[tuple[str, str, str], ...] = (
    ("all", "", ""),
    ("plain", "kind", "plain"),
    ("how", "kind", "how"),
    ("described", "wording", "described"),
    ("reworded", "wording", "reworded"),
    ("paraphrased", "wording", "paraphrased"),
    ("map", "begins", "map"),
    ("nearby", "begins", "nearby"),
)
"""Name of a set of trials, and which field of them has which value."""


@dataclass(frozen=True)
class Played:
    """What one arm did on P trials, R episodes each."""

    score: Array  # [P, R] obedience to the trial's own text
    rival: Array  # [P, R] obedience to its rival's text; nan for trials without one
    error: Array  # [P, R] from the end to the target, a share of the diagonal


def played(arrays: Mapping[str, NDArray[np.float32]], diagonal: float, baseline: str = "") -> Played:
    """What the model, or a baseline, did, of the arrays of the stage deploy. Raises KeyError if they are not there."""
    score, rival, error = (
        arrays[f"{baseline}/{key}" if baseline else key].astype(np.float64) for key in ("score", "rival", "error")
    )
    return Played(score, rival, error / diagonal)


@dataclass(frozen=True)
class Seed:
    """Trials and what every arm did on them; arms of one seed share trials."""

    seed: int
    trials: list[Trial]
    arms: Mapping[str, Played]


def two_alternative(score: Array, rival: Array) -> Array:
    """1 where an episode fits its own text better than its rival's, 0.5 where as well, 0 else; nan without a rival."""
    chosen: Array = np.where(np.isnan(rival), np.nan, 0.5 + 0.5 * np.sign(score - rival))
    return chosen


def normalised(obedience: Array, floor: Array) -> Array:
    """0: as who reads no text; 1: as the described behaviours; below 0: worse than replaying blindly. nan: no room."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Array = np.where(floor < 1, (obedience - floor) / (1 - floor), np.nan)
    return share


METRICS: dict[str, Callable[[Played], Array]] = {
    "two_alternative": lambda played: two_alternative(played.score, played.rival),
    "normalised_obedience": lambda played: played.score,
    "obedience": lambda played: played.score,
    "distance": lambda played: played.error,
    "best_distance": lambda played: played.error.min(1, keepdims=True),
}
"""What each is a mean or a median of, [P, R]; nan in trials that it is not of."""
LEAST = {"normalised_obedience": -np.inf}
"""The lowest possible value of a measure, where it is not 0."""
MOST = {"distance": np.inf, "best_distance": np.inf}
"""The highest, where it is not 1."""


def rows(seeds: Sequence[Seed]) -> list[dict[str, Any]]:
    """Rows {arm, trials, metric, value, low, high, seeds, n} of every arm, then of differences from `text`.

    n counts the trials that a measure is of. What has no value in a set of trials has no row. Seeds need not have the
    same arms; a difference is over those that have both.
    """
    arms = list(dict.fromkeys(arm for seed in seeds for arm in seed.arms))
    found = []
    for name, field, value in CASES:
        sets = [_Set(seed, field, value) for seed in seeds]
        for metric in METRICS:
            for arm, base in [(arm, "") for arm in arms] + [("text", arm) for arm in arms if arm != "text"]:
                both = [each for each in sets if {arm, base or arm} <= each.seed.arms.keys()]
                both = [each for each in both if not np.isnan(each.drawn(arm, metric)[0])]
                drawn = [each.drawn(arm, metric) - (each.drawn(base, metric) if base else 0) for each in both]
                if drawn:
                    row = {"arm": f"{arm} - {base}" if base else arm, "trials": name, "metric": metric}
                    about = {"seeds": [each.seed.seed for each in both], "n": sum(e.count(arm, metric) for e in both)}
                    limits = (-np.inf, np.inf) if base else (LEAST.get(metric, 0.0), MOST.get(metric, 1.0))
                    found.append(row | _over_seeds(drawn, *limits) | about)
    return found


class _Set:
    """A set of trials of one seed, by pair, and the same draws of pairs for every arm and measure."""

    def __init__(self, seed: Seed, field: str, value: str) -> None:
        self.seed = seed
        self._known: dict[tuple[str, str], Array] = {}
        self.rows = np.array([k for k, t in enumerate(seed.trials) if not field or getattr(t, field) == value], np.intp)
        pair = np.array([seed.trials[k].pair for k in self.rows.tolist()])
        _, self.number = np.unique(pair, return_inverse=True)
        count = int(self.number.max(initial=-1)) + 1
        draw = np.random.default_rng(0).integers(0, max(count, 1), (RESAMPLES, count))
        times = np.zeros((RESAMPLES + 1, count))
        np.add.at(times, (np.arange(RESAMPLES)[:, None] + 1, draw), 1)
        times[0] = 1  # the first is the sample itself
        self.weight = times[:, self.number]  # [1 + RESAMPLES, trials]: how often each trial is drawn

    def count(self, arm: str, metric: str) -> int:
        """Trials that the measure is of."""
        return int((~np.isnan(METRICS[metric](self.seed.arms[arm])[self.rows]).all(1)).sum())

    def drawn(self, arm: str, metric: str) -> Array:
        """The measure in the sample itself and in every resample, [1 + RESAMPLES]."""
        if (arm, metric) not in self._known:
            values = METRICS[metric](self.seed.arms[arm])
            found = self.median(values) if "distance" in metric else self.mean(values)
            if metric == "normalised_obedience":
                found = normalised(found, self.mean(METRICS[metric](self.seed.arms[FLOOR])))
            self._known[arm, metric] = found
        return self._known[arm, metric]

    def mean(self, values: Array) -> Array:
        """Of values [P, R], where they are numbers."""
        each = values[self.rows].mean(1)
        there = ~np.isnan(each)
        with np.errstate(invalid="ignore"):  # nothing was drawn
            result: Array = (self.weight[:, there] @ each[there]) / self.weight[:, there].sum(1)
        return result

    def median(self, values: Array) -> Array:
        """Of values [P, R]."""
        flat, trial = values[self.rows].ravel(), np.repeat(np.arange(len(self.rows)), values.shape[1])
        if not len(flat):
            return np.full(len(self.weight), np.nan)
        order = np.argsort(flat, kind="stable")
        below = np.cumsum(self.weight[:, trial[order]], 1)
        middle = below[:, -1:] / 2
        low, high = (below < middle).sum(1), (below <= middle).sum(1)
        result: Array = (flat[order][low] + flat[order][np.minimum(high, len(flat) - 1)]) / 2
        return result


def _over_seeds(found: Sequence[Array], least: float, most: float) -> dict[str, float]:
    """Value and interval, within limits, of a measure [1 + RESAMPLES] of each seed."""
    every, own = np.mean(found, 0), np.array([drawn[0] for drawn in found])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(every[1:], [tail, 1 - tail])
    value = float(every[0])
    if len(own) > 1:
        reach = scipy.stats.t.ppf(1 - tail, len(own) - 1) * own.std(ddof=1) / np.sqrt(len(own))
        low, high = min(low, value - reach), max(high, value + reach)
    return {"value": value, "low": float(max(low, least)), "high": float(min(high, most))}
