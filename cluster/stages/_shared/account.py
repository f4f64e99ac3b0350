"""Counters of a training, and where they are shown and saved: rows of metrics, the panel, status.json, checkpoints.

Values that dashboards and alerts need between two rows go to `Metrics.show`. These are points in time rather than ages,
so an age keeps growing if the controller hangs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cluster.roles.learners import LearnerGroup, Ready
from cluster.roles.supervisor import Crew
from cluster.runs.progress import Pace
from cluster.runs.stage import Run
from cluster.stages._shared.achievements import Achieved
from cluster.stages._shared.evaluation import Evaluation
from cluster.stages._shared.tally import Tally, add
from learner.algorithms import algorithm
from learner.checkpoint import Arrays, Checkpoint, spacing

STATUS_S = 2.0  # seconds between two writes of status.json


@dataclass
class Counters:
    """All counters, as saved in a checkpoint."""

    version: int = 0
    env_steps: int = 0
    episodes: int = 0
    chunks: int = 0
    dropped_chunks: int = 0
    restarts: int = 0
    learner_restarts: int = 0
    resumes: int = 0
    wall_seconds: float = 0.0
    next_evaluation: int = 0


class Account:
    """The books of one training.

    counters: as of the last update. states: of every actor after its last learned chunk.
    tally: data since the last row. row: values that the panel shows.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.config, self.folder, self.metrics = run, run.config, run.folder, run.metrics
        self.counters = Counters(next_evaluation=run.config.evaluate.every)
        self.states: dict[int, dict[str, Any]] = {}
        self.tally = Tally()
        self.row: dict[str, Any] = {}
        self._restarts_before = 0  # restarts of actors before the current group of actors
        self._status_at = self._save_s = self._written_s = 0.0
        self._updated = self._saved = time.time()  # until the first of each, the start time is used

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue counting from a checkpoint."""
        self.counters = Counters(**checkpoint.record["counters"])
        self.tally.recent.extend(tuple(row) for row in checkpoint.record["recent"])
        self.tally.goals.update(checkpoint.record["goals"])
        self.tally.achieved = Achieved(**checkpoint.record.get("achieved", {}))  # older ones had none
        for name, value in checkpoint.arrays["actors"].items():
            actor, _, key = name.partition("/")
            self.states.setdefault(int(actor), {})[key] = value

    def go_back(self, checkpoint: Checkpoint | None, crew: Crew) -> None:
        """Drop counts made after a checkpoint, except deaths, and count one more death of the learner."""
        lost = replace(self.counters, restarts=self.restarts(crew))
        self.counters = Counters(next_evaluation=self.config.evaluate.every)
        self.states, self.tally = {}, Tally()
        if checkpoint is not None:
            self.restore(checkpoint)
        self.metrics.rewind(self.counters.version)
        self.counters.learner_restarts = lost.learner_restarts + 1
        self.counters.restarts, self.counters.resumes = lost.restarts, lost.resumes

    def begin(self, saved: bool, new_crew: bool) -> None:
        """The loop begins. `saved`: from a checkpoint; otherwise the first one is saved after the first update."""
        if new_crew:
            self._restarts_before = self.counters.restarts
        self._clock, self._wall_before = time.monotonic(), self.counters.wall_seconds
        self._saved_at = time.monotonic() if saved else -math.inf
        self.tally.begin(self.counters.env_steps)
        self.pace = Pace(self.config.learner.env_steps)

    def restarts(self, crew: Crew) -> int:
        """Restarts of actors since the run began."""
        return self._restarts_before + crew.restarts

    def acted(self, seconds: dict[str, float]) -> None:
        """A chunk arrived that took this long."""
        self.tally.busy["env"] += seconds["rollout"] - seconds["policy"]
        self.tally.busy["policy"] += seconds["policy"]

    def learned(self, chunks: Sequence[Ready], report: dict[str, Any], crew: Crew) -> int:
        """An update on these chunks has ended; `report` keeps the row's values. Returns the env steps learned from."""
        counters = self.counters
        for ready in chunks:
            self.states[ready.summary.actor] = ready.summary.state
            counters.episodes += len(ready.summary.episodes)
            self.tally.add(ready.summary.episodes)
            self.tally.count(ready.summary.report)
            add(self.tally.goals, ready.summary.report.get("goals", {}))
        counters.chunks += len(chunks)
        counters.dropped_chunks += report.pop("dropped")
        learned: int = report.pop("learned")
        self.tally.busy["learner"] += report.pop("seconds")
        if learned:
            counters.version += 1
            counters.env_steps += learned
            counters.restarts = self.restarts(crew)
        return learned

    def evaluation_is_due(self) -> bool:
        """Whether it is time for the next evaluation; called once per update."""
        counters, every = self.counters, self.config.evaluate.every
        if not every or counters.env_steps < counters.next_evaluation:
            return False
        counters.next_evaluation += every * (1 + (counters.env_steps - counters.next_evaluation) // every)
        return True

    def write_row(self, report: dict[str, Any], crew: Crew) -> None:
        """A row of metrics about the last update."""
        counters, actors = self.counters, self.config.actors.n
        counters.wall_seconds = self._wall_before + time.monotonic() - self._clock
        row: dict[str, Any] = {"kind": "train"} | asdict(counters)
        row |= {"actors": actors, "actors_alive": crew.alive} | self.tally.episodes(self.run.config.spec)
        row |= report | self.tally.speed(counters.env_steps, actors) | self.run.asked()
        self.metrics.write(row)
        self._updated = time.time()
        self.pace.reached(counters.env_steps, warm=row.get("replay/updates") != 0)  # not while a replay fills
        self.row = self.row | row | {"seconds_left": self.pace.left}

    def evaluated(self, evaluation: Evaluation) -> None:
        """A row about a finished evaluation."""
        row = evaluation.row(self.run.config.spec) | {"wall_seconds": self.counters.wall_seconds}
        self.metrics.write(row)
        self.row["validation"] = row["episodic_return" if self.run.config.spec.score else "success_rate"]

    def show(self, crew: Crew, ready: Sequence[Ready], ending: bool) -> None:
        """Periodic output: the panel and status.json."""
        if self.row:
            self.row["actors_alive"] = crew.alive
            self.run.progress.update(self.row)
        if time.monotonic() - self._status_at > STATUS_S:
            self.write_status(crew, ready, ending)

    def write_status(self, crew: Crew, ready: Sequence[Ready], ending: bool) -> None:
        """Write the current state to status.json.

        Raises:
            Superseded: a newer attempt has begun. An old one ends in seconds, not at a save.
        """
        self._status_at = time.monotonic()
        self.folder.assert_newest()
        self.folder.write_status(
            phase="train",
            actors=self.config.actors.n,
            actors_alive=crew.alive,
            quarantined=crew.quarantined,
            heartbeats=crew.heartbeats(),
            success_rate=self.row.get("charts/success_rate"),
            episodic_return=self.row.get("charts/episodic_return"),
            last_update=None if ending else self._updated,
            **asdict(replace(self.counters, restarts=self.restarts(crew))),
        )
        self.metrics.show(**self._now(crew, ready, ending))

    def _now(self, crew: Crew, ready: Sequence[Ready], ending: bool) -> dict[str, float]:
        """Numbers by the keys of `cluster.metrics.table.CONTROLLER`. `ending`: nothing further will begin."""
        config, clock = self.config, time.monotonic()
        found = {
            "actors": config.actors.n,
            "actors_alive": crew.alive,
            "actors_quarantined": len(crew.quarantined),
            "restarts": self.restarts(crew),
            "progress": self.counters.env_steps / config.learner.env_steps,
            "chunks_ready": len(ready),
            "chunk_age": max((clock - chunk.since for chunk in ready), default=0.0),
            "training": not ending,
            "advancing": not ending,
            "last_update": self._updated,
            "checkpoint_time": self._saved,
            "checkpoint_period": spacing(config.run.checkpoint_every_s, self._written_s),
            "checkpoint_save": self._save_s,
        }
        lag = algorithm(config.learner.algorithm).max_lag(config)
        if lag is not None:  # other algorithms learn from chunks of any age
            found["lag_limit"] = lag
        return {key: float(value) for key, value in found.items()}

    @property
    def save_is_due(self) -> bool:
        """Whether it is time for the next checkpoint."""
        return time.monotonic() - self._saved_at > spacing(self.config.run.checkpoint_every_s, self._written_s)

    def save(self, learner: LearnerGroup, pending: Sequence[Evaluation], wait: bool) -> None:
        """A checkpoint of learner, actors and counters, as of the last update.

        pending: evaluations in progress, to be done again after a resume.
        wait: until it is complete; a large model's is otherwise written while learning goes on.
        """
        arrays: Arrays = {f"{i}/{key}": np.asarray(v) for i, state in self.states.items() for key, v in state.items()}
        self.counters.wall_seconds = self._wall_before + time.monotonic() - self._clock
        counters = asdict(self.counters)
        for evaluation in pending:
            counters["next_evaluation"] = min(counters["next_evaluation"], evaluation.env_steps)
        record: dict[str, Any] = {"counters": counters, "recent": list(self.tally.recent), "goals": self.tally.goals}
        record |= {"achieved": asdict(self.tally.achieved), "attempt": self.folder.number}
        keep = self.config.run.keep_checkpoints
        began = time.monotonic()
        self._written_s = learner.save(self.folder.checkpoints, self.counters.version, arrays, record, keep, wait=wait)
        self._saved_at, self._saved = time.monotonic(), time.time()
        self._save_s = max(self._saved_at - began, self._written_s)
