"""Noise on captions: a share of what is told is left out, or replaced by another of its kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from envs.api import Fact

Numbers = NDArray[np.int64]


def disturbed(facts: Numbers, kinds: Sequence[Fact], rate: float, random: np.random.Generator) -> Numbers:
    """A copy of facts [n, F], of which each that is told is wrong with probability `rate`.

    Half of those are left out. The others are replaced: a fact of two values by one of its group that was not told, if
    there is any, a fact of more values by another of its values. Facts that no sentence tells stay.
    """
    found = facts.copy()
    for group in dict.fromkeys(kind.group for kind in kinds if kind.group):
        columns = [column for column, kind in enumerate(kinds) if kind.group == group]
        if kinds[columns[0]].size > 2:
            for column in columns:
                found[:, column] = swapped(found[:, column], kinds[column].size - 1, rate, random)
            continue
        told = facts[:, columns] > 0
        wrong, replaced, draw = (random.random(told.shape) for _ in range(3))
        rows, places = np.nonzero(told & (wrong < rate))
        for row, place in zip(rows.tolist(), places.tolist(), strict=True):
            found[row, columns[place]] = 0
            others = np.flatnonzero(~told[row])
            if replaced[row, place] < 0.5 and len(others):
                found[row, columns[others[int(draw[row, place] * len(others))]]] = 1
    return found


def swapped(values: Numbers, nothing: int, rate: float, random: np.random.Generator) -> Numbers:
    """A copy of values [n] of 0 to `nothing`, of which each but `nothing` is wrong with probability `rate`: half of
    those become `nothing`, the others another value below it, each as likely."""
    wrong = (random.random(len(values)) < rate) & (values != nothing)
    other = (values + random.integers(1, max(2, nothing), len(values))) % max(1, nothing)
    return np.where(wrong, np.where(random.random(len(values)) < 0.5, nothing, other), values)
