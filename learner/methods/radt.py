"""RADT: what a decision transformer with retrieval learns from (Schmied et al. 2024, arXiv 2410.07071).

    histories ──> stages/histories/episodes/: each training task, learned from nothing

For worlds whose seeds name tasks (docs/hidden_goals.md).
"""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.config import Configuration
from learner.histories import HistoriesConfig
from learner.methods import Stage


class Config(Part):
    """What each stage is told."""

    name: Literal["radt"] = "radt"
    """The module of `learner/methods`."""
    histories: HistoriesConfig = HistoriesConfig()
    """Learners, one a task, whose every step is kept."""


def stages(config: Configuration) -> list[Stage]:
    return [Stage("histories", "histories", player="")]


def check(config: Configuration, spec: EnvSpec) -> None:
    """Tasks must be there, and a learner that can play them."""
    learner = config.method.part(HistoriesConfig).learner
    if not spec.tasks or not spec.discrete:
        raise ValueError(
            f"method radt needs a world whose seeds name tasks, such as dark/Room-10x10, but {spec.id} has none"
        )
    if any(field.kind == "text" for field in spec.fields.values()):
        raise ValueError(f"method radt keeps no texts, but {spec.id} shows some: choose another world")
    others = [n for n, field in spec.fields.items() if field.kind != "category" or field.shape or field.privileged]
    if learner == "q" and others:
        raise ValueError(
            f"method.histories.learner=q needs a table of states, but {others[0]} of {spec.id} is no category "
            "that stands alone and is shown to a player: use method.histories.learner=expert"
        )
    if learner == "expert" and not spec.expert:
        raise ValueError(
            f"method.histories.learner=expert needs a world with a planner, but {spec.id} has none: "
            "use method.histories.learner=q"
        )
