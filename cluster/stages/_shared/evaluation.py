"""An evaluation as a queue of seed batches that any idle actor may take; a lost batch goes back to the queue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors import ActorSetup, Played
from cluster.config.tree import Config
from cluster.metrics.statistics import bootstrap_mean, mean_over, wilson
from cluster.roles.policy_server import ServedPolicy, served
from cluster.roles.supervisor import Crew
from cluster.runs.folder import RunFolder
from cluster.runs.run_data import load, series
from cluster.runs.stage import Run
from cluster.stages._shared.tally import Counts, add, shares, table
from envs.api import EnvSpec, Episodes
from learner.group import Weights

BATCH = 64  # episodes that one actor plays together


@dataclass
class Batch:
    """Seeds for one actor."""

    evaluation: Evaluation
    order: int
    seeds: NDArray[np.int64]
    record: int


@dataclass
class Evaluation:
    """One evaluation under way.

    weights: a ticket part or a value, handed to the actors as it is.
    elsewhere: another world, other prompts, or nothing beside the world; None plays as the actors do.
    """

    weights: Any
    version: int
    env_steps: int
    seeds: NDArray[np.int64]
    greedy: bool
    player: str = "policy"
    record: int = 0
    elsewhere: ActorSetup | None = None
    waiting: list[Batch] = field(default_factory=list)
    played: dict[int, Played] = field(default_factory=dict)

    def __post_init__(self) -> None:
        batches = np.array_split(self.seeds, max(1, -(-len(self.seeds) // BATCH)))
        left = self.record
        for order, seeds in enumerate(batches):
            self.waiting.append(Batch(self, order, seeds, min(left, len(seeds))))
            left -= self.waiting[-1].record
        self.batches = len(batches)

    def give(self, crew: Crew, actor: int) -> bool:
        """Let an idle actor play the next batch; False if none waits."""
        if not self.waiting:
            return False
        batch = self.waiting.pop(0)
        how = (batch.seeds, self.player, self.greedy, batch.record, self.elsewhere)
        crew.give(actor, batch, "evaluate", self.weights, self.version, *how)
        return True

    def take(self, batch: Batch, played: Played | None) -> None:
        """Keep what was played, or queue the batch again if its actor died."""
        if played is None:
            self.waiting.insert(0, batch)
        else:
            self.played[batch.order] = played

    @property
    def done(self) -> bool:
        return len(self.played) == self.batches

    @property
    def episodes(self) -> Episodes:
        return Episodes.concatenate([part.episodes for part in self.parts])

    def above(self, other: Evaluation, spec: EnvSpec) -> dict[str, float]:
        """How much better it was than `other` on the same episodes, in the score or in success, and the interval."""
        ours, theirs = (e.episodes.total if spec.score else e.episodes.success for e in (self, other))
        return mean(ours.astype(np.float64) - theirs.astype(np.float64))

    def row(self) -> dict[str, Any]:
        """What it found, as a row of metrics."""
        rate, total = success(self.episodes.success), mean(self.episodes.total)
        found = {"kind": "evaluate", "env_steps": self.env_steps, "version": self.version, "episodes": rate["n"]}
        found |= {"success_rate": rate["rate"], "success_low": rate["low"], "success_high": rate["high"]}
        return found | {"episodic_return": total["mean"], "return_low": total["low"], "return_high": total["high"]}

    @property
    def goals(self) -> Counts:
        """What became of the goals; empty without any."""
        total: Counts = {}
        for played in self.played.values():
            add(total, played.report.get("goals", {}))
        return total

    @property
    def reached(self) -> NDArray[np.float32]:
        """Reward for goals, [episodes]; 0 without any."""
        return np.concatenate([part.reached for part in self.parts])

    @property
    def parts(self) -> list[Played]:
        """What was played, in the order of the seeds."""
        return [self.played[i] for i in sorted(self.played)]


def play_all(run: Run, setup: ActorSetup, weights: Weights | None, evaluations: Sequence[Evaluation]) -> bool:
    """Start actors, let them play evaluations to their end, and end them. False if the run was asked to stop before.

    weights: the policy's, if it plays.
    """
    config, server = run.config, None
    if weights is not None and served(config):
        server = ServedPolicy(run.backend, config, setup.spec)
        server.publish(0, weights)
        setup, weights = replace(setup, server=server.call), None
    for evaluation in evaluations:
        evaluation.weights = weights
    timeout = config.cluster.start_timeout_s
    crew = Crew(run.backend, config.actors, setup, {}, timeout, lambda actor, cause: run.progress.note(cause))
    while not all(evaluation.done for evaluation in evaluations):
        if run.stop.reason:
            return False
        run.look_after()
        for actor in crew.idle():
            any(evaluation.give(crew, actor) for evaluation in evaluations)
        for _, job, _, played in crew.collect([], timeout=0.5)[0]:
            job.evaluation.take(job, played)
    crew.kill()
    if server:
        server.kill()
    return True


def write_recordings(folder: RunFolder, stage: str, evaluation: Evaluation) -> list[dict[str, Any]]:
    """Write what was recorded into a run folder: animations, and why a language model acted. Returns the animations."""
    videos = []
    for i, recording in enumerate(r for part in evaluation.parts for r in part.recordings):
        name = f"videos/{stage}-{i}.gif"
        folder.write(folder.path / name, recording.gif)
        about = {"file": name, "mission": recording.mission, "success": recording.success, "return": recording.total}
        videos.append(about | {"length": recording.length, "seed": recording.seed})
    if steps := [step for part in evaluation.parts for trajectory in part.trajectories for step in trajectory]:
        lines = "".join(json.dumps(step, ensure_ascii=False) + "\n" for step in steps)
        folder.write(folder.stage(stage) / "trajectories.jsonl", lines)
    return videos


def judged(
    config: Config, spec: EnvSpec, player: str, evaluation: Evaluation, beside: Sequence[Evaluation]
) -> dict[str, Any]:
    """A finished evaluation as its results file has it, with what others did in the same episodes."""
    about = {"env": config.env.id, "greedy": config.evaluate.greedy, "player": player, "score": spec.score}
    table = results(evaluation.episodes, spec.task_kinds)
    kinds = spec.task_kinds
    others = {e.player: results(e.episodes, kinds) | {"difference": evaluation.above(e, spec)} for e in beside}
    reached = {"goals": goal_results(evaluation)} if evaluation.goals else {}
    return about | table | {"beside": others} | reached


def lines(stage: str, table: dict[str, Any]) -> Iterator[str]:
    """What a finished evaluation prints."""
    score = table["score"]
    yield f"{stage}: {spoken(table, score)} on {table['episodes']} held-out episodes of {table['env']}"
    for player, other in table["beside"].items():
        yield f"{player}: {spoken(other, score)} on the same episodes"
    if len(table["by_kind"]) > 1:
        parts = (f"{kind} {part['rate']:.1%} of {part['n']}" for kind, part in table["by_kind"].items())
        yield f"{stage}: {', '.join(parts)}"


def success(solved: NDArray[np.bool_]) -> dict[str, Any]:
    """Success rate of episodes with its 95 % Wilson interval."""
    n, count = len(solved), int(solved.sum())
    low, high = wilson(count, n)
    return {"n": n, "rate": count / max(n, 1), "low": low, "high": high}


def mean(values: NDArray[np.floating]) -> dict[str, float]:
    """Mean over episodes with its 95 % bootstrap interval."""
    low, high = bootstrap_mean(values)
    return {"mean": float(values.mean()), "low": low, "high": high}


def goal_results(evaluation: Evaluation) -> dict[str, Any]:
    """What became of the goals in an evaluation: reward for them, shares, and a row each."""
    counts = evaluation.goals
    return {"reward": mean(evaluation.reached), "shares": shares(counts), "table": table(counts)}


def spoken(table: dict[str, Any], score: str) -> str:
    """What an evaluation found, in a few words, of a table of `results`."""
    rate, total = table["success"], table["return"]
    if score:
        return f"{total['mean']:.2f} {score} an episode [{total['low']:.2f}, {total['high']:.2f}]"
    return f"success {rate['rate']:.1%} [{rate['low']:.1%}, {rate['high']:.1%}]"


def results(episodes: Episodes, kinds: tuple[str, ...]) -> dict[str, Any]:
    """The table of an evaluation: success, return and length, and success by task kind."""
    rows = {kind: episodes.success[episodes.kind == i] for i, kind in enumerate(kinds)}
    return {
        "episodes": len(episodes),
        "seeds": [int(episodes.seed.min()), int(episodes.seed.max())],
        "success": success(episodes.success),
        "return": mean(episodes.total),
        "length": {"mean": float(episodes.length.mean())},
        "by_kind": {kind: success(solved) for kind, solved in rows.items() if len(solved)},
    }


def sample_efficiency(folder: Path, budget: int) -> float | None:
    """Mean success over training, in [0, 1], from the evaluations in it; None where there are none.

    budget: env steps, over which the mean is taken.
    """
    steps, rates = series(load(folder).evaluations, "success_rate")
    return mean_over(steps, rates, budget) if len(steps) else None
