"""Qualities: how good a behaviour is, beside what it does. One module each, found by name.

    Rollout ──> of ──> [n] ──> the grid of the best keeps the highest in each cell; QD score

A module publishes

    QUALITY = ...                   an instance of a subclass of `Quality`, below

`method.search.quality=NAME` chooses the module. Novelty search itself ignores quality.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from learner.room import Room
from learner.search.rollout import Rollout

DEFAULT = "calm"


class Quality(ABC):
    """One number of a behaviour; more is better.

    Attributes:
        lowest: no quality is below it. QD scores count quality from here, so that a filled cell never costs anything.
        meaning: what it measures, in a few words, with its range.
    """

    lowest: float
    meaning: str

    @abstractmethod
    def of(self, rollout: Rollout) -> NDArray[np.float32]:
        """[n], finite, at least `lowest`."""


QUALITIES = Room[Quality](__name__, "QUALITY")
names, quality = QUALITIES.names, QUALITIES.get
