"""Engines that act.

RolloutActor                             a batch of envs and a player, T-step chunks           (rollout)
ActorSetup, ActorsConfig                 an actor's configuration                             (setup)
wrappers                                 wrappers of envs: goals, history, shaping, a store   (wrappers/)
players                                  who acts: policies, language model, expert, random   (players/)
sample                                   actions from logits                                  (players/)
play, EvaluateConfig                     whole episodes on named seeds, with animations       (evaluate, animation)
Collector, CollectConfig                 the same, stored step by step                        (collect)
Historian, Histories                     learners of many tasks at once, stored the same way  (histories)
pieces_of, task_of                       imported histories, played again                      (recordings)
TrialPlayer, Trials                      unseen tasks, played repeatedly                       (trial_player, trials)
LanguageSetup                            where the language model service is                  (language)
Suggestions, Vocabulary                  what a model suggests; names of goals and events      (suggestions, vocabulary)
PolicyServer                             one language model for many actors                   (policy_server)
NoveltyEvaluator, deploy                 LGQD's: small policies and a transformer in a house  (behaviours/)

A wrapper or a player is one module of its folder, found by its name. Nothing that is imported here imports PyTorch: an
actor imports it only if its policy needs it.
"""

from actors.evaluate import VALIDATION_FIRST, EvaluateConfig, Played
from actors.players import sample
from actors.rollout import RolloutActor
from actors.setup import ActorsConfig, ActorSetup

__all__ = [
    "VALIDATION_FIRST",
    "ActorSetup",
    "ActorsConfig",
    "EvaluateConfig",
    "Played",
    "RolloutActor",
    "sample",
]
