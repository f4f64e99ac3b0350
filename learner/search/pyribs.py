"""Our grid of elites, as pyribs' emitters read an archive: they only draw elites from it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Pool:
    """Elites to draw from. `weights`, [E, P], and `generator` are replaced before each use.

    Args:
        parameters: P.
        descriptor: D.
        dtype: of solutions.
    """

    objective_dim = ()
    empty = False

    def __init__(self, parameters: int, descriptor: int, dtype: str) -> None:
        self.solution_dim, self.measure_dim = parameters, descriptor
        kinds = {"solution": dtype, "objective": "float64", "measures": "float64"}
        self.dtypes = {name: np.dtype(kind) for name, kind in kinds.items()}
        self.weights: NDArray[np.float32] = np.zeros((1, parameters), np.float32)
        self.generator = np.random.default_rng(0)

    def sample_elites(self, n: int) -> dict[str, NDArray[Any]]:
        """Solutions of n elites, with equal chances, with replacement."""
        return {"solution": self.weights[self.generator.integers(0, len(self.weights), n)]}
