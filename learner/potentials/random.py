"""A potential that knows nothing: a number is drawn for every entry of the present observation, and they are added.

It is a control. Shaping by it changes no optimal policy, so learning with it must end where learning without it ends.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec
from learner.hashing import uniform
from learner.potentials import Potential, PotentialSetup, ShapingConfig, whole_numbers
from learner.windows import Windows


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
        entries = [windows.obs[name][:, -1].reshape(len(windows), -1).astype(np.int64) for name in self.fields]
        values = np.concatenate(entries, 1)
        place = (np.int64(self.seed) << 32) + (np.arange(values.shape[1]) << 16)
        drawn: NDArray[np.float64] = 2 * uniform(place + values) - 1
        added: NDArray[np.float64] = drawn.sum(1) / math.sqrt(values.shape[1])
        return added.astype(np.float32)


POTENTIAL = RandomPotential
