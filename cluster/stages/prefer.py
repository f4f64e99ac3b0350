"""The engine of a prefer stage: fits a model of segments to preferences between them.

    stages/label: segments, preferences ──> role `preference` ──> stages/<stage>/: preference.safetensors,
                                                                  preference.json, calibration.json

Labels come from this run, otherwise from the run that `from` names. The stage takes minutes and saves no checkpoints:
an interrupted fit starts again, with the same result.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import safetensors.numpy

from cluster.config import limits
from cluster.config.tree import Config
from cluster.roles.backend import Handle
from cluster.roles.drawing import Role, Topology
from cluster.runs.folder import RunError
from cluster.runs.stage import Outcome
from cluster.stages._shared.brief import CALL_STEPS, BriefFit
from envs import registry
from learner.files import sha256
from learner.knowledge.fitted_preference import ABOUT, WEIGHTS, About
from learner.knowledge.prefer_config import PreferConfig
from learner.knowledge.preference_fit import FEWEST, Fitted, PreferenceFitter, PreferenceSetup, shape_of
from learner.knowledge.preferences import FILE, Preferences
from learner.knowledge.segments import ARRAYS, Segments

LABEL = "label"
"""The stage whose artifact this one reads."""
LABELS = (ARRAYS, FILE)
CALIBRATION = "calibration.json"


class Engine(BriefFit):
    """Fits a model to preferences."""

    by_name: ClassVar[bool] = True

    def run(self) -> Outcome | None:
        labels = self.given.artifact(LABEL)
        setup, inputs = self._setup(labels), {name: sha256(labels / name) for name in LABELS}
        found = self.with_role("preference", PreferenceFitter, setup, self._fit)
        if found is None:
            return None
        self._write(setup, *found, inputs)
        told = {name: value for name, value in found[0].report.items() if name != "calibration"}
        return Outcome(told, inputs=inputs, lines=(f"{self.stage.name}: {spoken(told)}",))

    def _setup(self, labels: Path) -> PreferenceSetup:
        config, preferences, segments = self.config, Preferences.load(labels), Segments.load(labels)
        if (decided := preferences.decided) < FEWEST:
            raise RunError(
                f"{labels} holds {decided} pairs with a preference, but a model needs {FEWEST} at "
                "least: label more pairs"
            )
        if max(preferences.first.max(), preferences.second.max()) >= len(segments):
            raise RunError(f"{labels} holds preferences between segments that are missing: run its stage again")
        world, prefer = registry.spec(config.env.id, **config.env.options), config.method.part(PreferConfig)
        shape = shape_of(segments, world.fields, len(world.action_names), prefer.width)
        untold = replace(segments, captions=[])
        learner = config.learner
        return PreferenceSetup(
            prefer, shape, untold, preferences, config.seed, learner.threads, learner.device, config.sync
        )

    def _fit(self, role: Handle) -> tuple[Fitted, list[list[float]]] | None:
        """The result, and loss, accuracy and gradient norm of all steps; None if asked to stop."""
        ready = self.call(role, "ready", self.config.cluster.start_timeout_s)
        self.progress.note(
            f"{self.stage.name}: {ready['pairs']:,} pairs, {ready['ties']:,} of them ties; a twin learns from "
            f"{ready['measured_learned']:,} and is measured on {ready['measured_on']:,}"
        )
        steps = self.fit(role, ready["steps"], _numbers)
        return None if steps is None else (self.call(role, "result", self.config.learner.timeout_s), steps)

    def _write(self, setup: PreferenceSetup, fitted: Fitted, steps: list[list[float]], labels: dict[str, str]) -> None:
        content = safetensors.numpy.save(fitted.weights)
        about = About(
            shape=setup.shape,
            mean=fitted.mean,
            spread=fitted.spread,
            weights=hashlib.sha256(content).hexdigest(),
            labels=labels,
            prefer=setup.prefer,
            seed=setup.seed,
        )
        kept = steps[-setup.prefer.steps :]
        parts = [kept[begin : begin + CALL_STEPS] for begin in range(0, len(kept), CALL_STEPS)]
        curve = [{"steps": len(part), "loss": float(np.mean(part, 0)[0])} for part in parts]
        self.folder.write(self.place / WEIGHTS, content)
        self.folder.write_json(self.place / CALIBRATION, fitted.report | {"curve": curve})
        self.folder.write(self.place / ABOUT, about.model_dump_json(indent=1))

    @classmethod
    def roles(cls, config: Config) -> Topology:
        prefer = config.method.part(PreferConfig)
        does = f"{prefer.steps:,} gradient steps, twice, each on {prefer.batch} pairs"
        role = Role("preference", 1, config.learner.threads, does, "learner.device")
        return Topology((role,), (("labels", "preference", "segments, preferences"),))

    @classmethod
    def memory(cls, config: Config) -> int:
        return limits.process(config)


def _numbers(steps: list[list[float]]) -> str:
    loss, accuracy, _ = np.mean(steps, 0)
    return f"loss {loss:.3f}  accuracy {accuracy:.3f}"


def spoken(report: dict[str, Any]) -> str:
    """Lines that a finished stage prints."""
    parts = [f"{report['pairs']:,} pairs"]
    if report.get("accuracy") is not None:
        parts.append(f"{report['accuracy']:.1%} of {report['decided']:,} held-out ones are predicted correctly")
    if report["agreement"] is not None:
        parts.append(f"rank correlation with the return to come {report['agreement']:.2f}")
    return ", ".join(parts)
