"""A stage's inputs and outputs, and what its engine declares before anything runs.

Run ──> Engine(run, stage).run() ──> Outcome, with which the stage is done, or None: asked to stop
        Engine.takes, makes ──> what is missing?      roles ──> drawing      memory ──> does it fit?
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import safetensors.numpy

from actors import ActorSetup, wrappers
from actors.setup import Guidance
from cluster.config.tree import Config
from cluster.metrics.rows import Metrics
from cluster.roles.backend import Backend
from cluster.roles.drawing import Topology
from cluster.roles.language import LanguageService
from cluster.roles.supervisor import Crew, last_line
from cluster.runs.folder import RunError, RunFolder, needed_stage
from cluster.runs.progress import Progress
from cluster.runs.stop import Stop
from cluster.runs.weights import guide_weights, trained
from learner import checkpoint as checkpoints
from learner.checkpoint import Checkpoint
from learner.group import Weights
from learner.methods import Stage
from learner.parts import GuideConfig

LOOK_S = 2.0  # seconds after which a controller looks again whether a newer attempt has begun
Artifact = Literal["", "weights", "episodes"]
"""Artifacts that stages take from each other, whatever their names. Stages on behaviours find theirs by name."""


@dataclass
class Run:
    """One controller's work on one run, as every stage gets it.

    checkpoint: where a stage that learns continues; None: from the start.
    initial: weights to start from: those that `from` names, or those to evaluate again.
    beside: this is a further stage, not one of the run's own.
    """

    config: Config
    folder: RunFolder
    backend: Backend
    metrics: Metrics
    progress: Progress
    stop: Stop
    checkpoint: Checkpoint | None = None
    initial: Weights | None = None
    beside: bool = False
    language: LanguageService | None = None
    _looked: float = field(default=0.0, init=False)

    def actor_setup(self, stage: Stage) -> ActorSetup:
        """Everything that an actor of a stage needs, from the configuration."""
        config, guide = self.config, guide_weights(self.config)
        return ActorSetup(
            config.env.id,
            config.env.options,
            config.spec,
            config.actors,
            config.policy,
            config.seed,
            config.sync,
            self.language.setup if self.language else None,
            wrappers.chosen(config),
            Guidance(guide, config.method.part(GuideConfig).share) if guide is not None else None,
            stage=self.folder.stage(stage.name),
            attempt=self.folder.attempt,
            evaluated=config.evaluate.env,
        )

    def weights(self, stage: Stage) -> Weights | None:
        """The policy's weights, for a stage in which it plays; None if another player does.

        Raises:
            RunError: there are no weights.
        """
        if stage.player != "policy":
            return None
        weights = self.initial if self.beside else trained(self.folder) or self.initial
        if weights is None:
            raise RunError(f"stage {stage.name} needs weights: run the train stage, or set from=run:NAME/train")
        return weights

    def artifact(self, name: str) -> Path:
        """The folder of a finished stage: this run's, otherwise that of the run that `from` names, and so on along the
        chain.

        Raises:
            RunError: neither has it.
        """
        return needed_stage(self.folder.path, self.config.from_, name)

    def newest(self) -> Checkpoint:
        """The newest checkpoint after a stage that learns, which saves before it returns."""
        found = checkpoints.latest(self.folder.checkpoints)
        assert found is not None, "a stage that learns saves before it returns"
        return found

    def publish(self, stage: Stage) -> dict[str, Any]:
        """Make the newest checkpoint's weights the artifact of a stage that learned. Returns its counters."""
        found = self.newest()
        path = self.folder.stage(stage.name) / "weights.safetensors"
        self.folder.write(path, safetensors.numpy.save(found.arrays["model"]))
        return dict(found.record["counters"])

    def asked(self) -> dict[str, float]:
        """Columns of what this run has asked language models so far; empty without a service of its own."""
        return self.language.columns if self.language else {}

    def await_language(self) -> None:
        """Wait until the LLM service answers, if the run has one. Actors that ask before that find no service."""
        if self.language:
            self.language.start()

    def look_after(self) -> None:
        """Periodic checks: the services of the actors, and whether a newer attempt has begun."""
        if time.monotonic() - self._looked > LOOK_S:
            self._looked = time.monotonic()
            self.folder.assert_newest()
            if (asked := self.asked()) != self.folder.read_status().get("llm", {}):
                self.folder.write_status(llm=asked)  # a resumed run counts on from there
        if self.language:
            self.language.look_after()


@dataclass(frozen=True)
class Outcome:
    """The outcome of a stage. With it, the stage is done.

    counts: counters for its manifest.
    weights: the weights from which it started; None: from scratch.
    inputs: its other inputs, by name: hashes, or a few words.
    lines: messages to print.
    """

    counts: dict[str, Any]
    weights: Weights | None = None
    inputs: dict[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


class StageEngine(ABC):
    """Runs the stages of one kind."""

    makes: ClassVar[Artifact] = ""
    """Artifacts that later stages may take from it."""
    by_name: ClassVar[bool] = False
    """Whether it finds artifacts by the names of their stages, in this run and in the run that `from` names."""
    again: ClassVar[bool] = False
    """Whether it can be repeated as a further stage: `launch.py eval`."""
    asker: ClassVar[str] = "controller"
    """The role that asks a language model, if any."""
    waits: ClassVar[bool] = True
    """Whether the LLM service has to answer before it runs; otherwise it waits itself, while its own roles start."""

    def __init__(self, run: Run, stage: Stage) -> None:
        self.given, self.stage = run, stage
        self.config, self.folder, self.backend = run.config, run.folder, run.backend
        self.metrics, self.progress, self.stop = run.metrics, run.progress, run.stop

    def start_crew(self, setup: Any, role: type[Any], name: str) -> Crew:
        """Start `actors.n` of a role, built from `setup`. Messages about deaths use this name."""

        def failed(number: int, cause: str) -> None:
            self.progress.note(f"{name}-{number} failed: {last_line(cause)}")

        start_s = self.config.cluster.start_timeout_s
        return Crew(self.backend, self.config.actors, setup, {}, start_s, failed, role)

    @property
    def place(self) -> Path:
        """The folder of its outputs."""
        return self.folder.stage(self.stage.name)

    @abstractmethod
    def run(self) -> Outcome | None:
        """Run the stage to its end, from wherever it stopped. None if the run was asked to stop first."""

    @classmethod
    def takes(cls, stage: Stage) -> Artifact:
        """Artifacts that it needs."""
        return ""

    @classmethod
    def asks(cls, config: Config, stage: Stage) -> bool:
        """Whether it needs the LLM service."""
        return stage.player == "language_model"

    @classmethod
    def goes_on(cls, config: Config, checkpoint: Checkpoint) -> bool:
        """Whether there is more to do from a run's checkpoint, even if the stage was done before."""
        return False

    @classmethod
    def roles(cls, config: Config) -> Topology:
        """The roles that it starts, and the data flow between them."""
        return Topology()

    @classmethod
    def memory(cls, config: Config) -> int:
        """Bytes of memory that it certainly needs on this machine."""
        return 0
