"""Calibration: no training; a language model answers questions that people have answered, each once.

Reported are its agreement with people by groups of questions, beside baselines without a model, and its calibration.
ELLM (Du et al. 2023, arXiv 2302.06692) rewards an agent by such answers: an agent cannot learn what they get wrong.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

import envs
from envs.api import EnvSpec
from envs.config import Part
from learner.config import Configuration
from learner.methods import Stage


class Config(Part):
    """The questions, and how they are asked; `llm` selects the model."""

    name: Literal["calibration"] = "calibration"
    """The module of `learner/methods`."""
    questions: int = Field(default=0, ge=0)
    """How many of the environment's questions are sampled, by `seed`, and asked; 0: all of them."""
    neutral: bool = True
    """Subtract the model's answer to a question without content; false: its raw answer, as in published ELLM."""
    probability: float = Field(default=0.5, ge=0.0, le=1.0)
    """Threshold above which an answer counts as yes, like `method.goals.probability` of runs that use the model."""
    bins: int = Field(default=10, ge=1, le=100)
    """Number of bins in the reliability diagram."""


def stages(config: Configuration) -> list[Stage]:
    return [Stage("calibrate", "calibrate", player="language_model")]


def check(config: Configuration, spec: EnvSpec) -> None:
    method, llm = config.method, config.llm.model_dump()
    assert isinstance(method, Config)
    there = len(envs.labels(config.env.id, config.env.options).questions)
    if method.questions > there:
        raise ValueError(f"method.questions={method.questions}, but {spec.id} has {there}: 0 asks all of them")
    if not llm["address"] and llm["name"] == "openai" and llm["api"] == "chat":
        raise ValueError("llm.api: chat does not score yes and no; set llm.api=completions where the server offers it")
