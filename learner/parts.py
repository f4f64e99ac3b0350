"""Parts of the configuration that more than one method has, each under the name of what it tells."""

from __future__ import annotations

import math

from pydantic import Field

from envs.config import Part


def step_size(step: int, steps: int, rate: float, warmup: int, least: float = 0.0) -> float:
    """Up to `rate` in `warmup` steps, then down to `least` at `steps`, along half a cosine."""
    if step < warmup:
        return rate * (step + 1) / warmup
    fallen = 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))
    return least + (rate - least) * fallen


class GuideConfig(Part):
    """Guided exploration: a trained policy acts where the policy would act at random (`actors/players/guided.py`)."""

    policy: str = ""
    """The guide: a trained policy that stays as it is, `run:NAME/stage` or a path, of the same shape but for its head;
    empty: nobody."""
    share: float = 0.5
    """The share of the policy's random actions that the guide chooses in its stead."""


class CollectConfig(Part):
    """Collecting episodes into a store."""

    player: str = "expert"
    """Who plays: `expert`, the world's own planner; `policy`, whose weights `from` names; `random`; a `language_model`
    without training; or any further module of `actors/players`."""
    episodes: int = 1000
    """How many are played."""
    successes: bool = False
    """Keep only those that were solved."""
    greedy: bool = False
    """The policy takes its most probable action; false samples."""


class FitConfig(Part):
    """Supervised learning from a store of episodes. Of `learner`, only `n`, `threads` and `timeout_s` count here."""

    steps: int = 2000
    """Gradient steps."""
    batch: int = 256
    """Recorded env steps that a gradient step learns from, over all ranks."""
    learning_rate: float = 1e-3
    """Largest step size of AdamW."""
    warmup: int = 100
    """Gradient steps over which the step size rises from 0; then it falls to 0 along a cosine."""
    weight_decay: float = 0.0
    """Share of their size, times the step size, that matrices lose in each step; biases and other vectors do not."""
    gradient_clip: float = 1.0
    """Largest global norm of a gradient."""
    validation: float = 0.1
    """Share of episodes that are not learned from but looked at; which, a hash of their seed says."""
    every: int = 200
    """Gradient steps between two validations, and rows of metrics."""

    def step_size(self, step: int) -> float:
        """AdamW's step size for step 0, 1, ..., `steps` - 1."""
        return step_size(step, self.steps, self.learning_rate, self.warmup)


class GeneraliseConfig(Part):
    """Evaluation of a language policy in other words and worlds."""

    episodes: int = 256
    """Episodes of each case, the first of the held-out seeds."""
    cases: list[str] = Field(default=[])
    """Names of the cases, see `cluster/config/cases.py`; empty: all that the run's world has."""
    baselines: bool = True
    """Play each world at random too: a drop to chance is another thing than a harder world."""
