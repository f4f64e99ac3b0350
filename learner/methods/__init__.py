"""Methods: what is trained, as data. One module each, found by name.

A method module publishes

    Config                          a `Part` with a `name` field and the method's own options
    stages(config) -> list[Stage]   what runs, in order
    check(config, spec)             raises ValueError with the reason if the method cannot run in that world

where `config` is the whole resolved configuration. A stage's kind names the engine in `cluster/stages` that runs it.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import Any

from learner.models.config import LANGUAGE_MODEL


@dataclass(frozen=True)
class Stage:
    """One step of a method. Its artifact is `stages/<name>/` in the run folder."""

    name: str
    kind: str
    player: str = "policy"  # who acts, where a kind has actors: the policy, or a module of `actors/players`
    asked_for: bool = False  # runs only where `stages` names it


def names() -> list[str]:
    """Names of all method modules, sorted."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def method(name: str) -> Any:
    """The module of a method; KeyError if there is none."""
    if name not in names():
        raise KeyError(name)
    return importlib.import_module(f"learner.methods.{name}")


def every_stage(config: Any) -> list[Stage]:
    """The stages of a configuration's method, in order; a policy that is a language model may be tried in other words
    in any."""
    stages: list[Stage] = method(config.method.model_dump()["name"]).stages(config)
    if config.policy.network != LANGUAGE_MODEL or any(stage.kind == "generalise" for stage in stages):
        return stages
    return [*stages, Stage("generalise", "generalise", asked_for=True)]


def selected(config: Any) -> list[Stage]:
    """The stages of the method that shall run, in order."""
    return [s for s in every_stage(config) if (s.name in config.stages if config.stages else not s.asked_for)]


def trains(config: Any) -> bool:
    """Whether any selected stage is the loop of actors and learner."""
    return any(stage.kind == "train" for stage in selected(config))
