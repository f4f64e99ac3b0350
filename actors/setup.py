"""The configuration of rollout actors: their number, and everything that one needs to rebuild itself. Plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from actors.language import LanguageSetup
from envs.api import EnvSpec
from envs.config import Part
from learner.files import Attempt
from learner.models.config import PolicyConfig

if TYPE_CHECKING:
    from learner.group import Weights


class ActorsConfig(Part):
    """The rollout actors."""

    n: int = 2
    """Number of actors."""
    envs: int = 32
    """Envs per actor; they are stepped together."""
    steps: int = 64
    """Steps T per chunk."""
    group: int = Field(default=1, ge=1)
    """For `learner.ppo.advantage=grpo`, `rloo` and `gigpo`: so many neighbouring envs play equal episodes, whose
    outcomes are compared. Above 1, each chunk begins new episodes in all envs; those that it cut off are left."""
    ahead: int = 0
    """Chunks that an actor is asked for in advance, so that it never waits for the controller. Each makes training data
    one to two versions older. Useful if many actors share few cores; ignored with `sync=true`."""
    restarts: int = 5
    """How often one actor may be restarted within `restart_window_s` before it is quarantined."""
    restart_window_s: float = 600.0
    """Seconds over which restarts are counted."""
    backoff_s: float = 0.5
    """Seconds before the first restart; doubles with each further one in the window, at most 30 s."""
    timeout_s: float = 300.0
    """Seconds after which a rollout counts as hung: the actor is killed and restarted."""


@dataclass(frozen=True)
class Guidance:
    """The guide of a policy's exploration (`players.guided`)."""

    weights: Weights  # of the guide, a policy of the same shape, with any head
    share: float  # share in the actions that are not the policy's own best, in [0, 1]


@dataclass(frozen=True)
class ActorSetup:
    """Everything that an actor needs to rebuild itself."""

    env_id: str
    env_options: dict[str, Any]
    spec: EnvSpec  # what the policy observes: `wrappers.seen` of the environment
    actors: ActorsConfig
    policy: PolicyConfig
    seed: int
    sync: bool
    language: LanguageSetup | None = None  # where the LLM service is, if the method needs it
    wrappers: Mapping[str, Part] = field(default_factory=dict)  # wrappers of the environment: `wrappers.chosen`
    guidance: Guidance | None = None  # the guide while exploring
    server: Callable[..., Any] | None = None  # `PolicyServer.answer`, if the policy's model is there
    stage: Path | None = None  # folder of its stage, where it may write
    attempt: Attempt | None = None  # the attempt that writes
    crew: int = 0  # number of earlier groups of actors in the same attempt
    evaluated: Mapping[str, Any] = field(default_factory=dict)  # options in which evaluations differ: `evaluate.env`
