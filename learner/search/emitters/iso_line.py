"""Iso+LineDD (Vassiliades and Mouret 2018, arXiv 1804.03906), by pyribs: an elite, plus noise, plus a step along the
line to another elite. Scales are pyribs' defaults."""

from __future__ import annotations

import numpy as np

from learner.search.emitters import Emitter, Weights
from learner.search.novelty import Purpose, stream
from learner.search.pyribs import Pool


class IsoLine(Emitter):
    from_grid = True
    package = "ribs"

    def ask(self, generation: int, pool: Weights) -> Weights:
        from ribs.emitters import IsoLineEmitter  # type: ignore[import-not-found]  # an extra

        setup, generator = self.setup, stream(self.setup.seed, generation, Purpose.EMITTER)
        archive = Pool(setup.parameters, setup.descriptor, "float32")
        archive.weights, archive.generator = pool, generator
        emitter = IsoLineEmitter(archive, x0=pool[0], batch_size=setup.count, seed=generator)
        weights: Weights = np.clip(emitter.ask(), setup.low, setup.high).astype(np.float32)
        return weights


EMITTER = IsoLine
