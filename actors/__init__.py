"""Engines that act.

RolloutActor, ActorSetup, ActorsConfig   a batch of envs and a policy copy, T-step chunks     (rollout)
ActingPolicy                             a policy of PyTorch at work                          (acting)
LanguageActing, MLPActing                a language model's, and a small one's without PyTorch (..._policy)
sample                                   actions from logits                                  (sampling)
play, EvaluateConfig                     whole episodes on named seeds, with animations       (evaluate)
Collector, CollectConfig                 the same, kept step by step in a store               (collect)
NoveltyPlayer                            sub-populations of small policies, in the house      (novelty)
deploy                                   robots that a transformer drives, thousands at once  (deploy)

Nothing that is imported here imports PyTorch: an actor does when its policy needs it.
"""

from actors.evaluate import VALIDATION_FIRST, EvaluateConfig, Played, play
from actors.rollout import RolloutActor
from actors.sampling import sample
from actors.setup import ActorsConfig, ActorSetup

__all__ = [
    "VALIDATION_FIRST",
    "ActorSetup",
    "ActorsConfig",
    "EvaluateConfig",
    "Played",
    "RolloutActor",
    "play",
    "sample",
]
