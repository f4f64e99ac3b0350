"""Fitting to a store: the learner's ranks take gradient steps, in calls of about a second.

    store ──> ranks (`learner.n`) ──> rows of metrics (kind `fit`), checkpoints ──> stages/<stage>/weights.safetensors

The ranks keep the optimiser and the step counter. A step depends on nothing else, so weights and rows do not depend on
how steps are grouped into calls. If a rank dies, everything after the last checkpoint is lost and repeated.

A run may have several such stages. Versions of weights, rows and checkpoints continue from one stage to the next; a
checkpoint names its stage.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from cluster.config.tree import Config
from cluster.roles.backend import RoleDied, assert_unasked
from cluster.roles.drawing import Role, Topology
from cluster.roles.learners import LearnerDied, Ranks, device_of, patience
from cluster.roles.supervisor import last_line
from cluster.runs.progress import Pace, duration
from cluster.runs.stage import StageEngine
from learner.behaviours.imitation import SequenceConfig
from learner.checkpoint import Checkpoint, latest, spacing
from learner.parts import FitConfig

CALL_S = 1.0  # seconds that a call should last: between two calls, the run can be stopped and saved
NOTHING: Mapping[str, float] = {"version": 0, "env_steps": 0, "wall_seconds": 0.0}
"""Counters before any learning."""


class Fitters(Ranks):
    """The ranks as a group: every call goes to all of them."""

    def call(self, method: str, *args: Any, timeout: float, begins: bool = False) -> Any:
        """Call all ranks and wait for all. Returns the result of rank 0.

        begins: nothing is lost if the call is given up, because no step was taken yet.

        Raises:
            AskedToStop: the run should stop, and the call only `begins`.
            LearnerDied: one raised, is gone, or took longer than `timeout` seconds.
        """
        tickets = [self.backend.submit(rank, method, *args) for rank in self.ranks]
        waiting, end = list(tickets), time.monotonic() + timeout
        try:
            while waiting:
                for ticket in self.backend.wait(waiting, timeout=0.5):
                    self.backend.result(ticket)  # report a rank that raised before its peers, which wait for it
                    waiting.remove(ticket)
                if waiting and begins:
                    assert_unasked(self.backend)
                if waiting and time.monotonic() > end:
                    raise LearnerDied(f"{method} took more than {timeout:.0f} s")
            return self.backend.result(tickets[0])
        except RoleDied as death:
            raise LearnerDied.of(death) from None


class Fitting(StageEngine):
    """A stage of gradient steps: from its start or a checkpoint to its last step or a stop."""

    section: ClassVar[type[FitConfig | SequenceConfig]]
    """Section of the configuration with the number and size of steps."""
    items: ClassVar[str]
    """The items of a batch, in words."""

    @classmethod
    def device(cls, config: Config) -> str:
        """The key that says where it fits."""
        return device_of(config)

    @classmethod
    def roles(cls, config: Config) -> Topology:
        fit, learner = config.method.part(cls.section), config.learner
        does = f"{fit.steps:,} gradient steps, each on {fit.batch} {cls.items}"
        fitter = Role("fitter", learner.n, learner.threads, does, cls.device(config))
        return Topology((fitter,), (("store", "fitter", "steps, mapped from disk"),))

    def prepare(self) -> None:
        """What ranks do once they are built, before their first or next step; by default nothing."""

    def fit(self, role: type[Any], setup: Any) -> bool:
        """Let ranks of this role, built from `setup`, fit. True if all steps were taken, False if asked to stop."""
        checkpoint, deaths = self._own(self.given.checkpoint), 0
        self.settings, self.row = self.config.method.part(self.section), dict[str, Any]()
        self._before = checkpoint.record.get("before", NOTHING) if checkpoint else self._reached()
        while True:
            self.ranks = Fitters(self.backend, self.config, "fitter", role, setup, deaths)
            try:
                self._start(checkpoint)
                finished = self._loop()
                self.ranks.kill()
                return finished
            except LearnerDied as death:
                deaths += 1
                self.ranks.kill()
                if deaths > self.config.actors.restarts:
                    raise
                self.progress.note(f"fitter died, restarting from the last checkpoint: {last_line(str(death))}")
                checkpoint = self._own(latest(self.folder.checkpoints))
                counters = checkpoint.record["counters"] if checkpoint else self._before
                self.metrics.rewind(int(counters["version"]))

    def _own(self, found: Checkpoint | None) -> Checkpoint | None:
        """The checkpoint, if it is of this stage. One of older code does not say, and its run has one such stage."""
        return found if found and found.record.get("stage", self.stage.name) == self.stage.name else None

    def _reached(self) -> Mapping[str, float]:
        """Counters of the previous stage of this kind, from which this one continues."""
        found = latest(self.folder.checkpoints)
        return found.record["counters"] if found and self._own(found) is None else NOTHING

    def _start(self, checkpoint: Checkpoint | None) -> None:
        start_s = self.config.cluster.start_timeout_s
        there = self.ranks.call("ready", timeout=start_s, begins=True)
        start_s = self._patience_s = patience(self.config, there["bytes"])
        self._written_s = 0.0
        record: dict[str, Any] = {"counters": self._before, "recent": []}
        if checkpoint is not None:
            self.ranks.call("restore", checkpoint.path, timeout=start_s, begins=True)
            record = checkpoint.record
        elif self.given.initial is not None:
            self.ranks.call("load_weights", self.given.initial, timeout=start_s, begins=True)
        self.step: int = record["counters"]["version"] - self._before["version"]
        self.recent: list[list[float]] = record["recent"]  # values of the steps since the last row
        self.pace = Pace(self.settings.steps)
        self._wall_before, self._began = record["counters"]["wall_seconds"], time.monotonic()
        self._saved_at = (
            -math.inf if checkpoint is None else time.monotonic()
        )  # the first is saved after the first steps
        self.progress.note(
            f"{self.stage.name}: {there['steps']:,} steps to learn from, {there['validation_steps']:,} held-out ones "
            f"to look at, of {there['episodes']:,} episodes"
        )
        self.prepare()

    def _loop(self) -> bool:
        fit, timeout = self.settings, self.config.learner.timeout_s
        pace = 1  # steps per call
        while self.step < fit.steps and not self.stop.reason:
            self.folder.assert_newest()  # an older attempt ends within seconds, not only at a save
            n = min(pace, fit.every - self.step % fit.every, fit.steps - self.step)
            clock = time.monotonic()
            self.recent += self.ranks.call("fit", n, timeout=timeout)
            self.step += n
            pace = max(1, int(n * CALL_S / max(time.monotonic() - clock, 1e-6)))
            if self.step % fit.every == 0 or self.step == fit.steps:
                self._write_row(self.ranks.call("validate", timeout=timeout))
            self._show()
            if time.monotonic() - self._saved_at > spacing(self.config.run.checkpoint_every_s, self._written_s):
                self._save(wait=False)
        self._save(wait=True)
        return self.step == fit.steps

    def _write_row(self, validation: dict[str, float]) -> None:
        loss, accuracy, norm = np.mean(self.recent, 0).tolist()
        told = {"fit/loss": loss} | ({} if math.isnan(accuracy) else {"fit/accuracy": accuracy})
        self.row = {"kind": "fit", "stage": self.stage.name, **self._counters(), **told, **validation}
        self.row |= {"fit/gradient_norm": norm, "fit/learning_rate": self.settings.step_size(self.step - 1)}
        self.row["fit/step"] = self.step
        self.recent = []
        self.metrics.write(self.row)
        self.folder.write_status(last_update=time.time())

    def _counters(self) -> dict[str, Any]:
        wall = self._wall_before + time.monotonic() - self._began
        counts = {"version": self.step, "env_steps": self.step * self.settings.batch}
        return {name: self._before[name] + count for name, count in counts.items()} | {"wall_seconds": wall}

    def _show(self) -> None:
        row = self.row
        parts = [f"{self.stage.name}  steps {self.step:,}/{self.settings.steps:,}"]
        parts += [f"{key} {row[f'fit/{key}']:.3f}" for key in ("loss", "accuracy") if f"fit/{key}" in row]
        held_out = [f"{row[name]:.3f}" for key in ("loss", "accuracy") if (name := f"fit/validation_{key}") in row]
        parts += [f"validation {', '.join(held_out)}"] if held_out else []
        self.pace.reached(self.step)
        self.progress.line("  ".join([*parts, f"left {duration(self.pace.left)}"]))

    def _save(self, wait: bool) -> None:
        counters = self._counters()
        record = {"counters": counters, "recent": self.recent, "attempt": self.folder.number}
        record |= {"stage": self.stage.name, "step": self.step, "before": dict(self._before)}
        keep, limit = self.config.run.keep_checkpoints, self._patience_s
        self._written_s = self.ranks.call("save", self.folder.checkpoints, record, keep, wait, timeout=limit)
        self.folder.write_status(phase=self.stage.name, fit_step=self.step, wall_seconds=counters["wall_seconds"])
        self._saved_at = time.monotonic()
