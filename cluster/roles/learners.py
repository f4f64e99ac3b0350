"""The learner's ranks as a group: started together, fed by rank, and waited for together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.config.tree import Config
from cluster.roles.backend import PLACE_S, Backend, Handle, InputLost, Interrupted, RoleDied, Ticket, await_role
from cluster.roles.supervisor import last_line
from envs.api import EnvSpec, Summary
from learner.algorithms import LearnerSetup
from learner.group import Learner, payload_size
from learner.models.config import LANGUAGE_MODEL
from learner.optim.collective import free_address
from learner.rewards import IntrinsicConfig

SLOWEST = 20e6
"""Bytes a second at which a checkpoint is written or read at least: a slow network disk."""
COPIES = 4
"""Copies of the weights in a checkpoint: themselves, Adam's two moments, and those that a penalty compares with."""
TOKENS = "charts/tokens_per_second"
"""The one speed in a report that adds up over ranks."""


def patience(config: Config, size: int) -> float:
    """Seconds that a rank may take to start, save or load, if its weights have `size` bytes."""
    return config.cluster.start_timeout_s + COPIES * size / SLOWEST


@dataclass
class Ready:
    """A chunk that waits for the learner."""

    summary: Summary
    chunk: Any  # a reference
    maker: Handle  # the chunk is lost with its node
    since: float = field(default_factory=time.monotonic)


class LearnerDied(RuntimeError):
    """A rank of the learner group is gone."""

    @classmethod
    def of(cls, death: RoleDied) -> LearnerDied:
        """The first line gives the cause, the others the details."""
        return cls(f"{last_line(str(death))}\n{death}")


class Ranks:
    """`learner.n` processes that compute as a group, started together. `incarnation` counts groups from 0."""

    def __init__(self, backend: Backend, config: Config, name: str, role: type, setup: Any, incarnation: int) -> None:
        self.backend, self.size = backend, config.learner.n
        suffix = f".{incarnation}" if incarnation else ""
        names = [f"{name}-{rank}{suffix}" for rank in range(self.size)]
        address = free_address(backend.meeting(names)) if self.size > 1 else None
        self.ranks: list[Handle] = [backend.start(name, role, setup, rank, address) for rank, name in enumerate(names)]

    def kill(self) -> None:
        for rank in self.ranks:
            self.backend.kill(rank)


def device_of(config: Config) -> str:
    """The key that says where the policy learns."""
    return "policy.lm.device" if config.policy.network == LANGUAGE_MODEL else "learner.device"


def learner_setup(config: Config, spec: EnvSpec, replay: Path) -> LearnerSetup:
    """The arguments of a rank; `replay` is the folder for its replay."""
    actors = config.actors.n, config.actors.envs
    own, intrinsic = config.learner.own, config.method.part(IntrinsicConfig)
    return LearnerSetup(config.learner, config.policy, spec, config.seed, actors, own, replay, intrinsic, config.sync)


class LearnerGroup(Ranks):
    """The learner's ranks as a group. `replay` is the folder for data on disk between two checkpoints."""

    def __init__(self, backend: Backend, config: Config, spec: EnvSpec, incarnation: int, replay: Path) -> None:
        super().__init__(backend, config, "learner", Learner, learner_setup(config, spec, replay), incarnation)
        self.tickets: list[Ticket] = []
        self._timeout_s = patience(config, payload_size(config.policy, spec))
        self._update_timeout_s = config.learner.timeout_s

    def call(self, method: str, *args: Any) -> Any:
        """Call a method with which all ranks begin, and wait. Returns the unread result of rank 0.

        Raises:
            AskedToStop: the run should stop.
            LearnerDied: a rank is gone, raised, or took too long.
            Interrupted: no node had room for a rank.
        """
        tickets = [self.backend.submit(rank, method, *args) for rank in self.ranks]
        for ticket in [*tickets[1:], tickets[0]]:
            self._await(ticket)
        return tickets[0].parts[0]

    def _await(self, ticket: Ticket) -> None:
        """Wait for a call; its time limit starts when its rank has a place."""
        while True:
            try:
                await_role(self.backend, ticket, self._timeout_s)
                return
            except RoleDied as death:
                if self.backend.place(ticket.handle) != "none":
                    raise LearnerDied.of(death) from None
            if time.monotonic() - ticket.submitted > PLACE_S:
                raise Interrupted(
                    f"no node has had room for {ticket.handle.name} in {PLACE_S:.0f} s: add one, then resume"
                )

    def assert_there(self) -> None:
        """Raise `LearnerDied` if a rank's node is gone: without a call in flight, nothing else would notice."""
        for rank in self.ranks:
            if self.backend.place(rank) == "gone":
                raise LearnerDied(f"the node of {rank.name} is gone")

    def save(self, *args: Any, wait: bool) -> float:
        """Let rank 0 write a checkpoint that includes the other ranks' data; see `Learner.save`.

        wait: until it is complete. Otherwise see `Learner.save_beside`, whose result this returns.
        """
        try:
            others = [self.backend.submit(rank, "rank_state") for rank in self.ranks[1:]]
            for ticket in others:
                self.backend.result(ticket, timeout=self._timeout_s)
            kept = [ticket.parts[0] for ticket in others]
            saving = self.backend.submit(self.ranks[0], "save" if wait else "save_beside", *args, *kept)
            written = self.backend.result(saving, timeout=self._timeout_s)
            return 0.0 if wait else float(written)
        except RoleDied as death:
            raise LearnerDied.of(death) from None

    def begin(self, version: int, env_steps: int, chunks: Sequence[Ready]) -> None:
        """Start an update; the chunks of actor a go to rank a % n."""
        for rank, handle in enumerate(self.ranks):
            own = [ready.chunk for ready in chunks if ready.summary.actor % self.size == rank]
            self.tickets.append(self.backend.submit(handle, "update", version, env_steps, *own, returns=2))

    def take(self, done: list[Ticket]) -> tuple[dict[str, Any], Any] | None:
        """The report (summed or averaged over ranks) and the weights, once every rank has finished.

        Raises:
            LearnerDied: a rank is gone, raised, or took too long.
            InputLost: a chunk is gone with its node, and no rank has learned from any chunk.
        """
        finished = [t for t in self.tickets if t in done or t in self.backend.wait([t], 0)]
        for ticket in finished:  # report a rank that raised before its peers, which wait for it, time out
            self._read(ticket)
        if not self.tickets or len(finished) < len(self.tickets):
            if self.tickets and time.monotonic() - self.tickets[0].submitted > self._update_timeout_s:
                raise LearnerDied(f"an update took more than {self._update_timeout_s:.0f} s")
            return None
        reports = [self._read(ticket) for ticket in self.tickets]
        weights = self.tickets[0].parts[1]
        self.tickets = []
        report = reports[0] | {
            "learned": sum(r["learned"] for r in reports),
            "dropped": sum(r["dropped"] for r in reports),
            "policy/lag_max": max(r["policy/lag_max"] for r in reports),
            "seconds": max(r["seconds"] for r in reports),
        }
        if TOKENS in report:
            report[TOKENS] = sum(r[TOKENS] for r in reports)
        return report, weights

    def _read(self, ticket: Ticket) -> Any:
        try:
            return self.backend.result(ticket)
        except InputLost:
            if self.size == 1:
                self.tickets = []
                raise
            raise LearnerDied(
                "a chunk is gone with its node, and the other ranks wait for the rank that needs it"
            ) from None
        except RoleDied as death:
            raise LearnerDied.of(death) from None
