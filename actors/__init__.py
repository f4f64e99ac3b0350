"""Engines that act.

RolloutActor, ActorSetup, ActorsConfig   a batch of envs and a policy copy, T-step chunks     (rollout)
ActingPolicy, sample                     a policy at work                                     (acting)
play, EvaluateConfig                     whole episodes on named seeds, with animations       (evaluate)
"""

from actors.acting import ActingPolicy, sample
from actors.evaluate import VALIDATION_FIRST, EvaluateConfig, Played, play
from actors.rollout import ActorsConfig, ActorSetup, RolloutActor

__all__ = [
    "VALIDATION_FIRST",
    "ActingPolicy",
    "ActorSetup",
    "ActorsConfig",
    "EvaluateConfig",
    "Played",
    "RolloutActor",
    "play",
    "sample",
]
