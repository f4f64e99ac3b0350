"""What every learner is told, whatever its algorithm: how many ranks, how long, how large the steps are."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from envs.config import Part
from learner.optim.precision import Autocast

COLUMNS = ("env", "goal", "intrinsic", "shaping")
"""Columns of rewards that there may be."""


class LearnerConfig(Part):
    """The learner group and PPO (Schulman et al. 2017)."""

    algorithm: str = "ppo"
    """What turns chunks into better weights, a module of `learner/algorithms`; `method=NAME` chooses it. One may have
    further keys of its own, under its name."""
    n: int = 1
    """Ranks. Chunks are dealt by rank, gradients are averaged, rank 0 saves."""
    threads: int = 1
    """Torch threads of each rank."""
    env_steps: int = 1_000_000
    """Train until this many env steps have been learned from."""
    learning_rate: float = 3e-4
    """Adam step size at the start."""
    anneal: bool = True
    """Let the step size fall linearly to a tenth of its start over `env_steps`."""
    epochs: int = 4
    """Passes over each batch of chunks."""
    minibatch: int = 256
    """Env steps per gradient step, over all ranks (with memory: rounded to whole envs of a chunk; dqn: replayed). More
    than there is to draw from is refused, on the command line of PPO and in any file of dqn."""
    chunks: int = 0
    """Chunks per update; 0 means one from each actor."""
    discount: float = 0.99
    """Gamma."""
    gae_lambda: float = 0.95
    """Lambda of GAE (Schulman et al. 2016), and of V-trace's corrected form of it."""
    clip: float = 0.2
    """Clip range of the probability ratio."""
    value_clip: float | None = 0.2
    """Clip range of the value update; none switches it off."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus."""
    gradient_clip: float = 0.5
    """Largest global norm of a gradient."""
    target_kl: float | None = None
    """Stop the epochs of an update once the approximate KL exceeds this; none never stops."""
    normalise_advantage: bool = True
    """Zero mean and unit variance over each batch (over all ranks)."""
    max_lag: int = 4
    """Chunks made more than this many versions ago are dropped; younger stale ones are corrected by V-trace. To dqn no
    chunk is too old."""
    timeout_s: float = 600.0
    """An update that takes longer is taken for hung: the learner is restarted from the last checkpoint."""
    ratio: Literal["action", "token"] = "action"
    """Language models: what the clipped ratio is of, the action or each token of its name."""
    reference_kl: float = 0.0
    """Weight of KL(policy || the policy that training began with): how dear it is to become another one."""
    critic_warmup: int = 0
    """Env steps from the start in which values alone are learned and the policy is held where it is, for policies that
    can do something before they are trained (`learner/origin.py`)."""
    normalise_value: bool = False
    """Learn values in units of their own mean and deviation (`learner/value_scale.py`)."""
    reward_scale: float = 1.0
    """Every reward is multiplied by this before learning; reported returns are not."""
    reward_weights: dict[str, float] = Field(default={})
    """What columns of rewards (`env`, `goal`, `intrinsic`) are multiplied by before they are summed; 1 where none is
    named. `learner.reward_weights.env=0` learns from the others only."""
    autocast: Autocast = "none"
    """Arithmetic of the networks while learning: float32, or bfloat16 (`auto`: where the processor has it). On one core
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
