"""Stages in which actors play, and an evaluation as a queue of seed batches that any idle actor can take.

A lost batch goes back to the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from actors import ActorSetup, Played
from cluster.config import limits
from cluster.config.tree import Config
from cluster.metrics.statistics import bootstrap_mean, wilson
from cluster.roles.drawing import Role, Topology
from cluster.roles.policy_server import ServedPolicy, served
from cluster.roles.supervisor import Crew
from cluster.runs.stage import Artifact, Run, StageEngine
from cluster.stages._shared.achievements import Achieved
from cluster.stages._shared.tally import Counts, add
from envs.api import EnvSpec, Episodes
from learner.goals import GoalsConfig
from learner.group import Weights
from learner.methods import Stage
from learner.models.config import LANGUAGE_MODEL

BATCH = 64  # episodes that one actor plays at once


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
        copied = "policy.lm.device" if config.policy.network == LANGUAGE_MODEL and not served(config) else ""
        actor = Role("actor", actors.n, 1, does, copied)
        drawn = Topology((actor,), (("actor", "controller", "summary and heartbeat"),))
        if served(config):
            policy = Role("policy", 1, 1, f"answers for all actors with {config.policy.lm.folder}", "policy.lm.device")
            drawn += Topology((policy,), (("actor", "policy", "batches of prompts"),))
        return drawn

    @classmethod
    def memory(cls, config: Config) -> int:
        """Memory of the actors alone."""
        return limits.crew(config)


@dataclass
class Batch:
    """Seeds for one actor."""

    evaluation: Evaluation
    order: int
    seeds: NDArray[np.int64]
    record: int


@dataclass
class Evaluation:
    """One evaluation in progress.

    weights: a ticket part or a value, passed to the actors unchanged.
    elsewhere: another environment, other prompts, or no wrappers; None: as the actors play.
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
        """Let an idle actor play the next batch; False if there is none."""
        if not self.waiting:
            return False
        batch = self.waiting.pop(0)
        how = (batch.seeds, self.player, self.greedy, batch.record, self.elsewhere)
        crew.give(actor, batch, "evaluate", self.weights, self.version, *how)
        return True

    def take(self, batch: Batch, played: Played | None) -> None:
        """Keep the results, or queue the batch again if its actor died."""
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

    def row(self, spec: EnvSpec) -> dict[str, Any]:
        """The results, as a row of metrics."""
        rate, total = success(self.episodes.success), mean(self.episodes.total)
        found = {"kind": "evaluate", "env_steps": self.env_steps, "version": self.version, "episodes": rate["n"]}
        found |= {"success_rate": rate["rate"], "success_low": rate["low"], "success_high": rate["high"]}
        found |= {"episodic_return": total["mean"], "return_low": total["low"], "return_high": total["high"]}
        return found | Achieved.of(self.episodes).row(spec)

    @property
    def goals(self) -> Counts:
        """Statistics of goals; empty without any."""
        total: Counts = {}
        for played in self.played.values():
            add(total, played.report.get("goals", {}))
        return total

    @property
    def reached(self) -> NDArray[np.float32]:
        """Goal rewards, [episodes]; 0 without goals."""
        return np.concatenate([part.reached for part in self.parts])

    @property
    def parts(self) -> list[Played]:
        """The episodes, in the order of the seeds."""
        return [self.played[i] for i in sorted(self.played)]


def play_all(run: Run, setup: ActorSetup, weights: Weights | None, evaluations: Sequence[Evaluation]) -> bool:
    """Start actors, let them play evaluations to the end, and stop them. False if the run was asked to stop first.

    weights: the policy's weights, if it plays.
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


def success(solved: NDArray[np.bool_]) -> dict[str, Any]:
    """Success rate of episodes with its 95 % Wilson interval."""
    n, count = len(solved), int(solved.sum())
    low, high = wilson(count, n)
    return {"n": n, "rate": count / max(n, 1), "low": low, "high": high}


def mean(values: NDArray[np.floating]) -> dict[str, float]:
    """Mean over episodes with its 95 % bootstrap interval."""
    low, high = bootstrap_mean(values)
    return {"mean": float(values.mean(dtype=np.float64)), "low": low, "high": high}


def results(episodes: Episodes, spec: EnvSpec) -> dict[str, Any]:
    """The table of an evaluation: success, return and length, success by task kind, and achievements, if counted."""
    rows = {kind: episodes.success[episodes.kind == i] for i, kind in enumerate(spec.task_kinds)}
    return {
        "episodes": len(episodes),
        "seeds": [int(episodes.seed.min()), int(episodes.seed.max())],
        "success": success(episodes.success),
        "return": mean(episodes.total),
        "length": {"mean": float(episodes.length.mean())},
        "by_kind": {kind: success(solved) for kind, solved in rows.items() if len(solved)},
    } | Achieved.of(episodes).table(spec)
