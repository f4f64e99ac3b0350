"""Returns over trials: how players did at first, later, and overall, each with an interval.

stages/trials/returns.safetensors ── float32 [seed, task, trial] ──> summary

Arrays of several runs can be stacked as [arm, seed, task, trial]. The file also holds statistics of retrieval, on the
same axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.metrics.statistics import Array, interquartile_mean, stratified_bootstrap

RETURNS, PATHS = "returns.safetensors", "paths.safetensors"
RETURN, TASK = "return", "task"
"""Names of the returns in that file, and of the tasks' numbers."""
RETRIEVED = "retrieved."
"""Prefix of the names of sums over an episode's queries, see `actors.trials.RETRIEVED`."""

Statistic = Callable[[Array], Array]


def _mean(values: Array) -> Array:
    found: Array = values.mean(1)
    return found


def summary(returns: NDArray[Any]) -> dict[str, Any]:
    """A curve over trials and its figures, of returns [seed, task, trial], with 95 % intervals (stratified bootstrap
    over seeds and tasks).

    `curve`: mean, low, high and interquartile mean of each trial. `first`, `tenth` (if there is one), `last`: mean at
    that trial. `area`: mean over all trials. `iqm`: interquartile mean at the last trial.
    """
    data = np.asarray(returns, np.float64)
    every = data.reshape(1, -1, data.shape[2])
    low, high = stratified_bootstrap(data, _mean)
    mean, middle = _mean(every)[0], interquartile_mean(every)[0]
    curve = {"mean": mean, "low": low, "high": high, "iqm": middle}
    found: dict[str, Any] = {"curve": {name: values.tolist() for name, values in curve.items()}}
    for name, trial in {"first": 0, "tenth": 9, "last": data.shape[2] - 1}.items():
        if trial < data.shape[2]:
            found[name] = {"mean": float(mean[trial]), "low": float(low[trial]), "high": float(high[trial])}
    found["area"] = _figure(data.mean(2), _mean)
    found["iqm"] = _figure(data[:, :, -1], interquartile_mean)
    return found


def lead(returns: NDArray[Any], others: NDArray[Any]) -> dict[str, float] | None:
    """The difference of two mean returns [seed, task, trial] at the last trial, paired by task and seed, with a 95 %
    interval (stratified bootstrap of the differences); None if the axes differ."""
    if returns.shape != others.shape:
        return None
    return _figure(returns[:, :, -1].astype(np.float64) - others[:, :, -1], _mean)


def _figure(values: Array, statistic: Statistic) -> dict[str, float]:
    low, high = stratified_bootstrap(values, statistic)
    return {"mean": float(statistic(values.reshape(1, -1))[0]), "low": float(low), "high": float(high)}


def retrieved(arrays: Mapping[str, NDArray[Any]]) -> dict[str, list[float | None]]:
    """Statistics of retrieval by trial: means over all queries that found something; None where none did, or where the
    value is unknown. `found` is the share of such queries. Empty if nothing is retrieved."""
    sums = {
        name.removeprefix(RETRIEVED): array.sum((0, 1), dtype=np.float64)
        for name, array in arrays.items()
        if name.startswith(RETRIEVED)
    }
    queries, found = sums.pop("queries", None), sums.get("found")
    return {name: _ratio(of, queries if name == "found" else found) for name, of in sums.items()}


def _ratio(of: Array, to: Array | None) -> list[float | None]:
    assert to is not None
    return [float(a / b) if b and not np.isnan(a) else None for a, b in zip(of, to, strict=True)]
