"""Stages in which rollout actors play: what such stages have in common."""

from __future__ import annotations

from typing import ClassVar

from cluster.config import limits
from cluster.config.tree import Config
from cluster.roles.drawing import Role, Topology
from cluster.roles.policy_server import served
from cluster.runs.stage import Artifact, StageEngine
from learner.goals import GoalsConfig
from learner.methods import Stage


class ActingStage(StageEngine):
    """A stage whose player is the policy, unless the method names another."""

    asker: ClassVar[str] = "actor"

    @classmethod
    def takes(cls, stage: Stage) -> Artifact:
        return "weights" if stage.player == "policy" else ""

    @classmethod
    def asks(cls, config: Config, stage: Stage) -> bool:
        return super().asks(config, stage) or config.method.part(GoalsConfig).asks

    @classmethod
    def roles(cls, config: Config) -> Topology:
        actors = config.actors
        does = f"{actors.envs} envs of {config.env.id}, chunks of {actors.steps} steps"
        drawn = Topology((Role("actor", actors.n, 1, does),), (("actor", "controller", "summary and heartbeat"),))
        if served(config):
            policy = Role("policy", 1, 1, f"answers for all actors with {config.policy.lm.folder}")
            drawn += Topology((policy,), (("actor", "policy", "batches of prompts"),))
        return drawn

    @classmethod
    def memory(cls, config: Config) -> int:
        """Of the actors alone."""
        return limits.crew(config)
