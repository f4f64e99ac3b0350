"""Cloning: episodes of an expert, a policy fitted to them, evaluated (Pomerleau 1991, "Efficient training of artificial
neural networks for autonomous navigation").

    collect ──> fit ──> evaluate

The loss is cross-entropy alone (`learner/fit.py`). The critic keeps its initial weights, so PPO that starts from a
clone (`method=ppo from=run:NAME/fit`) learns its values first. A store may serve many fits: `stages=[fit,evaluate]
from=run:NAME/collect`.
"""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.config import Configuration, assert_suits
from learner.goals import GoalsConfig
from learner.methods import Stage, zero_shot
from learner.parts import CollectConfig, FitConfig, GeneraliseConfig


class Config(Part):
    """Options of each stage."""

    name: Literal["cloning"] = "cloning"
    """The module of `learner/methods`."""
    collect: CollectConfig = CollectConfig()
    """Collecting episodes into a store."""
    fit: FitConfig = FitConfig()
    """Supervised learning from the store."""
    goals: GoalsConfig = GoalsConfig()
    """Goals in words that the policy gets, like a policy trained by acting."""
    generalise: GeneraliseConfig = GeneraliseConfig()
    """Testing a language policy in other words and environments."""


def stages(config: Configuration) -> list[Stage]:
    return [
        Stage("collect", "collect", config.method.part(CollectConfig).player),
        Stage("fit", "fit"),
        Stage("evaluate", "evaluate"),
    ]


def check(config: Configuration, spec: EnvSpec) -> None:
    """Cloning needs discrete actions, a policy that reacts to one observation, and a player."""
    assert_suits("cloning", config, spec, head="actor_critic", memory="none", stack=1)
    policy = config.policy
    if policy.network == "language_model" and policy.lm.head != "actions" and policy.lm.tune == "none":
        raise ValueError("policy.lm.tune=none leaves nothing to fit of actions that are spelt: use tune=lora or all")
    collects, player = not config.stages or "collect" in config.stages, config.method.part(CollectConfig).player
    if collects and player == "language_model":
        zero_shot.check(config, spec)
    if collects and player == "expert" and not spec.expert:
        raise ValueError(
            f"method.collect.player=expert needs a world with a planner, such as babyai/..., but {spec.id} has none: "
            "choose method.collect.player=policy or random"
        )
