"""Straight: how far a behaviour gets, as a share of the way that it drives."""

import numpy as np
from numpy.typing import NDArray

from learner.search.qualities import Quality
from learner.search.rollout import Rollout


class Straight(Quality):
    lowest = 0.0
    meaning = "distance between start and end as a share of the way driven, 0 to 1"

    def of(self, rollout: Rollout) -> NDArray[np.float32]:
        """0 for a robot that does not move."""
        place = np.concatenate([rollout.start[:, None], rollout.pose], 1)[:, :, :2].astype(np.float64)
        way = np.linalg.norm(np.diff(place, axis=1), axis=-1).sum(1)
        far = np.linalg.norm(place[:, -1] - place[:, 0], axis=-1)
        share = np.divide(far, way, out=np.zeros_like(far), where=way > 0)
        value: NDArray[np.float32] = share.clip(0.0, 1.0).astype(np.float32)
        return value


QUALITY = Straight()
