"""The engine of a context stage: one arm's transformer, fitted to learning histories.

    stages/histories ──┐
    stages/encoder ────┴──> ranks (`learner.n`): look up, then fit ──> stages/<stage>/weights.safetensors, lookup.json

Histories and encoder come from this run, otherwise from the run that `from` names, and so on along the chain. The stage
`encoder` is also of this kind, without retrieval; a frozen encoder needs none. Each rank does the lookup itself, before
its first step and after each resume: the result is a function of histories, encoder and seed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from cluster.config import limits
from cluster.config.tree import Config
from cluster.runs.stage import Outcome
from cluster.stages._shared.fitting import Fitting
from cluster.stages._shared.transformers import encoder_of, fitted_with
from learner.context.config import ENCODER, RetrieveConfig, SequenceConfig, arm_of
from learner.context.fit import HistoryFitter, HistorySetup
from learner.store.episodes import EPISODES, digest

HISTORIES, LOOKUP = "histories", "lookup.json"
BUFFERS = ("reach", "reward_scale")
"""Data saved besides parameters."""


class Engine(Fitting):
    """From learning histories to a transformer."""

    by_name: ClassVar[bool] = True
    section = SequenceConfig
    items = "episodes"

    @classmethod
    def device(cls, config: Config) -> str:
        return "method.sequence.device"

    def run(self) -> Outcome | None:
        config, method = self.config, self.config.method
        sequence, retrieve = method.part(SequenceConfig), method.part(RetrieveConfig)
        arm = arm_of(method.model_dump()["arm"], self.stage.name)
        sequence = sequence.encoding if self.stage.name == ENCODER else sequence
        histories = self.given.artifact(HISTORIES) / EPISODES
        inputs, encoder = {"episodes": digest(histories)}, None
        if self.stage.name != ENCODER:
            inputs |= fitted_with(config)  # otherwise trials refuse to play it
        if arm.looks == "nearest":
            encoder, inputs[ENCODER] = encoder_of(self.given, sequence, retrieve, config.spec)
        self._found: dict[str, float] = {}
        settings = sequence, retrieve, arm, config.spec, config.learner, config.seed
        setup = HistorySetup(*settings, histories, encoder, config.sync)
        if not self.fit(HistoryFitter, setup):
            return None
        counters = self.given.publish(self.stage)
        arrays = self.given.newest().arrays["model"]
        counts = counters | {"parameters": sum(value.size for name, value in arrays.items() if name not in BUFFERS)}
        return Outcome(counts, inputs=inputs)

    def prepare(self) -> None:
        self._found = self.ranks.call("look_up", timeout=self.config.learner.timeout_s, begins=True)
        if self._found:
            self.folder.write_json(self.place / LOOKUP, self._found)
            self.progress.note(f"{self.stage.name}: {spoken(self._found)}")

    @classmethod
    def memory(cls, config: Config) -> int:
        return config.learner.n * limits.process(config)


def spoken(found: dict[str, Any]) -> str:
    """A message about a lookup."""
    told = f"{found['points']:,.0f} queries, {found['answered']:.1%} answered"
    if found.get("drawn_for_short"):
        told += f", {found['drawn_for_short']:.1%} by chance since they are short"
    told += f", similarity {found['similarity']:.3f}" if "similarity" in found else ""
    return told + (f", {found['away']:.0f} episodes away" if "away" in found else "")
