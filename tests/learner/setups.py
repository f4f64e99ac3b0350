"""What an algorithm of the tests is built of: one rank, no reward term."""

from typing import Any

from learner.algorithms import AlgorithmSetup
from learner.config import LearnerConfig
from learner.group import AnyPolicy
from learner.intrinsic import Intrinsic, IntrinsicConfig
from learner.optim.collective import Group


def rank_of(
    config: LearnerConfig, policy: AnyPolicy, seed: int, group: Group | None = None, **more: Any
) -> AlgorithmSetup:
    return AlgorithmSetup(config, policy, group or Group(), seed, Intrinsic(IntrinsicConfig()), **more)
