"""Ray that is there already, on one machine or many: a job's batch script started it, this process joins it.

    CAIRN_RAY_ADDRESS  HOST:PORT of Ray's head              CAIRN_RAY_NODES  nodes to wait for
    RAY_AUTH_TOKEN_PATH  the file with the token that all of Ray's processes share

Roles that compute with models are on one node with the resource `learner` (ranks of a learner meet on its loopback
address), and share its GPUs; if it dies, on another that has the resource. Actors are wherever a CPU is free, those
that find none on nodes that join later. Without Ray's head a run ends, and goes on on another cluster.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cluster.config.tree import Config
from cluster.jobs import launcher
from cluster.metrics.exporting import forget
from cluster.roles.backend import (
    LOOK_S,
    PLACE_S,
    Backend,
    Handle,
    Interrupted,
    Place,
    Ticket,
    assert_unasked,
    unasked,
)
from cluster.roles.local import JOIN, Local, actor_id, answers, only_our_words, runtime_env
from cluster.topology import topology
from llm_service.errors import UsageError

NODES = "CAIRN_RAY_NODES"

import ray  # noqa: E402 - after `local`, which sees to the token first
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

LEARNER = {"learner": 1e-4}  # a share of the resource that marks the learner's node: however many roles ask, they fit
COMPUTING = ("learner", "fitter", "policy")  # roles that want a share of a GPU
HEAD_S = 20.0
"""Ray's head may be out of reach for so long. Ray ends a process without a word after 60 s of that."""


def backend(config: Config, token_file: Path, stop_reason: Callable[[], str] = unasked) -> Backend:
    """Ray as this process finds it: the one that its environment names, else one of its own on this machine.

    Raises:
        AskedToStop: the run should stop, before all of it was there.
        UsageError: the one named is open to anyone.
        Interrupted: it is not there, or not whole.
    """
    if JOIN in os.environ:
        if os.environ.get("RAY_AUTH_MODE") != "token":
            raise UsageError(f"{JOIN} names a Ray without a token: start it and this run with RAY_AUTH_MODE=token")
        return Joined(config, os.environ[JOIN], int(os.environ.get(NODES, "1")), stop_reason)
    return Local(topology(config).processes, token_file, config.cluster.dashboard, stop_reason)


class Joined(Local):
    """A Ray cluster that others have started, and that outlives this object.

    address: HOST:PORT of the head.
    nodes: how many there must be before anything starts; waited for `cluster.start_timeout_s` seconds.
    stop_reason: see `Backend`.
    """

    def __init__(self, config: Config, address: str, nodes: int, stop_reason: Callable[[], str] = unasked) -> None:
        deadline = time.monotonic() + config.cluster.start_timeout_s
        self._begin(config.run.name, stop_reason)
        _await_port(address, deadline, lambda: assert_unasked(self))
        with only_our_words():
            context = ray.init(address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=runtime_env())
        if config.cluster.dashboard and context.dashboard_url:
            self.links["dashboard"] = f"http://{context.dashboard_url}"
            answering = (f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}" for node in alive())
            self.links["metrics"] = ", ".join(f"http://{place}/metrics" for place in answering)
        while (there := len(alive())) < nodes:
            if self.stop_reason() or time.monotonic() > deadline:
                ray.shutdown()
                assert_unasked(self)
                raise Interrupted(
                    f"{there} of {nodes} nodes have joined Ray on {address} in {config.cluster.start_timeout_s:.0f} s: "
                    "see ray-*.txt in the run folder for their errors, or raise cluster.start_timeout_s"
                )
            time.sleep(1.0)
        gpus = max((node["Resources"].get("GPU", 0.0) for node in alive() if "learner" in node["Resources"]), default=0)
        self._config, self._address = config, address
        self._home, self._seen = "", time.monotonic()
        self._lost: Interrupted | None = None
        self._gpus = share(gpus - config.llm.replicas * config.llm.gpus, config)

    def _resources(self, name: str) -> dict[str, Any]:
        if demand := getattr(launcher(self._config.cluster.name), "demand", None):
            return dict(demand(self._config, name))
        if name.startswith("actor-"):
            return {"num_cpus": 1}
        computes = name.startswith(COMPUTING)
        # Hard: if that node dies before the role is there, the role is dead, and the next finds another node.
        there = NodeAffinitySchedulingStrategy(self._find_home(), soft=False)
        demand = {"num_cpus": 0, "resources": LEARNER, "num_gpus": self._gpus if computes else 0}
        return demand | {"scheduling_strategy": there}

    def _find_home(self) -> str:
        """The id of the node that computes: the same while it lives, then another with the resource `learner`."""
        ends = time.monotonic() + PLACE_S
        while True:
            assert_unasked(self)
            homes = [node["NodeID"] for node in alive() if "learner" in node["Resources"] and answers(node)]
            if homes:
                self._home = self._home if self._home in homes else homes[0]
                return self._home
            if time.monotonic() > ends:
                raise Interrupted(
                    f"no node with Ray's resource 'learner' has been there for {PLACE_S:.0f} s: start one, then resume"
                )
            time.sleep(1.0)
            self._assert_head()

    # Without its head much of Ray waits for a minute, and then ends this process: it is looked for before that.

    def start(self, name: str, cls: type, *args: Any) -> Handle:
        self._assert_head()
        return super().start(name, cls, *args)

    def wait(self, tickets: Sequence[Ticket], timeout: float, several: int = 1) -> list[Ticket]:
        self._assert_head()
        return super().wait(tickets, timeout, several)

    def result(self, ticket: Ticket, part: int = 0, timeout: float = 60.0) -> Any:
        ends = time.monotonic() + timeout
        while not super().wait([ticket], min(LOOK_S, max(0.0, ends - time.monotonic()))) and time.monotonic() < ends:
            self._assert_head()
        return super().result(ticket, part, max(0.0, ends - time.monotonic()))

    def place(self, handle: Handle) -> Place:
        self._assert_head(at_once=True)
        return super().place(handle)

    def heartbeats(self, handles: Sequence[Handle]) -> dict[str, dict[str, Any]]:
        if self._lost:
            return {}
        self._assert_head()
        return super().heartbeats(handles)

    def _assert_head(self, at_once: bool = False) -> None:
        """Raise `Interrupted` once Ray's head has been out of reach for `HEAD_S` seconds, and from then on."""
        if self._lost is None and (at_once or time.monotonic() - self._seen > LOOK_S):
            try:
                _await_port(self._address, time.monotonic() + HEAD_S)
                self._seen = time.monotonic()
            except Interrupted:
                self._lost = Interrupted(
                    f"Ray's head on {self._address} is gone: what came after the last checkpoint is lost; "
                    "resume on another cluster"
                )
        if self._lost:
            raise self._lost

    def kill(self, handle: Handle) -> None:
        if self._lost is None:
            super().kill(handle)
            forget(actor_id(handle))

    def shutdown(self) -> None:
        if self._lost:
            atexit.register(_leave)
        else:
            ray.shutdown()


def _leave() -> None:
    """End this process, all else being done: Ray would wait for its head here, and crash in the end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(Interrupted.exit_code)


def share(gpus: float, config: Config) -> float:
    """What a computing role gets of `gpus` GPUs, so that all of them fit: 1, or 1/k of one."""
    wanted = {role.name: role.count for role in topology(config).roles if role.name in COMPUTING}
    # Roles of one stage are there at a time: a fitter is gone before a learner comes.
    number = max(wanted.get("learner", 0), wanted.get("fitter", 0)) + wanted.get("policy", 0)
    return 1 / math.ceil(number / int(gpus)) if gpus >= 1 and number else 0.0


def alive() -> list[dict[str, Any]]:
    """Ray's nodes that work."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"]]


def _await_port(address: str, deadline: float, look: Callable[[], None] = lambda: None) -> None:
    """Return when something listens on HOST:PORT: Ray itself would wait for it without an end.

    Args:
        look: called before each try; what it raises ends the wait.

    Raises:
        Interrupted: by the deadline nothing does.
    """
    host, _, port = address.rpartition(":")
    while True:
        look()
        try:
            return socket.create_connection((host, int(port)), timeout=LOOK_S).close()
        except OSError as error:
            if time.monotonic() > deadline:
                raise Interrupted(
                    f"Ray's head does not answer on {address}, {error.strerror or error}: see what its own start said, "
                    "in a job of SLURM in ray-0.txt of the run folder"
                ) from None
            time.sleep(0.5)
