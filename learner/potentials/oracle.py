"""The potential of an oracle: the nearer to the mission's target, the higher. A control: an upper bound.

No player can know it: the environment provides it as a privileged field that no policy sees.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec
from learner.potentials import Potential, PotentialSetup, ShapingConfig
from learner.windows import Windows

DISTANCE = "distance"


class Oracle(Potential):
    """Minus the distance, as a share of the room: in [-1, 0]."""

    fields = (DISTANCE,)

    @classmethod
    def check(cls, config: ShapingConfig, spec: EnvSpec) -> None:
        if DISTANCE not in spec.fields:
            raise ValueError(
                f"method.shaping.potential=oracle needs the distance to the target, which {spec.id} does not tell: "
                "set env.distance=true in a world of babyai"
            )

    def __init__(self, setup: PotentialSetup) -> None:
        pass

    def phi(self, windows: Windows) -> NDArray[np.float32]:
        distance: NDArray[np.float32] = windows.now(DISTANCE)[:, 0]
        return -distance


POTENTIAL = Oracle
