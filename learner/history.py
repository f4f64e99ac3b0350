"""What was seen and done in the last steps of an episode, as texts: one more observation field for agents in words.

observation 1, action 1, observation 2, action 2        oldest first; "" before the episode's first step
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

from envs.api import EnvSpec, Field
from learner.models.language.prompt import PromptConfig

FIELD = "history"
"""The observation field that tells it."""
CANDIDATES = "candidates"
"""The observation field, a set of texts, of worlds whose actions differ from state to state; "" fills empty places."""


class Telling(Protocol):
    """Of a policy's configuration, what says what it is told (`learner.models.config.PolicyConfig`)."""

    @property
    def network(self) -> str: ...
    @property
    def reads(self) -> list[str]: ...
    @property
    def prompt(self) -> PromptConfig: ...


def remembers(config: Telling) -> bool:
    """Whether a policy is told what was before."""
    told = config.network == "language_model" or (
        config.network == "drrn" and (not config.reads or FIELD in config.reads)
    )
    return told and config.prompt.observations > 1


def remembered(config: Telling, spec: EnvSpec) -> EnvSpec:
    """What a policy sees of a world, with the field where it is told. The names of the actions are words then, too."""
    if not remembers(config):
        return spec
    prompt = config.prompt
    width = len(prompt.observation) + 1  # the texts of one observation, and the action
    history = Field("text", ((prompt.observations - 1) * width,))
    words = {*spec.words, *" ".join(spec.action_names).lower().split()}
    return dataclasses.replace(spec, fields=spec.fields | {FIELD: history}, words=tuple(sorted(words)))
