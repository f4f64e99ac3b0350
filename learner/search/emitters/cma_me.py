"""CMA-ME (Fontaine, Togelius, Nikolaidis and Hoover 2020, arXiv 1912.02400), by pyribs: one improvement emitter whose
Gaussian CMA-ES adapts to what fills or improves cells, and which begins again at an elite when nothing does.

Samples beyond the bounds of weights are clipped before they are played; CMA-ES adapts to the samples as drawn.

Limit: the covariance of 302 weights is decomposed again and again: a search takes some twenty times as long here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learner.checkpoint import Arrays
from learner.search.emitters import Emitter, EmitterSetup, Weights
from learner.search.novelty import Purpose, stream
from learner.search.pyribs import Pool

SIGMA = 0.1  # first step size, in weights
_STRATEGY = ("current_eval", "sigma", "mean", "pc", "ps")
_MATRIX = ("cov", "eigenbasis", "eigenvalues", "condition_number", "invsqrt", "updated_eval")
_COUNTS = ("_itrs", "_restarts")


class CMAME(Emitter):
    from_grid = True
    in_order = True
    package = "ribs"

    def __init__(self, setup: EmitterSetup) -> None:
        super().__init__(setup)
        self._pool = Pool(setup.parameters, setup.descriptor, "float64")
        self._emitter: Any = None  # from the first `ask` on

    def ask(self, generation: int, pool: Weights) -> Weights:
        self._draw_from(pool, generation, Purpose.EMITTER)
        if self._emitter is None:
            self._begin(self._pool.sample_elites(1)["solution"][0])
        self._emitter._opt._rng = self._pool.generator
        weights: Weights = np.clip(self._emitter.ask(), self.setup.low, self.setup.high).astype(np.float32)
        return weights

    def tell(
        self,
        generation: int,
        pool: Weights,
        weights: Weights,
        descriptor: NDArray[np.float64],
        quality: NDArray[np.float32],
        gains: tuple[NDArray[np.int32], NDArray[np.float64]],
    ) -> None:
        if self._emitter is not None:  # else this is the first population, which it did not emit
            self._draw_from(pool, generation, Purpose.RESTART)
            status, value = gains
            self._emitter.tell(weights, quality, descriptor, {"status": status, "value": value})

    def state(self) -> Arrays:
        if self._emitter is None:
            return {}
        strategy = self._emitter._opt
        found = {name: getattr(strategy, name) for name in _STRATEGY}
        found |= {f"matrix.{name}": getattr(strategy.cov, name) for name in _MATRIX}
        found |= {name: getattr(self._emitter, name) for name in _COUNTS}
        return {name: np.array(value) for name, value in (found | {"solutions": strategy._solutions}).items()}

    def restore(self, arrays: Arrays) -> None:
        if not arrays:
            return
        self._begin(arrays["mean"])
        strategy = self._emitter._opt
        for name in _STRATEGY:
            setattr(strategy, name, _plain(arrays[name]))
        for name in _MATRIX:
            setattr(strategy.cov, name, _plain(arrays[f"matrix.{name}"]))
        for name in _COUNTS:
            setattr(self._emitter, name, _plain(arrays[name]))
        strategy._solutions = arrays["solutions"].copy()

    def _begin(self, mean: NDArray[Any]) -> None:
        from ribs.emitters import EvolutionStrategyEmitter  # type: ignore[import-not-found]  # an extra

        self._emitter = EvolutionStrategyEmitter(
            self._pool, x0=mean, sigma0=SIGMA, ranker="2imp", batch_size=self.setup.count, seed=0
        )

    def _draw_from(self, pool: Weights, generation: int, purpose: Purpose) -> None:
        self._pool.weights = pool
        self._pool.generator = stream(self.setup.seed, generation, purpose)


def _plain(value: NDArray[Any]) -> Any:
    return value.copy() if value.ndim else value.item()


EMITTER = CMAME
