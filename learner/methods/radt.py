"""RADT: a decision transformer that retrieves learns in context (Schmied et al. 2024, arXiv 2410.07071).

    histories ──> stages/histories/episodes/: each training task, learned from nothing   learner/histories.py
    encoder       a decision transformer, whose hidden states are keys (arm radt)        learner/context
    fit           the transformer of `method.arm`                                        learner/context
    trials        unseen tasks, played again and again by weights that stay as they are  actors/trials.py

For worlds whose seeds name tasks (docs/hidden_goals.md). What differs from the published system: docs/methods/radt.md.
"""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.config import Configuration
from learner.context.config import ARMS, ENCODER, ArmName, RetrieveConfig, SequenceConfig, TrialsConfig
from learner.histories import HistoriesConfig
from learner.methods import Stage


class Config(Part):
    """What each stage is told."""

    name: Literal["radt"] = "radt"
    """The module of `learner/methods`."""
    arm: ArmName = "radt"
    """What learns: `radt`, a decision transformer that looks at the chunk of another episode that is nearest; `dt`, one
    that looks nowhere; `ad`, algorithm distillation: it is told no returns, and sees an earlier episode and the present
    one as one sequence; `same_task` and `uniform`, decision transformers that look at any chunk of the task, or of all
    tasks, by chance."""
    histories: HistoriesConfig = HistoriesConfig()
    """Learners, one a task, whose every step is kept."""
    sequence: SequenceConfig = SequenceConfig()
    """The transformer, and how it is fitted; the encoder is one of the same size."""
    retrieve: RetrieveConfig = RetrieveConfig()
    """Chunks of other episodes."""
    trials: TrialsConfig = TrialsConfig()
    """Unseen tasks, played again and again."""


def stages(config: Configuration) -> list[Stage]:
    """An encoder is fitted only where something is retrieved by it."""
    method = config.method
    assert isinstance(method, Config)
    encoder = [Stage(ENCODER, "context", player="")] if ARMS[method.arm].looks == "nearest" else []
    fitted = [*encoder, Stage("fit", "context", player="")]
    return [Stage("histories", "histories", player=""), *fitted, Stage("trials", "trials", player="")]


def check(config: Configuration, spec: EnvSpec) -> None:
    """Tasks must be there, and a learner that can play them."""
    learner = config.method.part(HistoriesConfig).learner
    if not spec.tasks or not (spec.discrete or spec.action_bounds):
        raise ValueError(
            f"method radt needs a world whose seeds name tasks, such as dark/Room-10x10, but {spec.id} has none"
        )
    if any(field.kind == "text" for field in spec.fields.values()):
        raise ValueError(f"method radt keeps no texts, but {spec.id} shows some: choose another world")
    if learner == "q" and not spec.discrete:
        raise ValueError(
            f"method.histories.learner=q needs a table of actions, and those of {spec.id} are vectors: "
            f"use method.histories.learner={'expert' if spec.expert else 'random'}"
        )
    others = [n for n, field in spec.fields.items() if field.kind != "category" or field.shape or field.privileged]
    if learner == "q" and others:
        raise ValueError(
            f"method.histories.learner=q needs a table of states, but {others[0]} of {spec.id} is no category "
            "that stands alone and is shown to a player: use method.histories.learner=expert"
        )
    if learner == "expert" and not spec.expert:
        raise ValueError(
            f"method.histories.learner=expert needs a world with a planner, but {spec.id} has none: "
            f"use method.histories.learner={'q' if spec.discrete else 'random'}"
        )
