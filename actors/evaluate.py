"""placeholder body follows"""

from __future__ import annotations

from envs.config import Part


class EvaluateConfig(Part):
    """Evaluation on frozen, held-out seeds."""

    episodes: int = 512
    """Episodes of the final evaluation, seeds `envs.HELD_OUT_FIRST + 0, 1, ...`."""
    greedy: bool = True
    """Take the most probable action; false samples."""
    every: int = 100_000
    """During training, evaluate after this many env steps on validation seeds (not the final ones); 0 never."""
    validation_episodes: int = 128
    """Episodes of each evaluation during training."""
    videos: int = 6
    """Episodes of the final evaluation that are recorded as animations."""
