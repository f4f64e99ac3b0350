"""What an algorithm of the tests is built of: one rank, no reward term; and PPO of it."""

from typing import Any

from learner.algorithms import AlgorithmSetup
from learner.algorithms.ppo import PPO, PPOConfig
from learner.config import LearnerConfig
from learner.intrinsic import Intrinsic
from learner.models.language.llm_policy import AnyPolicy
from learner.optim.collective import Group
from learner.rewards import IntrinsicConfig


def rank_of(
    config: LearnerConfig, policy: AnyPolicy, seed: int, group: Group | None = None, **more: Any
) -> AlgorithmSetup:
    return AlgorithmSetup(config, policy, group or Group(), seed, Intrinsic(IntrinsicConfig()), **more)


def ppo_of(policy: AnyPolicy, seed: int, group: Group | None = None, **options: Any) -> PPO:
    """options: of `learner` and of `learner.ppo`."""
    own = {name: options.pop(name) for name in list(options) if name in PPOConfig.model_fields}
    return PPO(rank_of(LearnerConfig(**options), policy, seed, group, options=PPOConfig(**own)))
