"""Rewards for what is new, as baselines for goals in words.

IntrinsicConfig, check_intrinsic    which reward, and whether it can be had            (config)
Intrinsic                           what PPO and DQN call: mark, pay, judge, learn     (bonus)
of_walk, of_chunks                  steps to be judged, of a replay or of chunks       (steps)
Visits                              what an episode has shown already                  (visits)
Reader, Moments                     observations as numbers, their running statistics  (reading, moments)
RND, APT                            random network distillation and NovelD; neighbours (rnd, apt)
"""

from learner.intrinsic.bonus import Intrinsic
from learner.intrinsic.config import COLUMN, IntrinsicConfig, check_intrinsic
from learner.intrinsic.steps import of_walk

__all__ = ["COLUMN", "Intrinsic", "IntrinsicConfig", "check_intrinsic", "of_walk"]
