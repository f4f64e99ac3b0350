"""The engine of a train stage: rollouts in flight, chunks to the learner, weights back.

    idle actor ── rollout(weights, version) ──> chunk ──> ready ── update(chunks) ──> weights of version + 1
                                                              └─ full: actors wait (back-pressure)

Asynchronous: actors start the next chunk immediately with the newest weights, while the learner learns. `sync=true`:
all actors roll out, then the learner learns, in a fixed order, so a run is bitwise reproducible and resumable.
The controller moves only references; it reads the small summaries.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from actors import VALIDATION_FIRST, wrappers
from cluster.config import limits
from cluster.config.tree import Config
from cluster.roles.backend import InputLost, RoleDied, Ticket
from cluster.roles.drawing import Role, Topology
from cluster.roles.learners import LearnerDied, LearnerGroup, Ready, device_of
from cluster.roles.policy_server import ServedPolicy, served
from cluster.roles.supervisor import AllQuarantined, Crew, last_line
from cluster.runs.stage import Artifact, Outcome, Run
from cluster.stages._shared import teed
from cluster.stages._shared.account import Account
from cluster.stages._shared.evaluation import ActingStage, Batch, Evaluation
from learner.algorithms import algorithm
from learner.checkpoint import Checkpoint, latest
from learner.methods import Stage
from learner.store.episodes import EPISODES
from llm_service.errors import UsageError


class Rollout:
    """A job that is one chunk."""


class Engine(ActingStage):
    """Trains from the start or from a checkpoint to the budget or a stop."""

    makes: ClassVar[Artifact] = "weights"
    waits: ClassVar[bool] = False

    def __init__(self, run: Run, stage: Stage) -> None:
        super().__init__(run, stage)
        self.actor_setup = run.actor_setup(stage)
        self._tees = "tee" in self.actor_setup.wrappers
        self.account = Account(run)
        self.evaluations: list[Evaluation] = []
        self.weights: Any = None
        self._rolled, self._last_rolled = 0, dict[int, int]()
        self._ahead = 0 if self.config.sync else self.config.actors.ahead
        # Actors with work ahead do not wait for the controller, whose loop costs nearly as much time as two chunks.
        self._several = 1 + self._ahead * self.config.actors.n // 16
        self.learner: LearnerGroup
        self.server: ServedPolicy | None = None
        self.crew: Crew

    # ---- start and end ------------------------------------------------------------------------------------------

    def run(self) -> Outcome | None:
        checkpoint = self.given.checkpoint
        if checkpoint is not None:
            self.account.restore(checkpoint)
            self.account.counters.resumes += 1
            counters = self.account.counters
            self.progress.note(f"resumed at {counters.env_steps:,} env steps, version {counters.version}")
        if not self._train(checkpoint):
            return None
        counts, inputs = self.given.publish(self.stage), wrappers.inputs(self.actor_setup.wrappers)
        self.kill()
        self.folder.forget(self.folder.replay)  # gigabytes that will not be sampled again
        if self._tees:
            kept, inputs[EPISODES] = teed.end(self.folder, self.place, self.account.states)
            counts |= kept
        return Outcome(counts, self.given.initial, inputs)

    def _train(self, checkpoint: Checkpoint | None) -> bool:
        """Train. True if the budget was reached, False if the run was asked to stop.

        A learner that dies is rebuilt from the last checkpoint, as often as an actor may be restarted.
        """
        failures: deque[float] = deque()
        while True:
            try:
                self._start(checkpoint)
                try:
                    finished = self._loop()
                except (AllQuarantined, UsageError):
                    self._let_learner_end()  # the learner is fine: only acting has ended
                    self._save(wait=True)
                    raise
                self._save(wait=True)
                self.account.write_status(self.crew, self.ready, self.ending)
                return finished
            except LearnerDied as death:
                failures.append(time.monotonic())
                while failures[-1] - failures[0] > self.config.actors.restart_window_s:
                    failures.popleft()
                if len(failures) > self.config.actors.restarts:
                    raise
                self.progress.note(f"learner died, restarting from the last checkpoint: {last_line(str(death))}")
                self.kill()
                checkpoint = latest(self.folder.checkpoints)
                self.account.go_back(checkpoint, self.crew)
                self.evaluations = []
                del self.crew

    def _start(self, checkpoint: Checkpoint | None) -> None:
        self.folder.assert_newest()  # by now the replay may belong to another attempt
        account, initial, setup = self.account, self.given.initial, self.actor_setup
        restarts, replay = account.counters.learner_restarts, self.folder.replay
        self.learner = LearnerGroup(self.backend, self.config, setup.spec, restarts, replay)
        if served(self.config):
            self.server = ServedPolicy(self.backend, self.config, setup.spec)
            setup = replace(setup, server=self.server.call)
        new_crew = not hasattr(self, "crew")
        if new_crew:
            setup = replace(setup, crew=restarts)
            if self._tees:
                teed.begin(self.given, self.place, account.states)
            start_s = self.config.cluster.start_timeout_s
            states, failed = account.states, self._actor_failed
            self.crew = Crew(self.backend, self.config.actors, setup, states, start_s, failed, first="prepare")
        if self.config.evaluate.every:
            import_module("scipy.stats")  # while the roles start: at the first look, everything would wait for it
        self.given.await_language()
        if checkpoint is not None:
            self.weights = self.learner.call("restore", checkpoint.path)
        elif initial is not None:
            self.weights = self.learner.call("load_weights", initial)
        else:
            self.weights = self.learner.call("ready")
        self._publish()
        self.ready: list[Ready] = []
        self._learning: list[Ready] = []
        account.begin(checkpoint is not None, new_crew)

    def _let_learner_end(self) -> None:
        """Wait for the update in progress: a checkpoint must match the counters."""
        while self.learner.tickets:
            outcome = self.learner.take(self.backend.wait(self.learner.tickets, timeout=0.5))
            if outcome is not None:
                self._learned(*outcome)

    def kill(self) -> None:
        self.learner.kill()
        self.crew.kill()
        if self.server:
            self.server.kill()

    def _publish(self) -> None:
        """Send the weights to the policy server, if there is one."""
        if self.server:
            try:
                self.server.publish(self.account.counters.version, self.weights)
            except RoleDied as death:
                raise LearnerDied(f"the policy server died: {last_line(str(death))}") from None

    def _actor_failed(self, actor: int, cause: str) -> None:
        if self.server and not self.server.alive():  # the actors are fine, and would fail again
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
        """Drop an actor's chunks that were not learned from: its successor plays the same chunks again."""
        self.ready = [ready for ready in self.ready if ready.summary.actor != actor]
        under_way = [ready.summary.state for ready in self._learning if ready.summary.actor == actor]
        for job in self.crew.rewind(actor, under_way[-1] if under_way else self.account.states.get(actor)):
            if isinstance(job, Batch):
                job.evaluation.take(job, None)

    def _take_back(self) -> None:
        """After an update with missing chunks: existing chunks wait again, the others are played again."""
        lost = {ready.summary.actor for ready in self._learning if self._is_lost(ready)}
        if not lost:
            raise LearnerDied("a chunk is gone, although its node still exists")
        self.ready = [*self._learning, *self.ready]
        self._learning = []
        for actor in sorted(lost):
            self._play_again(actor)
        self.progress.note(f"chunks of actors {sorted(lost)} are gone with their node, and are played again")

    # ---- the loop -----------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether the budget of env steps is used up."""
        return self.account.counters.env_steps >= self.config.learner.env_steps

    @property
    def ending(self) -> bool:
        """Whether no new chunk and no new update should begin."""
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
            self.given.look_after()
            self.account.show(self.crew, self.ready, self.ending)

    def _dispatch(self, rollouts: bool) -> None:
        """Give every idle actor a job, or one ahead: an evaluation's batch first, else the next chunk."""
        self._assert_enough_actors()
        # Those that waited longest first: with fewer chunks per update than actors, all must get their turn.
        for actor in sorted(self.crew.idle(self._ahead), key=lambda i: self._last_rolled.get(i, 0)):
            if any(evaluation.give(self.crew, actor) for evaluation in self.evaluations):
                continue
            if rollouts and self._may_roll(actor):
                version = self.account.counters.version
                weights = None if self.server else self.weights
                self.crew.give(actor, Rollout(), "rollout", weights, version, returns=2)
                self._rolled += 1
                self._last_rolled[actor] = self._rolled

    def _may_roll(self, actor: int) -> bool:
        """Whether a further chunk of this actor is wanted now."""
        if self.config.sync:  # one chunk per actor and round, and no round while the learner learns
            return not self.learner.tickets and actor not in [ready.summary.actor for ready in self.ready]
        size = self.learner.size
        per_update = (self.config.learner.chunks or self.config.actors.n) // size
        makers = [ready.summary.actor for ready in self.ready] + self.crew.busy_with(Rollout)
        waiting = sum(maker % size == actor % size for maker in makers)
        # Chunks for one update may wait while the learner is busy: more would only become stale.
        ahead = self._ahead * self.config.actors.n // size
        return waiting < per_update * (1 if self.learner.tickets else 2) + ahead

    def _assert_enough_actors(self) -> None:
        """A learner rank would wait forever if all its actors are quarantined; with `sync`, one is enough."""
        n, out = self.config.actors.n, set(self.crew.quarantined)
        ranks = range(n if self.config.sync else self.learner.size)
        for rank in ranks:
            self.crew.assert_places(set(range(rank, n, len(ranks))))
        if any(set(range(rank, n, len(ranks))) <= out for rank in ranks):
            raise AllQuarantined(
                f"actors {sorted(out)} are quarantined, but the run needs them: {last_line(self.crew.first_cause)}"
            )

    def _take(self, actor: int, job: Any, ticket: Ticket, result: Any) -> None:
        if isinstance(job, Batch):
            job.evaluation.take(job, result)
            if job.evaluation.done:
                self.evaluations.remove(job.evaluation)
                self.account.evaluated(job.evaluation)
        elif result is not None:
            self.crew.delivered(actor, result.state)
            self.account.acted(result.seconds)
            self.ready.append(Ready(result, ticket.parts[1], ticket.handle))

    def _learn(self) -> None:
        """Start an update if there are enough chunks; every rank gets the same number."""
        size, total = self.learner.size, self.config.learner.chunks or self.config.actors.n
        if self.config.sync:
            self.ready.sort(key=lambda ready: ready.summary.actor)
        queues = [[r for r in self.ready if r.summary.actor % size == rank][: total // size] for rank in range(size)]
        if any(len(queue) < total // size for queue in queues):
            return
        self._learning = [ready for queue in queues for ready in queue]
        self.ready = [ready for ready in self.ready if ready not in self._learning]
        counters = self.account.counters
        self.learner.begin(counters.version, counters.env_steps, self._learning)

    def _learned(self, report: dict[str, Any], weights: Any) -> None:
        account, evaluate = self.account, self.config.evaluate
        learned = account.learned(self._learning, report, self.crew)
        self._learning = []
        if not learned:
            return
        self.weights = weights
        self._publish()
        account.write_row(report, self.crew)
        if account.evaluation_is_due():
            counters, given = account.counters, None if self.server else weights
            seeds = VALIDATION_FIRST + np.arange(evaluate.validation_episodes)
            self.evaluations.append(Evaluation(given, counters.version, counters.env_steps, seeds, evaluate.greedy))
        if account.save_is_due:
            self._save(wait=False)

    def _save(self, wait: bool) -> None:
        self.account.save(self.learner, self.evaluations, wait)

    # ---- declared before it begins ------------------------------------------------------------------------------

    @classmethod
    def takes(cls, stage: Stage) -> Artifact:
        return ""  # it may start from scratch

    @classmethod
    def goes_on(cls, config: Config, checkpoint: Checkpoint) -> bool:
        env_steps: int = checkpoint.record["counters"]["env_steps"]
        return env_steps < config.learner.env_steps

    @classmethod
    def roles(cls, config: Config) -> Topology:
        actors, learner = config.actors, config.learner
        does = algorithm(learner.algorithm).describe(config)
        does = f"{config.method.model_dump()['name']}: {does}, in minibatches of {learner.minibatch}"
        chunk = f"chunks [{actors.steps}, {actors.envs}, ...] by reference"
        acts = "policy" if served(config) else "actor"
        edges = [("actor", "learner", chunk), ("learner", acts, "weights by argument, one version at a time")]
        if "tee" in wrappers.chosen(config):
            edges.append(("actor", "store", "every training step, one shard per chunk"))
        ranks = Role("learner", learner.n, learner.threads, does, device_of(config))
        return super().roles(config) + Topology((ranks,), tuple(edges))

    @classmethod
    def memory(cls, config: Config) -> int:
        actors, learner, evaluate = config.actors, config.learner, config.evaluate
        seen, row = limits.observed(config)
        chunk = actors.steps * actors.envs * (seen + limits.STEP)
        at_once = config.cluster.name == "local"  # actors in processes play at the same time
        chunks = (learner.chunks or actors.n) + (actors.n if at_once else 0)
        kept = algorithm(learner.algorithm).memory(config, row)
        validation = limits.EPISODE * evaluate.validation_episodes if evaluate.every else 0
        return super().memory(config) + learner.n * limits.process(config) + chunks * chunk + kept + validation
