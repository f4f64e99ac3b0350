"""ELLM: an agent pretrained by goals that a language model suggests, then evaluated (Du et al. 2023, arXiv 2302.06692).

    pretrain ──> evaluate

    what is seen and held ──> language model: goals ──> policy; event of a step ──> most similar goal ──> reward

| paper | here |
|---|---|
| section 3.1: open-ended and closed-form suggestions | `method.goals.source=model`, `choice`; `actors/suggestions/` |
| 3.2, 3.3: similarity, threshold, novelty, the reward | `actors/wrappers/goals.py`, `actors/suggestions/` |
| 4: DQN, double, dueling, 3 steps | `learner/algorithms/dqn`; or `learner.algorithm=ppo` |
| 5.1: baselines: novelty, oracle | `method.goals.source=actions`, `any`, `oracle`; `method.intrinsic`; `method=dqn` |
| 5.2: finetuning | `method=dqn from=run:NAME/pretrain env.task=...` |

The environment's reward does not count in pretraining (`learner.reward_weights`), but is what the evaluation reports:
in Crafter, achievements unlocked in an episode.
"""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from learner.algorithms import algorithm
from learner.config import Configuration
from learner.goals import GoalsConfig
from learner.methods import Stage, TrainingConfig
from learner.parts import GuideConfig
from learner.rewards import NONE, IntrinsicConfig


class Config(TrainingConfig):
    """Options of training by acting, and its guide; ELLM also uses `llm` and `learner`."""

    name: Literal["ellm"] = "ellm"
    """The module of `learner/methods`."""
    guide: GuideConfig = GuideConfig()
    """The guide of exploration."""


def stages(config: Configuration) -> list[Stage]:
    return [Stage("pretrain", "train"), Stage("evaluate", "evaluate")]


def check(config: Configuration, spec: EnvSpec) -> None:
    """ELLM has its algorithm's requirements, and needs a reward in addition to the environment's."""
    algorithm(config.learner.algorithm).check(config, spec)
    method = config.method
    if method.part(GoalsConfig).source == "none" and method.part(IntrinsicConfig).name == NONE:
        raise ValueError("method ellm needs goals: choose method.goals.source (model, choice, oracle, any, actions)")
