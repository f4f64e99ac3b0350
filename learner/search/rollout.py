"""What is known of behaviours once they were played: what descriptors and qualities are computed from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs import navigation


@dataclass(frozen=True)
class Rollout:
    """n behaviours, played for T steps."""

    house: navigation.Map
    weights: NDArray[np.float32]  # [n, P] of their policies
    start: NDArray[np.float32]  # [n, 3] x, y, heading before the first step
    pose: NDArray[np.float32]  # [n, T, 3] x, y, heading after each step: world units, radians
    action: NDArray[np.float32]  # [n, T, 2] how far each wheel moved, world units


def play(
    house: navigation.Map, weights: NDArray[np.float32], length: int, start: NDArray[np.float32] | None = None
) -> Rollout:
    """Play policies [n, P] for `length` steps, from the map's start or from `start`, [3] or [n, 3]."""
    starts = np.broadcast_to(np.array(house.start if start is None else start, np.float32), (len(weights), 3))
    found = navigation.rollout(house, starts, weights, length)
    return Rollout(house, weights, starts, found["pose"], found["action"])
