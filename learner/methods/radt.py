"""RADT: a decision transformer that retrieves learns in context (Schmied et al. 2024, arXiv 2410.07071).

    histories ──> stages/histories/episodes/: each training task, learned from scratch   learner/histories
    encoder       a transformer whose hidden states are keys (arm radt, if not frozen)   learner/context
    fit           the transformer of `method.arm`                                        learner/context
    trials        unseen tasks, played repeatedly with frozen weights                    actors/trials.py

For environments whose seeds name tasks (docs/hidden_goals.md). What differs from the published system:
docs/methods/radt.md.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError

from envs import registry
from envs.api import EnvSpec
from envs.config import Part
from learner.config import Configuration
from learner.context.config import (
    ARMS,
    ENCODER,
    SPLITS,
    ArmName,
    RetrieveConfig,
    SequenceConfig,
    TrialsConfig,
    options_of,
)
from learner.histories import HistoriesConfig, learner
from learner.methods import Stage, selected


class Config(Part):
    """Options of each stage."""

    name: Literal["radt"] = "radt"
    """The module of `learner/methods`."""
    arm: ArmName = "radt"
    """The arm: `radt`, a decision transformer that looks at the nearest chunk of another episode; `dt`, one that looks
    nowhere; `ad`, algorithm distillation: it gets no returns, and sees an earlier episode and the current one as one
    sequence; `dpt`, the decision-pretrained transformer: it gets only its observation, looks at another episode of the
    task, and learns the actions of the task's last episodes; `same_task` and `uniform`, decision transformers that look
    at a random chunk of the task, or of all tasks; `oracle_chunk`, an upper bound, which looks at a chunk of the task's
    best episodes, and in trials at its planner's."""
    histories: HistoriesConfig = Field(default_factory=HistoriesConfig)
    """Learners, one per task, whose every step is stored."""
    sequence: SequenceConfig = SequenceConfig()
    """The transformer, and how it is fitted; the encoder is one of the same size."""
    retrieve: RetrieveConfig = RetrieveConfig()
    """Chunks of other episodes."""
    trials: TrialsConfig = TrialsConfig()
    """Unseen tasks, played repeatedly."""


def stages(config: Configuration) -> list[Stage]:
    """An encoder is fitted only if retrieval uses it and it is not frozen."""
    method = config.method
    assert isinstance(method, Config)
    fits = ARMS[method.arm].looks == "nearest" and not method.retrieve.frozen
    encoder = [Stage(ENCODER, "context", player="")] if fits else []
    fitted = [*encoder, Stage("fit", "context", player="")]
    return [Stage("histories", "histories", player=""), *fitted, Stage("trials", "trials", player="")]


def check(config: Configuration, spec: EnvSpec) -> None:
    """The environment must have tasks, including those of the trials, and a learner that can play them if histories are
    to be recorded."""
    method = config.method
    assert isinstance(method, Config)
    if not spec.tasks or not (spec.discrete or spec.action_bounds):
        raise ValueError(
            f"method radt needs a world whose seeds name tasks, such as dark/Room-10x10, but {spec.id} has none"
        )
    if any(field.kind == "text" for field in spec.fields.values()):
        raise ValueError(f"method radt keeps no texts, but {spec.id} shows some: choose another world")
    if any(stage.kind == "histories" for stage in selected(config)):  # otherwise they come from another run
        learner(config.method.part(HistoriesConfig).learner).check(spec)
    arm, split = ARMS[method.arm], method.trials.split
    try:
        registry.spec(config.env.id, **options_of(config.env.options, split))
    except ValidationError:
        raise ValueError(
            f"method.trials.split={split} is neither {' nor '.join(SPLITS)}, nor a value of env.split in {spec.id}"
        ) from None
    except ValueError as reason:
        raise ValueError(f"method.trials.split={split}: {reason}") from None
    if method.sequence.attention == "window" and (arm.episodes > 1 or arm.alone):
        raise ValueError(
            f"method.sequence.attention=window is a window of one episode, and method.arm={method.arm} sees another "
            "part of what was lived: use attention=band"
        )
    if arm.looks == "best" and not spec.expert:
        raise ValueError(
            f"method.arm={method.arm} is shown what the world's planner does, but {spec.id} has none: "
            "choose another arm"
        )
