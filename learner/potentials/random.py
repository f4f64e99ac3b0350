"""A potential without knowledge: the sum of a random number for every entry of the current observation.

It is a control. Shaping by it changes no optimal policy, so training with it must end where training without it ends.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec
from learner.hashing import uniform
from learner.potentials import Potential, PotentialSetup, ShapingConfig, whole_numbers
from learner.windows import Windows

ROWS = 64
"""Windows that are evaluated together."""


class RandomPotential(Potential):
    """The sum over all entries of fields of whole numbers, divided by the root of their count: about normal, 0 +- 0.58.

    The number of an entry follows from the run's seed, the entry's place and its value.
    """

    @classmethod
    def check(cls, config: ShapingConfig, spec: EnvSpec) -> None:
        if not whole_numbers(spec.fields):
            raise ValueError(
                f"method.shaping.potential=random needs an observation of whole numbers, which {spec.id} has not"
            )

    def __init__(self, setup: PotentialSetup) -> None:
        self.fields = tuple(whole_numbers(setup.fields))
        self.seed = setup.seed

    def phi(self, windows: Windows) -> NDArray[np.float32]:
        entries = [windows.now(name).reshape(len(windows), -1) for name in self.fields]
        width = sum(column.shape[1] for column in entries)
        place = (np.int64(self.seed) << 32) + (np.arange(width) << 16)
        found = np.empty(len(windows), np.float32)
        for first in range(0, len(windows), ROWS):  # of pictures, 2,000 at once would take a gigabyte
            values = np.concatenate([column[first : first + ROWS].astype(np.int64) for column in entries], 1)
            found[first : first + ROWS] = (2 * uniform(place + values) - 1).sum(1) / math.sqrt(width)
        return found


POTENTIAL = RandomPotential
