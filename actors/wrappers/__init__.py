"""What stands beside a world, found by name: each module of this folder is one wrapper of a dense env.

    world ──> goals or task ──> history ──> what the policy sees and is paid for
                  shaping pays by the chunk, tee keeps what is lived

A wrapper module publishes

    Config                      a `Part`: what it is told
    part(config) -> Config | None
                                that, of the whole configuration of a run; None where the run does without it
    after                       names of the wrappers that stand nearer to the world, where both are there
    training_only               true for what only training pays: evaluation and collecting do without
    identity(config) -> array   if a run cannot go on with another configuration of it: what tells these apart, which
                                its `state` holds under that name; most have none
    inputs(config) -> dict      if what is trained with it is made of something that only it knows of: words and hashes
                                by name, for the stage's manifest; most have none
    spec(config, spec) -> EnvSpec
                                what a policy sees with it, of what it sees without; pure: no env is made
    make(config, env, setting) -> Wrapper
                                `env` with it (`envs.api.Wrapper`); it asks nobody before `begin`

where all from `identity` on get its `Config`. Nothing else is edited for a new one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from actors.language import LanguageSetup
from envs.api import DenseEnv, EnvSpec
from envs.config import Part
from learner.config import Configuration
from learner.files import Attempt


@dataclass(frozen=True)
class Setting:
    """Who plays in a stack, and how."""

    caller: str  # its name, where a language model is asked
    language: LanguageSetup | None = None  # where the service is, if there is one
    patient: bool = False  # wait for every answer, whatever `llm.when_away` says: evaluation, collecting
    stage: Path | None = None  # folder of the stage that is played for
    attempt: Attempt | None = None  # at the run, in whose name something may be written there
    lives: tuple[int, ...] = (0, 0)  # which of those who were this actor in the attempt: of two, the later is greater


def module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")


def names() -> list[str]:
    """All wrappers, those nearest to the world first."""
    found = sorted(found.name for found in pkgutil.iter_modules(__path__))
    nearer = {name: [other for other in module(name).after if other in found] for name in found}
    return list(TopologicalSorter(nearer).static_order())


def chosen(config: Configuration) -> dict[str, Part]:
    """The wrappers that a run of `config`, the whole tree, has; what they are told by name, in stacking order."""
    return {name: part for name in names() if (part := module(name).part(config)) is not None}


def identities(stack: Mapping[str, Part]) -> dict[str, NDArray[Any]]:
    """By name of the wrapper, what a run cannot go on without; `stack` is `chosen`."""
    return {name: module(name).identity(part) for name, part in stack.items() if hasattr(module(name), "identity")}


def inputs(stack: Mapping[str, Part]) -> dict[str, str]:
    """What training with these wrappers is made of beside the run's configuration; `stack` is `chosen`."""
    found: dict[str, str] = {}
    for name, part in stack.items():
        if hasattr(module(name), "inputs"):
            found |= module(name).inputs(part)
    return found


def seen(stack: Mapping[str, Part], spec: EnvSpec) -> EnvSpec:
    """What a policy sees of a world with these wrappers, which are `chosen`."""
    for name in names():
        if name in stack:
            spec = module(name).spec(stack[name], spec)
    return spec


def wrap(env: DenseEnv, stack: Mapping[str, Part], setting: Setting) -> DenseEnv:
    """A world with these wrappers around it, which are `chosen`. Nobody is asked before it begins."""
    for name in names():
        if name in stack and not (setting.patient and module(name).training_only):
            env = module(name).make(stack[name], env, setting)
    return env
