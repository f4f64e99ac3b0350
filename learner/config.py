"""What the learners of a run are told, and what below the cluster is read of a run's whole configuration."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeVar

from pydantic import Field, field_validator

from envs.api import EnvSpec
from envs.config import Part
from learner.models.config import PolicyConfig
from llm_service.settings import LLMConfig

Own = TypeVar("Own", bound=Part)
Autocast = Literal["none", "auto", "bfloat16"]
"""float32; bfloat16 where the device has it; bfloat16, or an error."""
Device = Literal["auto", "cpu", "cuda"]
COLUMNS = ("env", "goal", "intrinsic", "shaping")
"""Columns of rewards that there may be."""


class LearnerConfig(Part):
    """The learner group: how many ranks, how long, how large the steps are, whatever the algorithm. What only one
    algorithm reads is a part of its own, under its name."""

    algorithm: str = "ppo"
    """What turns chunks into better weights, a module of `learner/algorithms`; `method=NAME` chooses it."""
    n: int = 1
    """Ranks. Chunks are dealt by rank, gradients are averaged, rank 0 saves."""
    threads: int = 1
    """Torch threads of each rank."""
    device: Device = "auto"
    """Where networks learn, and those of reward terms: cpu, cuda, or auto for a GPU if there is one for each rank. A
    small network in small minibatches may be faster on the processor. Language and sequence models have keys of their
    own; actors and evaluations of other networks compute on the processor."""
    env_steps: int = 1_000_000
    """Train until this many env steps have been learned from."""
    learning_rate: float = 3e-4
    """Adam step size at the start."""
    anneal: bool = True
    """Let the step size fall linearly to a tenth of its start over `env_steps`."""
    minibatch: int = 256
    """Env steps per gradient step, over all ranks (with memory: rounded to whole envs of a chunk; dqn: replayed). More
    than there is to draw from is refused, on the command line of PPO and in any file of dqn."""
    chunks: int = 0
    """Chunks per update; 0 means one from each actor."""
    discount: float = 0.99
    """Gamma."""
    gradient_clip: float = 0.5
    """Largest global norm of a gradient."""
    timeout_s: float = 600.0
    """An update that takes longer is taken for hung: the learner is restarted from the last checkpoint."""
    reward_scale: float = 1.0
    """Every reward is multiplied by this before learning; reported returns are not."""
    reward_weights: dict[str, float] = Field(default={})
    """What columns of rewards (`env`, `goal`, `intrinsic`, `shaping`) are multiplied by before they are summed; 1 where
    none is named. `learner.reward_weights.env=0` learns from the others only."""
    autocast: Autocast = "none"
    """Arithmetic of the networks while learning: float32, or bfloat16 (`auto`: where the device has it). On one core
    bfloat16 makes `film`, and minibatches of thousands, a quarter to a half faster, action values of pictures a
    quarter, those of texts a tenth at most, and the `mlp` in minibatches of 256 slower. Action values themselves are
    float32 always."""

    @field_validator("reward_weights")
    @classmethod
    def _of_columns(cls, weights: dict[str, float]) -> dict[str, float]:
        for name in weights:
            if name not in COLUMNS:
                known = ", ".join(COLUMNS)
                raise ValueError(f"learner.reward_weights.{name}: there is no such reward: choose from {known}")
        return weights

    def step_size(self, env_steps: int) -> float:
        """Adam's step size once `env_steps` have been learned from."""
        return self.learning_rate * (1 - 0.9 * min(1.0, env_steps / self.env_steps) if self.anneal else 1.0)


def own(options: Part | None, kind: type[Own]) -> Own:
    """The part that an algorithm has to itself, which is of this kind; its defaults where none was given."""
    assert options is None or isinstance(options, kind), f"{type(options).__name__} is another algorithm's"
    return kind() if options is None else options


class Actors(Protocol):
    """How much acts at once."""

    @property
    def n(self) -> int: ...
    @property
    def envs(self) -> int: ...
    @property
    def steps(self) -> int: ...


class Env(Protocol):
    """A world by name."""

    @property
    def id(self) -> str: ...
    @property
    def options(self) -> dict[str, Any]: ...


class Configuration(Protocol):
    """What is read of a run's whole configuration by those who do not know all of it (`cluster.config.tree.Config`)."""

    @property
    def env(self) -> Env: ...
    @property
    def method(self) -> Part: ...
    @property
    def policy(self) -> PolicyConfig: ...
    @property
    def actors(self) -> Actors: ...
    @property
    def learner(self) -> LearnerConfig: ...
    @property
    def llm(self) -> LLMConfig: ...
    @property
    def stages(self) -> list[str]: ...
    @property
    def from_(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def sync(self) -> bool: ...


def assert_suits(method: str, config: Configuration, spec: EnvSpec, **needed: object) -> None:
    """ValueError unless actions are discrete, and the keys of `policy` that `method` needs are as it needs them."""
    if not spec.discrete:
        raise ValueError(
            f"method {method} needs a discrete action space, but {spec.id} takes vectors of {spec.action_shape}"
        )
    for key, value in needed.items():
        if (found := getattr(config.policy, key)) != value:
            raise ValueError(f"method {method} needs policy.{key}={value}, got {found}")
