"""Wrappers of environments, found by name: each module of this folder is one wrapper of a dense env.

    env ──> captioning ──> goals or task ──> history ──> the policy's observations and rewards
                              shaping pays per chunk, tee stores the experience

A wrapper module publishes

    Config                      a `Part`: its configuration
    part(config) -> Config | None
                                its part of a run's whole configuration; None if the run does not use it
    after                       names of wrappers that are closer to the env, if both are used
    training_only               true if it affects only training: evaluation and collecting do not use it
    identity(config) -> array   if a run cannot continue with another configuration of it: a key of the configuration,
                                which is in its `state` under that name; most have none
    inputs(config) -> dict      if training with it has inputs that only it knows: words and hashes by name, for the
                                stage's manifest; most have none
    spec(config, spec) -> EnvSpec
                                the policy's observations with it, from those without; pure: no env is made
    make(config, env, setting) -> Wrapper
                                `env` with it (`envs.api.Wrapper`); it asks no language model before `begin`

where all from `identity` on get its `Config`. A new wrapper needs no other changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from actors.language import LanguageSetup
from envs.api import DenseEnv, EnvSpec
from envs.config import Part
from learner.config import Configuration
from learner.files import Attempt
from learner.room import Room


@dataclass(frozen=True)
class Setting:
    """The player and the setting of a stack of wrappers."""

    caller: str  # its name for the LLM service
    language: LanguageSetup | None = None  # the LLM service, if there is one
    patient: bool = False  # wait for every answer, whatever `llm.when_away` says: evaluation, collecting
    stage: Path | None = None  # folder of the stage
    attempt: Attempt | None = None  # the attempt that may write there
    lives: tuple[int, ...] = (0, 0)  # number of this actor's incarnation in the attempt: a later one is greater
    answers: dict[str, Sequence[str]] = field(default_factory=dict)  # goals by situation, found in any env of the actor


WRAPPERS = Room[Any](__name__)  # of modules
module = WRAPPERS.get


def names() -> list[str]:
    """All wrappers, the innermost first."""
    found = WRAPPERS.names()
    nearer = {name: [other for other in module(name).after if other in found] for name in found}
    return list(TopologicalSorter(nearer).static_order())


def chosen(config: Configuration) -> dict[str, Part]:
    """The wrappers of a run with the whole tree `config`: their configurations by name, in stacking order."""
    return {name: part for name in names() if (part := module(name).part(config)) is not None}


def identities(stack: Mapping[str, Part]) -> dict[str, NDArray[Any]]:
    """By name of the wrapper, the key that must not change during a run; `stack` is `chosen`."""
    return {name: module(name).identity(part) for name, part in stack.items() if hasattr(module(name), "identity")}


def inputs(stack: Mapping[str, Part]) -> dict[str, str]:
    """Inputs of training with these wrappers besides the run's configuration; `stack` is `chosen`."""
    found: dict[str, str] = {}
    for name, part in stack.items():
        if hasattr(module(name), "inputs"):
            found |= module(name).inputs(part)
    return found


def seen(stack: Mapping[str, Part], spec: EnvSpec) -> EnvSpec:
    """A policy's observations in an environment with these wrappers, which are `chosen`."""
    for name in names():
        if name in stack:
            spec = module(name).spec(stack[name], spec)
    return spec


def wrap(env: DenseEnv, stack: Mapping[str, Part], setting: Setting) -> DenseEnv:
    """An env with these wrappers, which are `chosen`. No language model is asked before it begins."""
    for name in names():
        if name in stack and not (setting.patient and module(name).training_only):
            env = module(name).make(stack[name], env, setting)
    return env
