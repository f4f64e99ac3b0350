"""The options of a run's learners, and the view of a run's whole configuration that modules below `cluster` read."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import Field, ValidationInfo, field_validator

from envs.api import EnvSpec
from envs.config import Part
from learner.models.config import PolicyConfig
from llm_service.settings import LLMConfig

Own = TypeVar("Own", bound=Part)
Autocast = Literal["none", "auto", "bfloat16"]
"""float32; bfloat16 where the device has it; bfloat16, or an error."""
Device = Literal["auto", "cpu", "cuda"]
COLUMNS = ("env", "goal", "intrinsic", "shaping")
"""The possible reward columns."""


class LearnerConfig(Part):
    """The learner group: number of ranks, duration, step size, whatever the algorithm. Options of a single algorithm
    are a section of their own, under its name."""

    algorithm: str = "ppo"
    """The algorithm that updates the policy, a module of `learner/algorithms`; `method=NAME` selects it."""
    n: int = 1
    """Number of ranks. Chunks are distributed among ranks, gradients are averaged, rank 0 saves."""
    threads: int = 1
    """Torch threads of each rank."""
    device: Device = "auto"
    """Where networks, including those of reward terms, are trained: cpu, cuda, or auto, which uses a GPU if there is
    one for each rank. Small networks with small minibatches may be faster on the CPU. Language and sequence models have
    their own keys; actors and evaluations of other networks run on the CPU."""
    env_steps: int = 1_000_000
    """Train until this many env steps have been used."""
    learning_rate: float = 3e-4
    """Adam step size at the start."""
    anneal: bool = True
    """Let the step size fall linearly to a tenth of its start over `env_steps`."""
    minibatch: int = 256
    """Env steps per gradient step, over all ranks (with memory: rounded to whole envs of a chunk; dqn: replayed). A
    minibatch larger than the available steps is an error, on the command line of PPO and in any file of dqn."""
    chunks: int = 0
    """Chunks per update; 0 means one from each actor."""
    discount: float = 0.99
    """Gamma."""
    gradient_clip: float = 0.5
    """Largest global norm of a gradient."""
    timeout_s: float = 600.0
    """An update that takes longer counts as hung, and the learner is restarted from the last checkpoint."""
    reward_scale: float = 1.0
    """Factor of every reward before learning; reported returns are not scaled."""
    reward_weights: dict[str, float] = Field(default={})
    """Weights of the reward columns (`env`, `goal`, `intrinsic`, `shaping`) in their sum; 1 by default.
    `learner.reward_weights.env=0` learns from the others only."""
    reward_decay: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(default={})
    """Reward columns whose weight falls linearly to 0, each over this share of `env_steps`: with
    `learner.reward_decay.goal=0.5`, goals pay less and less in the first half of a training, and nothing after it."""
    autocast: Autocast = "none"
    """Arithmetic of the networks while learning: float32, or bfloat16 (`auto`: where the device has it). On one core
    bfloat16 makes `film`, and minibatches of thousands, a quarter to a half faster, action values of pictures a
    quarter, those of texts a tenth to two thirds, and the `mlp` in minibatches of 256 slower. Action values
    themselves are float32 always."""

    @field_validator("reward_weights", "reward_decay")
    @classmethod
    def _of_columns(cls, found: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        for name in found:
            if name not in COLUMNS:
                known = ", ".join(COLUMNS)
                raise ValueError(f"learner.{info.field_name}.{name}: there is no such reward: choose from {known}")
        return found

    def weights_at(self, env_steps: int) -> dict[str, float]:
        """Weights of the reward columns after `env_steps`; 1 for those that are not named."""
        done = env_steps / self.env_steps
        left = {name: max(0.0, 1 - done / share) for name, share in self.reward_decay.items()}
        return self.reward_weights | {name: self.reward_weights.get(name, 1.0) * part for name, part in left.items()}

    def step_size(self, env_steps: int) -> float:
        """Adam's step size after `env_steps`."""
        return self.learning_rate * (1 - 0.9 * min(1.0, env_steps / self.env_steps) if self.anneal else 1.0)


def own(options: Part | None, kind: type[Own]) -> Own:
    """An algorithm's own section, of this class; its defaults if none was given."""
    assert options is None or isinstance(options, kind), f"{type(options).__name__} is another algorithm's"
    return kind() if options is None else options


class Actors(Protocol):
    """The actors: how many envs act at once."""

    @property
    def n(self) -> int: ...
    @property
    def envs(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def group(self) -> int: ...


class Env(Protocol):
    """An environment by name."""

    @property
    def id(self) -> str: ...
    @property
    def options(self) -> dict[str, Any]: ...


class Configuration(Protocol):
    """The part of a run's whole configuration (`cluster.config.tree.Config`) that modules below `cluster` read."""

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
    """Raise ValueError unless actions are discrete and `policy` has the keys that `method` needs."""
    if not spec.discrete:
        raise ValueError(
            f"method {method} needs a discrete action space, but {spec.id} takes vectors of {spec.action_shape}"
        )
    for key, value in needed.items():
        if (found := getattr(config.policy, key)) != value:
            raise ValueError(f"method {method} needs policy.{key}={value}, got {found}")
