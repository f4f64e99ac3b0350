"""What an algorithm of the tests is built of: one rank, no reward term."""

from typing import Any

from learner.algorithms import AlgorithmSetup
from learner.optim.collective import Group
from learner.config import LearnerConfig
from learner.group import AnyPolicy
from learner.intrinsic import Intrinsic, IntrinsicConfig


def rank_of(
    config: LearnerConfig, policy: AnyPolicy, seed: int, group: Group | None = None, **more: Any
) -> AlgorithmSetup:
    return AlgorithmSetup(config, policy, group or Group(), seed, Intrinsic(IntrinsicConfig()), **more)
