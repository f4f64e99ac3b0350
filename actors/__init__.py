"""Engines that act.

RolloutActor, ActorSetup, ActorsConfig   a batch of envs and a policy copy, T-step chunks     (rollout)
ActingPolicy, sample                     a policy at work                                     (acting)
play, EvaluateConfig                     whole episodes on named seeds, with animations       (evaluate)
Collector, CollectConfig                 the same, kept step by step in a store               (collect)
NoveltyPlayer                            sub-populations of small policies, in the house      (novelty)
deploy                                   robots that a transformer drives, thousands at once  (deploy)
"""

from actors.acting import ActingPolicy, sample
from actors.collect import CollectConfig, Collector
from actors.evaluate import VALIDATION_FIRST, EvaluateConfig, Played, play
from actors.rollout import ActorsConfig, ActorSetup, RolloutActor

__all__ = [
    "VALIDATION_FIRST",
    "ActingPolicy",
    "ActorSetup",
    "ActorsConfig",
    "CollectConfig",
    "Collector",
    "EvaluateConfig",
    "Played",
    "RolloutActor",
    "play",
    "sample",
]
