"""The engine of an evaluate stage: one player on held-out seeds, baselines on the same seeds, a table and videos.

seeds ──> batches ──> idle actors ──> stages/<stage>/results.json, videos/
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import envs
from cluster.config import limits
from cluster.config.tree import Config
from cluster.metrics.statistics import mean_over
from cluster.runs.folder import RunFolder
from cluster.runs.run_data import load, series
from cluster.runs.stage import Outcome
from cluster.stages._shared import tally
from cluster.stages._shared.evaluation import ActingStage, Evaluation, mean, play_all, results


class Engine(ActingStage):
    """Evaluates a player."""

    again: ClassVar[bool] = True

    def run(self) -> Outcome | None:
        config, stage, setup = self.config, self.stage, self.given.actor_setup(self.stage)
        weights = self.given.weights(stage)
        seeds = envs.HELD_OUT_FIRST + np.arange(config.evaluate.episodes)
        greedy, videos = config.evaluate.greedy, min(config.evaluate.videos, config.evaluate.episodes)
        evaluation = Evaluation(None, 0, 0, seeds, greedy, stage.player, videos)
        plain = replace(setup, wrappers={})  # no goals, so that no language model is asked for any
        beside = [Evaluation(None, 0, 0, seeds, greedy, who, elsewhere=plain) for who in config.evaluate.beside]
        if not play_all(self.given, setup, weights, [evaluation, *beside]):
            return None
        found = judged(config, evaluation, beside)
        if self.given.language:
            found["language_model"] = self.given.language.numbers()
        budget = config.learner.env_steps
        if stage.player == "policy" and (share := sample_efficiency(self.folder.path, budget)) is not None:
            found["sample_efficiency"] = share
        found["videos"] = write_recordings(self.folder, stage.name, evaluation)
        self.folder.write_json(self.place / "results.json", found)
        return Outcome({"episodes": len(evaluation.episodes)}, weights, lines=tuple(lines(stage.name, found)))

    @classmethod
    def memory(cls, config: Config) -> int:
        evaluate = config.evaluate
        return super().memory(config) + limits.EPISODE * evaluate.episodes * (1 + len(evaluate.beside))


def judged(config: Config, evaluation: Evaluation, beside: Sequence[Evaluation]) -> dict[str, Any]:
    """A finished evaluation for the results file, with baselines on the same episodes."""
    spec = config.spec
    about = {"env": config.env.id, "greedy": config.evaluate.greedy, "player": evaluation.player, "score": spec.score}
    found = results(evaluation.episodes, spec)
    others = {e.player: results(e.episodes, spec) | {"difference": evaluation.above(e, spec)} for e in beside}
    found["beside"] = others
    if counts := evaluation.goals:
        found["goals"] = {
            "reward": mean(evaluation.reached),
            "shares": tally.shares(counts),
            "table": tally.table(counts),
        }
    return about | found


def lines(stage: str, found: dict[str, Any]) -> Iterator[str]:
    """Lines that a finished evaluation prints."""
    score = found["score"]
    yield f"{stage}: {spoken(found, score)} on {found['episodes']} held-out episodes of {found['env']}"
    for player, other in found["beside"].items():
        yield f"{player}: {spoken(other, score)} on the same episodes"
    if len(found["by_kind"]) > 1:
        parts = (f"{kind} {part['rate']:.1%} of {part['n']}" for kind, part in found["by_kind"].items())
        yield f"{stage}: {', '.join(parts)}"


def spoken(found: dict[str, Any], score: str) -> str:
    """The result of an evaluation in a few words, from a table of `results`."""
    rate, total = found["success"], found["return"]
    if score:
        return f"{total['mean']:.2f} {score} an episode [{total['low']:.2f}, {total['high']:.2f}]"
    return f"success {rate['rate']:.1%} [{rate['low']:.1%}, {rate['high']:.1%}]"


def write_recordings(folder: RunFolder, stage: str, evaluation: Evaluation) -> list[dict[str, Any]]:
    """Write recordings into a run folder: animations, the run's potential along each, and a language model's reasons.
    Returns the animations."""
    videos = []
    for i, recording in enumerate(r for part in evaluation.parts for r in part.recordings):
        name = f"videos/{stage}-{i}.gif"
        folder.write(folder.path / name, recording.gif)
        about: dict[str, Any] = {
            "file": name,
            "mission": recording.mission,
            "success": recording.success,
            "return": recording.total,
        }
        about |= {"length": recording.length, "seed": recording.seed}
        if recording.trace:
            about["trace"] = f"videos/{stage}-{i}.json"
            columns = {key: column.tolist() for key, column in vars(recording.trace).items()}
            folder.write(folder.path / about["trace"], json.dumps(columns))
        videos.append(about)
    if steps := [step for part in evaluation.parts for trajectory in part.trajectories for step in trajectory]:
        lines = "".join(json.dumps(step, ensure_ascii=False) + "\n" for step in steps)
        folder.write(folder.stage(stage) / "trajectories.jsonl", lines)
    return videos


def sample_efficiency(folder: Path, budget: int) -> float | None:
    """Mean success over training, in [0, 1], from its evaluations; None without any.

    budget: env steps, over which the mean is taken.
    """
    steps, rates = series(load(folder).evaluations, "success_rate")
    return mean_over(steps, rates, budget) if len(steps) else None
