"""Calm: minus the mean square of a wheel's speed. Calm behaviours are the easiest to learn from."""

import numpy as np
from numpy.typing import NDArray

from envs.navigation import FASTEST
from learner.search.qualities import Quality
from learner.search.rollout import Rollout


class Calm(Quality):
    lowest = -(FASTEST**2)
    meaning = "minus the mean square of a wheel's speed, -16 to 0"

    def of(self, rollout: Rollout) -> NDArray[np.float32]:
        return -effort(rollout.action)


def effort(action: NDArray[np.float32]) -> NDArray[np.float32]:
    """Mean square of a wheel's speed, float32 [n], of actions [n, T, 2]."""
    found: NDArray[np.float32] = np.square(action).mean((1, 2), dtype=np.float32)
    return found


QUALITY = Calm()
