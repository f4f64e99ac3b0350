"""Fits of minutes, by one role, without checkpoints: an interrupted fit starts again, with the same result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from cluster.roles.backend import Handle, RoleDied, assert_unasked
from cluster.roles.supervisor import last_line
from cluster.runs.stage import StageEngine

CALL_STEPS = 50
"""Gradient steps per call, seconds: between two calls, the run can be stopped."""

Result = TypeVar("Result")


class BriefFit(StageEngine):
    """Calls a role that takes gradient steps."""

    def with_role(self, name: str, kind: type[Any], setup: Any, work: Callable[[Handle], Result]) -> Result:
        """The result of `work` on a role of this kind. If the role dies, it starts over, `actors.restarts` times.

        Raises:
            RoleDied: it died once more.
        """
        deaths = 0
        while True:
            role = self.backend.start(f"{name}-{deaths}", kind, setup)
            try:
                return work(role)
            except RoleDied as death:
                deaths += 1
                if deaths > self.config.actors.restarts:
                    raise
                self.progress.note(f"{name} died, fitting starts over: {last_line(str(death))}")
            finally:
                self.backend.kill(role)

    def fit(self, role: Handle, steps: int, told: Callable[[list[list[float]]], str]) -> list[list[float]] | None:
        """The numbers of so many gradient steps, by the role's `fit`; None if asked to stop.

        told: a few words on the numbers of the last steps, for the progress line.
        """
        found: list[list[float]] = []
        while len(found) < steps:
            if self.stop.reason:
                return None
            found += self.call(role, "fit", self.config.learner.timeout_s, CALL_STEPS)
            self.progress.line(f"{self.stage.name}  steps {len(found):,}/{steps:,}  {told(found[-CALL_STEPS:])}")
        return found

    def call(self, role: Handle, method: str, timeout: float, *args: Any) -> Any:
        """Call the role and wait.

        Raises:
            AskedToStop: the run should stop; the stage will start again from the beginning.
            RoleDied: it raised, is gone, or took longer than `timeout` seconds.
        """
        ticket = self.backend.submit(role, method, *args)
        while not self.backend.wait([ticket], timeout=0.5):
            self.given.look_after()
            assert_unasked(self.backend)
            if time.monotonic() - ticket.submitted > timeout:
                raise RoleDied(f"{method} took more than {timeout:.0f} s")
        return self.backend.result(ticket)
