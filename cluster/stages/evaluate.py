"""The engine of an evaluate stage: one player on held-out seeds, others beside it on the same, a table and videos.

seeds ──> batches ──> idle actors ──> stages/<stage>/results.json, videos/
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

import envs
from cluster.config import limits
from cluster.config.tree import Config
from cluster.runs.stage import Outcome
from cluster.stages._shared.acting import ActingStage
from cluster.stages._shared.evaluation import Evaluation, judged, lines, play_all, sample_efficiency, write_recordings


class Engine(ActingStage):
    """How good a player is."""

    again: ClassVar[bool] = True

    def run(self) -> Outcome | None:
        config, stage, setup = self.config, self.stage, self.given.actor_setup()
        weights = self.given.weights(stage)
        seeds = envs.HELD_OUT_FIRST + np.arange(config.evaluate.episodes)
        greedy, videos = config.evaluate.greedy, min(config.evaluate.videos, config.evaluate.episodes)
        evaluation = Evaluation(None, 0, 0, seeds, greedy, stage.player, videos)
        plain = replace(setup, wrappers={})  # no goals, so that nobody is asked for any
        beside = [Evaluation(None, 0, 0, seeds, greedy, who, elsewhere=plain) for who in config.evaluate.beside]
        if not play_all(self.given, setup, weights, [evaluation, *beside]):
            return None
        table = judged(config, setup.spec, stage.player, evaluation, beside)
        if self.given.language:
            table["language_model"] = self.given.language.numbers()
        if stage.player == "policy":
            efficiency = sample_efficiency(self.folder.path, config.learner.env_steps)
            if efficiency is not None:
                table["sample_efficiency"] = efficiency
        table["videos"] = write_recordings(self.folder, stage.name, evaluation)
        self.folder.write_json(self.place / "results.json", table)
        return Outcome({"episodes": len(evaluation.episodes)}, weights, lines=tuple(lines(stage.name, table)))

    @classmethod
    def memory(cls, config: Config) -> int:
        evaluate = config.evaluate
        return super().memory(config) + limits.EPISODE * evaluate.episodes * (1 + len(evaluate.beside))
