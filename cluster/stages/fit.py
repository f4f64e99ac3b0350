"""The engine of a fit stage: a policy, fitted to the episodes of a store (`cluster/stages/_shared/fitting.py`).

store ──> ranks ──> stages/<stage>/weights.safetensors
"""

from __future__ import annotations

from typing import ClassVar

from cluster.config import limits
from cluster.config.tree import Config
from cluster.runs.stage import Artifact, Outcome
from cluster.runs.supply import store_of
from cluster.stages._shared.fitting import Fitting
from learner.fit import FitSetup, Fitter
from learner.methods import Stage
from learner.parts import FitConfig
from learner.store.episodes import digest


class Engine(Fitting):
    """From episodes to weights."""

    makes: ClassVar[Artifact] = "weights"
    section = FitConfig
    items = "recorded ones"

    def run(self) -> Outcome | None:
        config, store = self.config, store_of(self.config, self.folder)
        fit = config.method.part(FitConfig)
        setup = FitSetup(fit, config.learner, config.policy, config.spec, config.seed, store, config.sync)
        if not self.fit(Fitter, setup):
            return None
        return Outcome(self.given.publish(self.stage), self.given.initial, {"store": digest(store)})

    @classmethod
    def takes(cls, stage: Stage) -> Artifact:
        return "episodes"

    @classmethod
    def memory(cls, config: Config) -> int:
        return config.learner.n * limits.process(config)
