"""ELLM: an agent pretrained by goals that a language model suggests, then evaluated (Du et al. 2023, arXiv 2302.06692).

    pretrain ──> evaluate

    what is seen and held ──> language model: goals ──> policy; what is done ──> likeliest goal ──> reward

| paper | here |
|---|---|
| section 3.1: open-ended and closed-form suggestions | `goals.source=model`, `choice`; `actors/suggestions.py` |
| 3.2, 3.3: similarity, threshold, novelty, the reward | `goals`; `actors/wrappers/goals.py`, `actors/vocabulary.py` |
| 4: DQN, double, dueling, 3 steps | `learner/algorithms/dqn`; or `learner.algorithm=ppo` |
| 5.1: novelty baselines; oracle; env reward | `goals.source=actions`, `oracle`; `intrinsic.name`; `method=dqn` |
| 5.2: finetuning | `method=dqn from=run:NAME/pretrain env.task=...` |

The environment's reward does not count in pretraining (`learner.reward_weights`), but is what the evaluation reports:
in Crafter, achievements unlocked in an episode.
"""

from __future__ import annotations

from typing import Any, Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.algorithms import algorithm
from learner.methods import Stage


class Config(Part):
    """ELLM has no fields of its own: `goals`, `llm`, `learner`, `dqn` and `intrinsic` are its."""

    name: Literal["ellm"] = "ellm"
    """The module of `learner/methods`."""


def stages(config: Any) -> list[Stage]:
    return [Stage("pretrain", "train"), Stage("evaluate", "evaluate")]


def check(config: Any, spec: EnvSpec) -> None:
    """ELLM needs what its algorithm needs, and something beside the world's reward to learn from."""
    algorithm(config.learner.algorithm).check(config, spec)
    if config.goals.source == "none" and config.intrinsic.name == "none":
        raise ValueError("method ellm needs goals: choose goals.source (model, choice, oracle, actions)")
