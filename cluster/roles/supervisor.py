"""Supervises the rollout actors: gives them jobs, notices dead and hung ones, and restarts them within a budget.

    starting ──> working: plays its jobs in order, idle without any
        ^           │ died, raised, or took too long
        └── waiting ┤
      (back-off)    └──> quarantined (budget spent)

An actor is rebuilt from its setup and the state of its last delivered chunk: it loses only the jobs it had.
Losing a node does not count against any actor's budget. An actor without room stays at `starting` until a node joins.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from actors import ActorsConfig, RolloutActor
from cluster.roles.backend import PLACE_S, Backend, Handle, Interrupted, NodeLost, RoleDied, Ticket

START = "start"  # the job of an actor that is being built


class AllQuarantined(RuntimeError):
    """Too few actors are left. The first line of the message names the first cause."""


def last_line(text: str) -> str:
    """The last line that is not empty: in a traceback, the error itself."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no cause given"


@dataclass
class _Member:
    state: str = "waiting"
    handle: Handle | None = None
    jobs: deque[tuple[Any, Ticket]] = field(default_factory=deque)  # the first is in progress
    incarnation: int = -1
    start_at: float = 0.0
    failures: deque[float] = field(default_factory=deque)
    saved: dict[str, Any] | None = None  # state of the last delivered chunk
    unplaced: float | None = None  # since when it has been known to have no room


class Crew:
    """The rollout actors.

    config: their number and restart budget. setup: first argument of each.
    states: what each actor restores from a checkpoint; actors without a state start fresh.
    start_timeout_s: limit for a start. on_failure: called with (actor, cause) at every death.
    first: the method whose end completes a start.
    """

    def __init__(
        self,
        backend: Backend,
        config: ActorsConfig,
        setup: Any,
        states: dict[int, dict[str, Any]],
        start_timeout_s: float,
        on_failure: Callable[[int, str], None],
        role: type[Any] = RolloutActor,
        first: str = "ready",
    ) -> None:
        self._backend, self._config, self._setup = backend, config, setup
        self._start_timeout_s, self._on_failure, self._role, self._first = start_timeout_s, on_failure, role, first
        self._members = [_Member(saved=states.get(i)) for i in range(config.n)]
        self.restarts = 0
        self.first_cause = ""
        self._revive()

    def idle(self, ahead: int = 0) -> list[int]:
        """Actors without a job, and actors with at most `ahead` jobs left."""
        return [i for i, m in enumerate(self._members) if m.state == "at work" and len(m.jobs) <= ahead]

    @property
    def alive(self) -> int:
        return sum(m.state == "at work" for m in self._members)

    @property
    def quarantined(self) -> list[int]:
        return [i for i, m in enumerate(self._members) if m.state == "quarantined"]

    def busy_with(self, kind: type) -> list[int]:
        """The actors of all unfinished jobs of this kind."""
        return [i for i, m in enumerate(self._members) for job, _ in m.jobs if isinstance(job, kind)]

    def give(self, i: int, job: Any, method: str, *args: Any, returns: int = 1) -> None:
        """Let the working actor i do `job` by calling `method`, after its earlier jobs."""
        member = self._members[i]
        assert member.state == "at work"
        assert member.handle is not None
        member.jobs.append((job, self._backend.submit(member.handle, method, *args, returns=returns)))

    def delivered(self, i: int, state: dict[str, Any]) -> None:
        """Remember the state that a successor of actor i would restore."""
        self._members[i].saved = state

    def rewind(self, i: int, state: dict[str, Any] | None) -> list[Any]:
        """Let a successor of actor i continue from an earlier state. Returns the jobs that are lost.

        state: None starts fresh.
        """
        member = self._members[i]
        lost = [job for job, _ in member.jobs if job is not START]
        member.saved = state
        if member.handle is not None:
            self._end(member)
            member.state, member.start_at = "waiting", time.monotonic()
            self.restarts += 1
        return lost

    def _end(self, member: _Member) -> None:
        if member.handle is not None:
            self._backend.kill(member.handle)
        member.handle = member.unplaced = None
        member.jobs.clear()

    def assert_places(self, needed: set[int]) -> None:
        """Raise `Interrupted` if all of `needed` are quarantined or have had no place for `PLACE_S` seconds."""
        since = time.monotonic() - PLACE_S
        unplaced = [i for i, m in enumerate(self._members) if m.unplaced is not None and m.unplaced < since]
        if unplaced and needed <= {*unplaced, *self.quarantined}:
            raise Interrupted(
                f"no node has had room for actors {unplaced} in {PLACE_S:.0f} s: "
                "add nodes, or take fewer actors, then resume"
            )

    def collect(
        self, also: list[Ticket], timeout: float, several: int = 1
    ) -> tuple[list[tuple[int, Any, Ticket, Any]], list[Ticket]]:
        """Wait for something to happen.

        Args:
            also: other tickets worth waking for.
            timeout: seconds.
            several: how many results to wait for within that time, if nobody needs the first one at once.

        Returns:
            Finished jobs as (actor, job, ticket, first result), with result None for a job that was lost with its
            actor; and the tickets of `also` that are done.

        Raises:
            AllQuarantined: no actor is left to work.
            Interrupted: no node had room for the remaining actors.
        """
        self._revive()
        self.assert_places(set(range(len(self._members))))
        working = {id(m.jobs[0][1]): i for i, m in enumerate(self._members) if m.jobs}
        tickets = [m.jobs[0][1] for m in self._members if m.jobs]
        done = self._backend.wait([*tickets, *also], timeout, several)
        finished = []
        for ticket in done:
            if id(ticket) not in working:
                continue
            i = working[id(ticket)]
            member = self._members[i]
            try:
                result = self._backend.result(ticket)
            except RoleDied as death:
                finished += self._lost(i)
                cause = str(death).removeprefix(f"{ticket.handle.name} in {ticket.method}: ")  # the caller adds which
                self._failed(i, cause, spends=not isinstance(death, NodeLost))
                continue
            job, _ = member.jobs.popleft()
            member.state, member.unplaced = "at work", None
            if member.jobs:
                member.jobs[0][1].submitted = time.monotonic()  # the time limit of the next job starts
            finished.append((i, job, ticket, result))
        finished += self._overdue()
        return [f for f in finished if f[1] is not START], [t for t in also if t in done]

    def heartbeats(self) -> dict[str, dict[str, Any]]:
        """What each started actor was doing a few seconds ago."""
        return self._backend.heartbeats([m.handle for m in self._members if m.handle is not None])

    def kill(self) -> None:
        for member in self._members:
            self._end(member)

    def _overdue(self) -> list[tuple[int, Any, Ticket, Any]]:
        lost = []
        for i, member in enumerate(self._members):
            if not member.jobs:
                continue
            job, ticket = member.jobs[0]
            limit = self._start_timeout_s if job is START else self._config.timeout_s
            if time.monotonic() - ticket.submitted > limit:
                assert member.handle is not None
                if job is START and self._backend.place(member.handle) == "none":
                    member.unplaced = member.unplaced or ticket.submitted
                    ticket.submitted = time.monotonic()  # its time limit starts when it has a place
                    continue
                lost += self._lost(i)
                phase = self._backend.heartbeats([member.handle]).get(member.handle.name, {}).get("phase", "unknown")
                self._failed(i, f"actor-{i} took more than {limit:.0f} s; its phase is {phase!r}")
        return lost

    def _lost(self, i: int) -> list[tuple[int, Any, Ticket, Any]]:
        """The jobs that are lost with actor i, as `collect` returns them."""
        return [(i, job, ticket, None) for job, ticket in self._members[i].jobs]

    def _failed(self, i: int, cause: str, spends: bool = True) -> None:
        member = self._members[i]
        self._end(member)
        now = time.monotonic()
        if spends:
            self.first_cause = self.first_cause or cause
            member.failures.append(now)
        while member.failures and now - member.failures[0] > self._config.restart_window_s:
            member.failures.popleft()
        if len(member.failures) > self._config.restarts:
            member.state = "quarantined"
        else:
            member.state = "waiting"
            member.start_at = now + min(30.0, self._config.backoff_s * 2 ** max(0, len(member.failures) - 1))
            self.restarts += 1
        self._on_failure(i, cause)
        if len(self.quarantined) == len(self._members):
            first = f"{last_line(self.first_cause)}\n{self.first_cause}"
            raise AllQuarantined(f"every actor failed more than {self._config.restarts} times: {first}")

    def _revive(self) -> None:
        for i, member in enumerate(self._members):
            if member.state == "waiting" and time.monotonic() >= member.start_at:
                member.incarnation += 1
                name = f"actor-{i}" + (f".{member.incarnation}" if member.incarnation else "")
                member.handle = self._backend.start(name, self._role, self._setup, i, member.incarnation, member.saved)
                member.state = "starting"
                member.jobs.append((START, self._backend.submit(member.handle, self._first)))
