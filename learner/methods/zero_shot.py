"""Zero-shot: no training; a language model acts by scoring the names of the actions. The baseline of language policies.

Carta et al., "Grounding large language models in interactive environments with online RL" (arXiv 2302.02662), use it as
their agents' starting point: the policy is the model's probability of each action's name after a prompt of goal and
observations.
"""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.config import Configuration
from learner.methods import Stage


class Config(Part):
    """Nothing to set: the model is `llm`'s, and `evaluate.greedy` says whether it samples."""

    name: Literal["zero_shot"] = "zero_shot"
    """The module of `learner/methods`."""


def stages(config: Configuration) -> list[Stage]:
    return [Stage("evaluate", "evaluate", player="language_model")]


def check(config: Configuration, spec: EnvSpec) -> None:
    if not (spec.discrete and spec.captioned and "mission" in spec.fields):
        raise ValueError(f"method zero_shot needs action names, missions and captions, which {spec.id} does not have")
    llm = config.llm.model_dump()
    if not llm["address"] and llm["name"] == "openai" and llm["api"] == "chat":
        raise ValueError("llm.api: chat cannot score action names; set llm.api=completions where the server offers it")
