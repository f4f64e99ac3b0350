"""Background knowledge: ask a language model once about an environment, then shape any number of tasks by its answers
(Zhang et al. 2024, arXiv 2407.03964).

    explore ──> label ──> prefer                                 this method: once per environment, without a task
                  │         └── preference ──┐
                  └── program, goals ────────┴──> method.shaping of any training method, one run per task

    explore    PPO with a reward for novelty; every finished episode is kept    learner/rewards, method.tee
    label      segments of these episodes; a language model compares them,      learner/knowledge, llm_service/tasks
               names goals, writes programs, of which the one that agrees
               best with its own preferences is chosen
    prefer     a transformer over segments, fitted to the preferences           learner/knowledge

| paper | here |
|---|---|
| exploration without a task | stage `explore`: `method.intrinsic`, `learner.reward_weights` |
| BK-Code | `method.shaping.potential=code method.shaping.program=run:NAME/label` |
| BK-Pref | `method.shaping.potential=preference method.shaping.preference=run:NAME/prefer` |
| BK-Goal | `method.shaping.potential=goal method.shaping.goals=run:NAME/label` |
| r + gamma phi(s') - phi(s) | `actors/wrappers/shaping.py`, for every potential alike |

What differs from the published system: docs/methods/bk.md.
"""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from learner.algorithms import algorithm
from learner.config import Configuration, assert_suits
from learner.knowledge.config import LabelConfig, told_fields
from learner.knowledge.prefer_config import PreferConfig
from learner.methods import Stage, TrainingConfig


class Config(TrainingConfig):
    """Options of exploring, as for all training by acting, and of the use of its episodes."""

    name: Literal["bk"] = "bk"
    """The module of `learner/methods`."""
    label: LabelConfig = LabelConfig()
    """Questions to the language model."""
    prefer: PreferConfig = PreferConfig()
    """Fitting a model to its preferences."""


def stages(config: Configuration) -> list[Stage]:
    return [
        Stage("explore", "train"),
        Stage("label", "label", player="language_model"),
        Stage("prefer", "prefer", player=""),
    ]


def check(config: Configuration, spec: EnvSpec) -> None:
    """Exploration has its algorithm's requirements, and must record observations in words, which the language model
    reads.

    Raises:
        ValueError: one sentence.
    """
    assert_suits("bk", config, spec)
    algorithm(config.learner.algorithm).check(config, spec)
    if config.stages and "explore" not in config.stages:
        return  # the episodes exist already, and describe their own contents
    method = config.method
    assert isinstance(method, Config)
    if not method.tee:
        raise ValueError("method.tee=false keeps no episodes to ask about: method bk explores with method.tee=true")
    told_fields(spec.fields, method.label.captions, spec.id)
