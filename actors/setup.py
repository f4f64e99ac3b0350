"""What a rollout actor is told: how many there are, and all that one needs to build itself anew. Plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    """How many."""
    envs: int = 32
    """Envs of each actor; they are stepped together."""
    steps: int = 64
    """Steps T of a chunk."""
    ahead: int = 0
    """Chunks that an actor is asked for while it plays another, so that it never waits for the controller. Each makes
    what is learned from one to two versions older. Pays where many actors share few cores; `sync=true` takes none."""
    restarts: int = 5
    """How often one actor may be restarted within `restart_window_s` before it is quarantined."""
    restart_window_s: float = 600.0
    """Seconds over which restarts are counted."""
    backoff_s: float = 0.5
    """Wait before the first restart; doubles with each further one in the window, at most 30 s."""
    timeout_s: float = 300.0
    """A rollout that takes longer is taken for hung: the actor is killed and restarted."""


@dataclass(frozen=True)
class Guidance:
    """Who helps a policy to explore (`players.guided`)."""

    weights: Weights  # of the guide, a policy of the same shape, whichever head it has
    share: float  # of the actions that are not the policy's own best, in [0, 1]


@dataclass(frozen=True)
class ActorSetup:
    """All that an actor needs to build itself anew."""

    env_id: str
    env_options: dict[str, Any]
    spec: EnvSpec  # what the policy sees: `wrappers.seen` of the world
    actors: ActorsConfig
    policy: PolicyConfig
    seed: int
    sync: bool
    language: LanguageSetup | None = None  # where the LLM service is, if the method needs it
    wrappers: Mapping[str, Part] = field(default_factory=dict)  # what stands beside the world: `wrappers.chosen`
    guidance: Guidance | None = None  # who else chooses actions while exploring
    server: Callable[..., Any] | None = None  # `PolicyServer.answer`, if the policy's model is there
    stage: Path | None = None  # folder of the stage that it plays for, where it may write
    attempt: Attempt | None = None  # in whose name
    crew: int = 0  # crews that played before its own in the same attempt
    evaluated: Mapping[str, Any] = field(default_factory=dict)  # options in which evaluations differ: `evaluate.env`
