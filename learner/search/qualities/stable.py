"""Stable: how little a behaviour's end moves when its start does. A stable policy corrects its way.

Each policy is played from `STARTS` more places, so a search takes about five times as long.
"""

import numpy as np
from numpy.typing import NDArray

from envs import navigation
from learner.search.qualities import Quality
from learner.search.rollout import Rollout, play

STARTS = ((10.0, 0.0, 0.0), (-10.0, 0.0, 0.0), (0.0, 10.0, 0.1), (0.0, -10.0, -0.1))
"""Added to a behaviour's own start: world units and radians. Starts that are not free are left out."""


class Stable(Quality):
    lowest = -1.0
    meaning = "minus the mean distance between its end and its ends from nearby starts, in diagonals of the house"

    def of(self, rollout: Rollout) -> NDArray[np.float32]:
        """0 where no nearby start is free."""
        house, end, length = rollout.house, rollout.pose[:, -1, :2], rollout.pose.shape[1]
        missed, played = np.zeros(len(end)), np.zeros(len(end))
        for offset in np.array(STARTS, np.float32):
            start = rollout.start + offset
            rows = np.flatnonzero(navigation.free(house, start))
            other = play(house, rollout.weights[rows], length, start[rows]).pose[:, -1, :2]
            missed[rows] += np.linalg.norm(other - end[rows], axis=-1)
            played[rows] += 1
        diagonal = np.hypot(*house.walls.shape) / house.scale
        value: NDArray[np.float32] = (-missed / np.maximum(1, played) / diagonal).astype(np.float32)
        return value


QUALITY = Stable()
