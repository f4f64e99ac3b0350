"""Sections of the configuration that several methods share."""

from __future__ import annotations

import math

from pydantic import Field

from envs.config import Part


def step_size(step: int, steps: int, rate: float, warmup: int, least: float = 0.0) -> float:
    """A step size that rises to `rate` in `warmup` steps, then falls to `least` at `steps`, along half a cosine."""
    if step < warmup:
        return rate * (step + 1) / warmup
    fallen = 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))
    return least + (rate - least) * fallen


class GuideConfig(Part):
    """Guided exploration: a trained policy acts where the policy would act at random (`actors/players/guided.py`)."""

    policy: str = ""
    """The guide: a frozen trained policy, `run:NAME/stage` or a path, of the same shape except for its head; empty:
    none."""
    share: float = 0.5
    """Share of the policy's random actions that the guide chooses instead."""


class CollectConfig(Part):
    """Collecting episodes into a store."""

    player: str = "expert"
    """The player: `expert`, the environment's own planner; `policy`, with the weights that `from` names; `random`; an
    untrained `language_model`; or any other module of `actors/players`."""
    episodes: int = 1000
    """Number of episodes to play."""
    successes: bool = False
    """Keep only successful episodes."""
    greedy: bool = False
    """The policy takes its most probable action; false samples."""


class FitConfig(Part):
    """Supervised learning from a store of episodes. Of `learner`, only `n`, `threads` and `timeout_s` count here."""

    steps: int = 2000
    """Gradient steps."""
    batch: int = 256
    """Recorded env steps per gradient step, over all ranks."""
    learning_rate: float = 1e-3
    """Largest step size of AdamW."""
    warmup: int = 100
    """Gradient steps over which the step size rises from 0; then it falls to 0 along a cosine."""
    weight_decay: float = 0.0
    """Weight decay of matrices, times the step size; biases and other vectors have none."""
    gradient_clip: float = 1.0
    """Largest global norm of a gradient."""
    validation: float = 0.1
    """Share of episodes for validation; a hash of their seed selects them."""
    every: int = 200
    """Gradient steps between two validations, and between two rows of metrics."""

    def step_size(self, step: int) -> float:
        """AdamW's step size for step 0, 1, ..., `steps` - 1."""
        return step_size(step, self.steps, self.learning_rate, self.warmup)


class GeneraliseConfig(Part):
    """Evaluation of a language policy in other words and worlds."""

    episodes: int = 256
    """Episodes per case, on the first held-out seeds."""
    cases: list[str] = Field(default=[])
    """Names of the cases, see `cluster/config/cases.py`; empty: all cases of the run's environment."""
    baselines: bool = True
    """Also play each environment at random: this tells a drop to chance from a harder environment."""
