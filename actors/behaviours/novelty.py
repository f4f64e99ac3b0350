"""Evaluators of novelty search: each plays whole sub-populations in the house in compiled code, without Python per
step.

    Batch of weights [n, 302] ──> rollout ──> Played: descriptor, behaviour, effort and quality of each

An evaluator has no state: its results depend only on the weights, the map and the start, so any evaluator can play any
batch, and repeat it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs import navigation
from envs.navigation import TENTHS
from learner.search import descriptors, qualities
from learner.search.novelty_search import Played
from learner.search.qualities.calm import effort
from learner.search.rollout import play


@dataclass(frozen=True)
class EvaluatorSetup:
    """The house. Plain data, sent to evaluators."""

    map: str  # path; empty: the default house
    length: int  # steps of an episode
    descriptor: str = descriptors.DEFAULT  # a module of learner/search/descriptors
    quality: str = qualities.DEFAULT  # a module of learner/search/qualities


class NoveltyEvaluator:
    """A role. Every actor gets `index`, `incarnation` and `saved`; an evaluator needs none of them."""

    def __init__(self, setup: EvaluatorSetup, index: int = 0, incarnation: int = 0, saved: Any = None) -> None:
        self.house = navigation.load(setup.map or navigation.HOUSE)
        self.length = setup.length
        self.descriptor = descriptors.descriptor(setup.descriptor)
        self.quality = qualities.quality(setup.quality)
        self._phase = "start"
        self._done = {"player/evaluations": 0.0, "player/seconds": 0.0}

    def ready(self) -> dict[str, Any]:
        """Compile, after construction."""
        self.play(np.zeros((1, navigation.PARAMETERS), np.float32))
        return {"pid": os.getpid()}

    def heartbeat(self) -> dict[str, Any]:
        return {"phase": self._phase, "pid": os.getpid()}

    def numbers(self) -> dict[str, float]:
        """Its counters since it was built, named as in `cluster.metrics.table.EVALUATOR`; any thread may call this."""
        return dict(self._done)

    def play_pieces(self, *pieces: NDArray[np.float32]) -> list[Played] | Played:
        """Play a batch that arrived in pieces. The results are returned in the same pieces, or in one."""
        played = self.play(np.concatenate(pieces))
        return played.split([len(piece) for piece in pieces]) if len(pieces) > 1 else played

    def play(self, weights: NDArray[np.float32]) -> Played:
        """Play an episode with each policy [n, 302], from the map's start."""
        self._phase, began = "play", time.perf_counter()
        found = play(self.house, weights, self.length)
        played = Played(
            descriptor=self.descriptor.describe(found),
            halfway=found.pose[:, (self.length - 1) // 2, :2].astype(np.float64),
            action=np.rint(found.action * TENTHS).astype(np.int8),
            effort=effort(found.action),
            quality=self.quality.of(found),
        )
        self._phase = "idle"
        self._done["player/evaluations"] += len(weights)
        self._done["player/seconds"] += time.perf_counter() - began
        return played
