"""Pseudo-random numbers that are functions of other numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def uniform(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """A number in [0, 1) for each number: splitmix64's mixing (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    found: NDArray[np.float64] = (mixed >> np.uint64(11)) / 2.0**53
    return found
