"""placeholder body follows"""

from __future__ import annotations

from envs.config import Part


class LearnerConfig(Part):
    """The learner group and PPO (Schulman et al. 2017)."""

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
    """Env steps per gradient step, over all ranks (with memory: rounded to whole envs of a chunk)."""
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
    """Chunks made more than this many versions ago are dropped; younger stale ones are corrected by V-trace."""
    reward_scale: float = 1.0
    """Every reward is multiplied by this before learning; reported returns are not."""
