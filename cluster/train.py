"""The single controller's loop: rollouts in flight, chunks to the learner, weights back.

    idle actor ── rollout(weights, version) ──> chunk ──> ready ── update(chunks) ──> weights of version + 1
                                                              └─ full: actors wait (back-pressure)

Asynchronous: actors start the next chunk with the newest weights at once, while the learner learns. `sync=true`: all
actors roll out, then the learner learns, in a fixed order, so that a run is bitwise reproducible and resumable.
The controller moves references only; it reads the small summaries.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from actors import VALIDATION_FIRST
from cluster.backend import Backend, InputLost, RoleDied, Ticket
from cluster.config import Config
from cluster.evaluation import Batch, Evaluation
from cluster.folder import RunFolder
from cluster.goal_table import add
from cluster.learners import LearnerDied, LearnerGroup, Ready
from cluster.metrics import Metrics
from cluster.pace import Pace
from cluster.policy_server import ServedPolicy, served
from cluster.progress import Progress
from cluster.stop import Stop
from cluster.supervisor import AllQuarantined, Crew, last_line
from cluster.tally import Tally
from cluster.watching import Watch
from envs.api import EnvSpec
from learner.checkpoint import Arrays, Checkpoint, latest
from llm_service.errors import UsageError


@dataclass
class Counters:
    """Everything that counts, as it is in a checkpoint."""

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


@dataclass(frozen=True)
class Rollout:
    """A job: one chunk, by the weights of `version`."""

    version: int


class Training:
    """One `train` stage from its start, or from a checkpoint, to its budget or a stop."""

    def __init__(
        self,
        config: Config,
        spec: EnvSpec,
        folder: RunFolder,
        backend: Backend,
        metrics: Metrics,
        progress: Progress,
        stop: Stop,
        actor_setup: Any,
        look_after: Callable[[], None],
    ) -> None:
        self.config, self.spec, self.folder, self.backend = config, spec, folder, backend
        self.metrics, self.progress, self.stop = metrics, progress, stop
        self.actor_setup, self.look_after = actor_setup, look_after
        self.counters = Counters(next_evaluation=config.evaluate.every)
        self.states: dict[int, dict[str, Any]] = {}  # of every actor after its last learned chunk
        self.tally, self.watch = Tally(), Watch(config)
        self.evaluations: list[Evaluation] = []
        self.row: dict[str, Any] = {}
        self.weights: Any = None
        self._status_at = 0.0
        self._rolled, self._last_rolled = 0, dict[int, int]()
        self._ahead = 0 if config.sync else config.actors.ahead
        # Actors with work ahead do not wait for the controller, for whom a turn costs nearly as much as two chunks.
        self._several = 1 + self._ahead * config.actors.n // 16
        self.learner: LearnerGroup
        self.server: ServedPolicy | None = None
        self.crew: Crew

    # ---- start and end ------------------------------------------------------------------------------------------

    def run(self, checkpoint: Checkpoint | None, initial: dict[str, Any] | None) -> bool:
        """Train. True if the budget was reached, False if the run was asked to stop.

        A learner that dies is rebuilt from the last checkpoint, as often as an actor may be.
        """
        failures: deque[float] = deque()
        while True:
            try:
                self._start(checkpoint, initial)
                try:
                    finished = self._loop()
                except (AllQuarantined, UsageError):
                    self._let_learner_end()  # it is well: only acting is over
                    self._save()
                    raise
                self._save()
                self._write_status()
                return finished
            except LearnerDied as death:
                failures.append(time.monotonic())
                while failures[-1] - failures[0] > self.config.actors.restart_window_s:
                    failures.popleft()
                if len(failures) > self.config.actors.restarts:
                    raise
                self.progress.note(f"learner died, restarting from the last checkpoint: {last_line(str(death))}")
                lost = replace(self.counters, restarts=self._restarts_before + self.crew.restarts)
                self._end_roles()
                checkpoint = latest(self.folder.checkpoints)
                self.counters = Counters(next_evaluation=self.config.evaluate.every)
                self.states, self.evaluations, self.tally = {}, [], Tally()
                if checkpoint is not None:
                    self._restore_counters(checkpoint)
                self.metrics.rewind(self.counters.version)
                self.counters.learner_restarts = lost.learner_restarts + 1
                self.counters.restarts, self.counters.resumes = lost.restarts, lost.resumes

    def resume_from(self, checkpoint: Checkpoint) -> None:
        """Take the counters of a checkpoint before `run`."""
        self._restore_counters(checkpoint)
        self.counters.resumes += 1

    def _restore_counters(self, checkpoint: Checkpoint) -> None:
        self.counters = Counters(**checkpoint.record["counters"])
        self.tally.recent.extend(tuple(row) for row in checkpoint.record["recent"])
        self.tally.goals.update(checkpoint.record["goals"])
        for name, value in checkpoint.arrays["actors"].items():
            actor, _, key = name.partition("/")
            self.states.setdefault(int(actor), {})[key] = value

    def _start(self, checkpoint: Checkpoint | None, initial: dict[str, Any] | None) -> None:
        self.folder.assert_newest()  # the replay may be another's by now
        restarts, replay = self.counters.learner_restarts, self.folder.replay
        self.learner = LearnerGroup(self.backend, self.config, self.spec, restarts, replay)
        cluster = self.config.cluster
        setup = self.actor_setup
        if served(self.config):
            self.server = ServedPolicy(self.backend, self.config, self.spec)
            setup = replace(setup, server=self.server.call)
        if not hasattr(self, "crew"):
            self.crew = Crew(
                self.backend,
                self.config.actors,
                setup,
                self.states,
                cluster.start_timeout_s,
                self._actor_failed,
            )
            self._restarts_before = self.counters.restarts
        if checkpoint is not None:
            self.weights = self.learner.call("restore", checkpoint.path)
        elif initial is not None:
            self.weights = self.learner.call("load_weights", initial)
        else:
            self.weights = self.learner.call("ready")
        self._publish()
        self.ready: list[Ready] = []
        self._clock = time.monotonic()
        self._wall_before = self.counters.wall_seconds
        self._saved_at = -math.inf if checkpoint is None else time.monotonic()  # the first comes with the first update
        self.tally.begin(self.counters.env_steps)
        self.pace = Pace(self.config.learner.env_steps)
        self._learning: list[Ready] = []

    def _let_learner_end(self) -> None:
        """Wait for the update under way: a checkpoint must not hold what the counters do not know."""
        while self.learner.tickets:
            outcome = self.learner.take(self.backend.wait(self.learner.tickets, timeout=0.5))
            if outcome is not None:
                self._learned(*outcome)

    def _end_roles(self) -> None:
        self.kill()
        del self.crew

    def kill(self) -> None:
        """End all roles."""
        self.learner.kill()
        self.crew.kill()
        if self.server:
            self.server.kill()

    def _publish(self) -> None:
        """Let the policy server know the weights, if there is one."""
        if self.server:
            try:
                self.server.publish(self.counters.version, self.weights)
            except RoleDied as death:
                raise LearnerDied(f"the policy server died: {last_line(str(death))}") from None

    def _actor_failed(self, actor: int, cause: str) -> None:
        if self.server and not self.server.alive():  # the actors are well, and would fail again
            raise LearnerDied("the policy server died")
        self.learner.assert_there()
        if any(self._is_lost(ready) for ready in self.ready if ready.summary.actor == actor):
            self._play_again(actor)
        quarantined = " and is quarantined" if actor in self.crew.quarantined else ""
        self.progress.note(f"actor-{actor} failed{quarantined}: {last_line(cause)}")
        if cause != last_line(cause):
            with open(self.folder.path / "run.log", "a") as log:
                log.write(cause + "\n")

    def _is_lost(self, ready: Ready) -> bool:
        return self.backend.place(ready.maker) == "gone"

    def _play_again(self, actor: int) -> None:
        """Forget what an actor delivered and nobody learned: its successor plays the very chunks again."""
        self.ready = [ready for ready in self.ready if ready.summary.actor != actor]
        under_way = [ready.summary.state for ready in self._learning if ready.summary.actor == actor]
        for job in self.crew.rewind(actor, under_way[-1] if under_way else self.states.get(actor)):
            if isinstance(job, Batch):
                job.evaluation.take(job, None)

    def _take_back(self) -> None:
        """After an update that found chunks gone: those that are there wait again, the others are played again."""
        lost = {ready.summary.actor for ready in self._learning if self._is_lost(ready)}
        if not lost:
            raise LearnerDied("a chunk is gone, though the node that held it is there")
        self.ready = [*self._learning, *self.ready]
        self._learning = []
        for actor in sorted(lost):
            self._play_again(actor)
        self.progress.note(f"chunks of actors {sorted(lost)} are gone with their node, and are played again")

    # ---- the loop -----------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """The budget of env steps is used."""
        return self.counters.env_steps >= self.config.learner.env_steps

    @property
    def ending(self) -> bool:
        """No new chunk and no new update should begin."""
        return self.finished or bool(self.stop.reason)

    def _loop(self) -> bool:
        while True:
            if not self.learner.tickets and self.ending and not self.evaluations:
                return self.finished
            self._dispatch(rollouts=not self.ending)
            jobs, done = self.crew.collect(self.learner.tickets, timeout=0.5, several=self._several)
            for actor, job, ticket, result in jobs:
                self._take(actor, job, ticket, result)
            try:
                outcome = self.learner.take(done)
            except InputLost:
                self._take_back()
                continue
            if outcome is not None:
                self._learned(*outcome)
            if not self.learner.tickets and not self.ending:
                self._learn()
            self._look_around()

    def _dispatch(self, rollouts: bool) -> None:
        """Give every idle actor a job, or one ahead: an evaluation's batch first, else the next chunk."""
        self._assert_enough_actors()
        # Those that waited longest first: with fewer chunks an update than actors, all must have their turn.
        for actor in sorted(self.crew.idle(self._ahead), key=lambda i: self._last_rolled.get(i, 0)):
            if any(evaluation.give(self.crew, actor) for evaluation in self.evaluations):
                continue
            if rollouts and self._may_roll(actor):
                version = self.counters.version
                weights = None if self.server else self.weights
                self.crew.give(actor, Rollout(version), "rollout", weights, version, returns=2)
                self._rolled += 1
                self._last_rolled[actor] = self._rolled

    def _may_roll(self, actor: int) -> bool:
        """Whether a further chunk of this actor is wanted now."""
        if self.config.sync:  # one chunk of each actor a round, and no round while the learner learns
            return not self.learner.tickets and actor not in [ready.summary.actor for ready in self.ready]
        size = self.learner.size
        per_update = (self.config.learner.chunks or self.config.actors.n) // size
        makers = [ready.summary.actor for ready in self.ready] + self.crew.busy_with(Rollout)
        waiting = sum(maker % size == actor % size for maker in makers)
        # One update's worth may wait while the learner is busy: more would only grow stale.
        ahead = self._ahead * self.config.actors.n // size
        return waiting < per_update * (1 if self.learner.tickets else 2) + ahead

    def _assert_enough_actors(self) -> None:
        """With its actors all in quarantine a learner rank would wait for ever; in sync mode one is enough."""
        n, out = self.config.actors.n, set(self.crew.quarantined)
        ranks = range(n if self.config.sync else self.learner.size)
        for rank in ranks:
            self.crew.assert_places(set(range(rank, n, len(ranks))))
        if any(set(range(rank, n, len(ranks))) <= out for rank in ranks):
            raise AllQuarantined(
                f"actors {sorted(out)} are quarantined and cannot be spared: {last_line(self.crew.first_cause)}"
            )

    def _take(self, actor: int, job: Any, ticket: Ticket, result: Any) -> None:
        if isinstance(job, Batch):
            job.evaluation.take(job, result)
            if job.evaluation.done:
                self.evaluations.remove(job.evaluation)
                self._evaluated(job.evaluation)
        elif result is not None:
            self.crew.delivered(actor, result.state)
            self.tally.busy["env"] += result.seconds["rollout"] - result.seconds["policy"]
            self.tally.busy["policy"] += result.seconds["policy"]
            self.ready.append(Ready(result, ticket.parts[1], ticket.handle))

    def _learn(self) -> None:
        """Start an update if enough chunks are there; every rank gets equally many."""
        size, total = self.learner.size, self.config.learner.chunks or self.config.actors.n
        if self.config.sync:
            self.ready.sort(key=lambda ready: ready.summary.actor)
        queues = [[r for r in self.ready if r.summary.actor % size == rank][: total // size] for rank in range(size)]
        if any(len(queue) < total // size for queue in queues):
            return
        self._learning = [ready for queue in queues for ready in queue]
        self.ready = [ready for ready in self.ready if ready not in self._learning]
        self.learner.begin(self.counters.version, self.counters.env_steps, self._learning)

    def _learned(self, report: dict[str, Any], weights: Any) -> None:
        counters = self.counters
        for ready in self._learning:
            self.states[ready.summary.actor] = ready.summary.state
            counters.episodes += len(ready.summary.episodes)
            self.tally.add(ready.summary.episodes)
            add(self.tally.goals, ready.summary.report.get("goals", {}))
        counters.chunks += len(self._learning)
        counters.dropped_chunks += report.pop("dropped")
        learned = report.pop("learned")
        self.tally.busy["learner"] += report.pop("seconds")
        self._learning = []
        if not learned:
            return
        counters.version += 1
        counters.env_steps += learned
        counters.restarts = self._restarts_before + self.crew.restarts
        self.weights = weights
        self._publish()
        counters.wall_seconds = self._wall_before + time.monotonic() - self._clock
        self._write_row(report)
        every = self.config.evaluate.every
        if every and counters.env_steps >= counters.next_evaluation:
            counters.next_evaluation += every * (1 + (counters.env_steps - counters.next_evaluation) // every)
            seeds = VALIDATION_FIRST + np.arange(self.config.evaluate.validation_episodes)
            greedy = self.config.evaluate.greedy
            given = None if self.server else weights
            self.evaluations.append(Evaluation(given, counters.version, counters.env_steps, seeds, greedy))
        if time.monotonic() - self._saved_at > self.config.run.checkpoint_every_s:
            self._save()

    # ---- reporting and saving -----------------------------------------------------------------------------------

    def _write_row(self, report: dict[str, Any]) -> None:
        counters, actors = self.counters, self.config.actors.n
        row: dict[str, Any] = {"kind": "train"} | asdict(counters)
        row |= {"actors": actors, "actors_alive": self.crew.alive} | self.tally.episodes(self.spec.task_kinds)
        row |= report | self.tally.speed(counters.env_steps, actors)
        self.metrics.write(row)
        self.watch.updated()
        self.pace.reached(counters.env_steps, warm=row.get("replay/updates") != 0)  # not while a replay fills
        self.row = self.row | row | {"seconds_left": self.pace.left}

    def _evaluated(self, evaluation: Evaluation) -> None:
        row = evaluation.row() | {"wall_seconds": self.counters.wall_seconds}
        self.metrics.write(row)
        self.row["validation"] = row["episodic_return" if self.spec.score else "success_rate"]

    def _look_around(self) -> None:
        """What is due by the clock: the panel, status.json, the services beside the actors."""
        self.look_after()
        if self.row:
            self.row["actors_alive"] = self.crew.alive
            self.progress.update(self.row)
        if time.monotonic() - self._status_at > 2.0:
            self._write_status()

    def _write_status(self) -> None:
        self._status_at, restarts = time.monotonic(), self._restarts_before + self.crew.restarts
        self.folder.assert_newest()  # an old attempt ends in seconds, not at a save
        self.folder.write_status(
            phase="train",
            actors=self.config.actors.n,
            actors_alive=self.crew.alive,
            quarantined=self.crew.quarantined,
            heartbeats=self.crew.heartbeats(),
            success_rate=self.row.get("charts/success_rate"),
            episodic_return=self.row.get("charts/episodic_return"),
            **asdict(replace(self.counters, restarts=restarts)),
        )
        self.metrics.show(**self.watch.now(self.crew, self.ready, self.counters.env_steps, restarts, self.ending))

    def _save(self) -> None:
        """A checkpoint of learner, actors and counters, as of the last update."""
        arrays: Arrays = {f"{i}/{key}": np.asarray(v) for i, state in self.states.items() for key, v in state.items()}
        self.counters.wall_seconds = self._wall_before + time.monotonic() - self._clock
        counters = asdict(self.counters)
        for pending in self.evaluations:  # would be lost: to be done again after a resume
            counters["next_evaluation"] = min(counters["next_evaluation"], pending.env_steps)
        record: dict[str, Any] = {"counters": counters, "recent": list(self.tally.recent), "goals": self.tally.goals}
        record["attempt"] = self.folder.number
        keep = self.config.run.keep_checkpoints
        with self.watch.saving():
            self.learner.save(self.folder.checkpoints, self.counters.version, arrays, record, keep)
        self._saved_at = time.monotonic()
