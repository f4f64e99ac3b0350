"""The engine of a captioner stage: fits a network that captions pictures, and measures it in held-out episodes.

    players in episodes of training, role `captioner` ──> stages/<stage>/: captioner.safetensors, captioner.json
    held-out episodes, of this environment and of that of `evaluate.env` ──> accuracy.json

The stage takes minutes and saves no checkpoints: an interrupted fit starts again, with the same result.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import safetensors.numpy

from cluster.config import limits
from cluster.config.tree import Config
from cluster.roles.backend import Handle
from cluster.roles.drawing import Role, Topology
from cluster.runs.stage import Outcome
from cluster.stages._shared.brief import BriefFit
from learner.captions.about import ABOUT, WEIGHTS, About
from learner.captions.accuracy import spoken
from learner.captions.config import CaptionerConfig
from learner.captions.fit import CaptionerFitter, CaptionerSetup

ACCURACY = "accuracy.json"


class Engine(BriefFit):
    """Fits a captioner."""

    def run(self) -> Outcome | None:
        config = self.config
        fitted = config.method.part(CaptionerConfig)
        setup = CaptionerSetup(fitted, config.env.id, config.env.options, config.seed, config.learner.threads)
        found = self.with_role("captioner", CaptionerFitter, setup, self._fit)
        if found is None:
            return None
        about, weights, accuracy = found
        self.folder.write(self.place / WEIGHTS, weights)
        self.folder.write_json(self.place / ACCURACY, accuracy)
        self.folder.write(self.place / ABOUT, about.model_dump_json(indent=1))
        exact = {name: table["all"]["exact"] for name, table in accuracy.items()}
        return Outcome(exact, lines=tuple(f"{self.stage.name}, {name}: {spoken(e)}" for name, e in exact.items()))

    def _fit(self, role: Handle) -> tuple[About, bytes, dict[str, Any]] | None:
        """Metadata, weights and accuracy, by kind of episodes; None if asked to stop."""
        config = self.config
        ready = self.call(role, "ready", config.cluster.start_timeout_s)
        self.progress.note(f"{self.stage.name}: {ready['parameters']:,} parameters")
        if self.fit(role, ready["steps"], _numbers) is None:
            return None
        wait, options = config.learner.timeout_s, {"as fitted": config.env.options}
        if config.evaluate.env:
            options["evaluate.env"] = config.env.options | config.evaluate.env
        accuracy = {
            name: self.call(role, "measure", wait, config.evaluate.episodes, each) for name, each in options.items()
        }
        shape, weights = self.call(role, "result", wait)
        content = safetensors.numpy.save(weights)
        digest = hashlib.sha256(content).hexdigest()
        return About(env=config.env.id, shape=shape, weights=digest, seed=config.seed), content, accuracy

    @classmethod
    def roles(cls, config: Config) -> Topology:
        fitted = config.method.part(CaptionerConfig)
        does = f"{fitted.steps:,} gradient steps, each on {fitted.batch} steps of {fitted.players} players of its own"
        return Topology((Role("captioner", 1, config.learner.threads, does),))

    @classmethod
    def memory(cls, config: Config) -> int:
        return limits.process(config)


def _numbers(steps: list[list[float]]) -> str:
    facts, events, _ = np.mean(steps, 0)
    return f"loss of facts {facts:.2f}, of events {events:.2f}"
