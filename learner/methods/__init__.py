"""Methods: their stages and options, as data. One module each, found by name.

A method module publishes

    Config                          a `Part`: its `name`, its own options, and the sections that its stages read
    stages(config) -> list[Stage]   what runs, in order
    check(config, spec)             raises ValueError with the reason if the method cannot run in that environment

where `config` is the whole resolved configuration. A stage's kind names the engine in `cluster/stages` that runs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from envs.config import Part
from learner.captions.config import CaptioningConfig
from learner.config import Configuration
from learner.goals import GoalsConfig
from learner.models.config import LANGUAGE_MODEL
from learner.parts import GeneraliseConfig
from learner.potentials import ShapingConfig
from learner.rewards import IntrinsicConfig
from learner.room import Room


@dataclass(frozen=True)
class Stage:
    """One step of a method. Its artifact is `stages/<name>/` in the run folder."""

    name: str
    kind: str
    player: str = "policy"  # for kinds with actors: the policy, or a module of `actors/players`
    asked_for: bool = False  # runs only where `stages` names it


class TrainingConfig(Part):
    """The configuration of every method with stages that train by acting."""

    name: str = ""
    """The module of `learner/methods`."""
    goals: GoalsConfig = GoalsConfig()
    """Goals in words in addition to the environment's reward."""
    captioning: CaptioningConfig = CaptioningConfig()
    """Captions by a network instead of by the environment, and noise on captions."""
    intrinsic: IntrinsicConfig = Field(default_factory=IntrinsicConfig)
    """Reward for novelty."""
    shaping: ShapingConfig = Field(default_factory=ShapingConfig)
    """Reward shaping by a potential."""
    tee: bool = False
    """Store every finished training episode, with all observation fields, in `episodes/` of its stage."""
    generalise: GeneraliseConfig = GeneraliseConfig()
    """Testing a language policy in other words and environments."""


METHODS = Room[Any](__name__)  # of modules
names, method = METHODS.names, METHODS.get


def every_stage(config: Configuration) -> list[Stage]:
    """The stages of a configuration's method, in order; with any method, a language-model policy may be tested in other
    words."""
    stages: list[Stage] = method(config.method.model_dump()["name"]).stages(config)
    if config.policy.network != LANGUAGE_MODEL or any(stage.kind == "generalise" for stage in stages):
        return stages
    return [*stages, Stage("generalise", "generalise", asked_for=True)]


def selected(config: Configuration) -> list[Stage]:
    """The stages of the method to run, in order."""
    return [s for s in every_stage(config) if (s.name in config.stages if config.stages else not s.asked_for)]


def trains(config: Configuration) -> bool:
    """Whether any selected stage is the loop of actors and learner."""
    return any(stage.kind == "train" for stage in selected(config))
