"""An existing Ray cluster, on one machine or many: for example a job's batch script started it, and this process joins.

    CAIRN_RAY_ADDRESS  HOST:PORT of Ray's head              CAIRN_RAY_NODES  nodes to wait for
    RAY_AUTH_TOKEN_PATH  the file with the token that all of Ray's processes share

Roles that compute with models run on one node with the resource `learner`; if the node dies, they move to another one
with the resource. GPUs are placed by `placement.py`: what that node has no room for is on other nodes. Actors run
wherever a CPU is free; the others wait for nodes that join later. Without Ray's head a run ends, and can be resumed on
another cluster.
"""

from __future__ import annotations

import atexit
import logging
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
from cluster.roles import placement
from cluster.roles.backend import (
    JOIN,
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
from cluster.roles.local import Local, actor_id, answers, runtime_env
from cluster.roles.object_store import object_store
from cluster.topology import topology
from llm_service.errors import UsageError

NODES = "CAIRN_RAY_NODES"

import ray  # noqa: E402 - after `local`, which sees to the token first
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

from cluster.roles.ray_start import only_our_words  # noqa: E402

HEAD_S = 20.0
"""How long Ray's head may be unreachable. After 60 s, Ray ends a process without a message."""


def backend(config: Config, token_file: Path, stop_reason: Callable[[], str] = unasked) -> Backend:
    """The Ray cluster that the environment names, otherwise a new one on this machine.

    Raises:
        AskedToStop: the run should stop before the cluster is complete.
        UsageError: the named cluster has no token, or a cluster does not have the GPUs that the run needs.
        Interrupted: the named cluster is unreachable or incomplete.
    """
    if JOIN in os.environ:
        if os.environ.get("RAY_AUTH_MODE") != "token":
            raise UsageError(
                f"{JOIN} names a Ray cluster without a token: start it and this run with RAY_AUTH_MODE=token"
            )
        return Joined(config, os.environ[JOIN], int(os.environ.get(NODES, "1")), stop_reason)
    gpus = placement.here()
    plan = placement.plan(config, [gpus])
    roles, store = topology(config).processes, object_store(config)
    return Local(roles, token_file, config.cluster.dashboard, stop_reason, plan, gpus, store)


class Joined(Local):
    """A Ray cluster that was started elsewhere, and that outlives this object.

    address: HOST:PORT of the head.
    nodes: how many must have joined before anything starts; the wait lasts `cluster.start_timeout_s` seconds.
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
        self._config, self._address = config, address
        try:
            self._reserved = placement.Reservation(placement.plan(config, *_gpus(config)))
        except UsageError:
            ray.shutdown()
            raise
        self._home, self._seen = "", time.monotonic()
        self._lost: Interrupted | None = None

    def _without_gpu(self, name: str) -> dict[str, Any]:
        if demand := getattr(launcher(self._config.cluster.name), "demand", None):
            return dict(demand(self._config, name))
        if name.startswith(("actor-", "replica-")):  # anywhere
            return {"num_cpus": 1}
        # Hard: if that node dies before the role has started, the role dies, and its successor finds another node.
        there = NodeAffinitySchedulingStrategy(self._find_home(), soft=False)
        return {"num_cpus": 0, "resources": placement.HOME, "scheduling_strategy": there}

    def _find_home(self) -> str:
        """The id of the computing node: the same while it is alive, then another with the resource `learner`."""
        ends = time.monotonic() + PLACE_S
        while True:
            assert_unasked(self)
            homes = [node["NodeID"] for node in alive() if "learner" in node["Resources"] and answers(node)]
            if homes:
                self._home = self._home if self._home in homes else homes[0]
                return self._home
            if time.monotonic() > ends:
                raise Interrupted(
                    f"there has been no node with Ray's resource 'learner' for {PLACE_S:.0f} s: start one, then resume"
                )
            time.sleep(1.0)
            self._assert_head()

    # Without its head, Ray waits for a minute and then ends this process, so the head is checked first.

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
        """Raise `Interrupted` once Ray's head has been unreachable for `HEAD_S` seconds, and from then on."""
        if self._lost is None and (at_once or time.monotonic() - self._seen > LOOK_S):
            try:
                _await_port(self._address, time.monotonic() + HEAD_S)
                self._seen = time.monotonic()
            except Interrupted:
                self._lost = Interrupted(
                    f"Ray's head on {self._address} is gone: everything after the last checkpoint is lost; "
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
    """End this process after everything else: at exit Ray would wait for its head, and finally crash."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(Interrupted.exit_code)


def _gpus(config: Config) -> tuple[list[int], str]:
    """GPUs of each node, the learner's first, and what has them. Kubernetes adds its pods when they are asked for."""
    if config.cluster.name == "kubernetes":
        return placement.declared(config)
    found = [("learner" in node["Resources"], int(node["Resources"].get("GPU", 0))) for node in alive()]
    return [count for _, count in sorted(found, reverse=True)], "each node of this Ray"


def alive() -> list[dict[str, Any]]:
    """Ray's nodes that are alive."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"]]


def _await_port(address: str, deadline: float, look: Callable[[], None] = lambda: None) -> None:
    """Return when something listens on HOST:PORT. Ray itself would wait forever.

    Args:
        look: called before each try; an exception ends the wait.

    Raises:
        Interrupted: nothing listens by the deadline.
    """
    host, _, port = address.rpartition(":")
    while True:
        look()
        try:
            return socket.create_connection((host, int(port)), timeout=LOOK_S).close()
        except OSError as error:
            if time.monotonic() > deadline:
                raise Interrupted(
                    f"Ray's head does not answer on {address}, {error.strerror or error}: see the log of its start, "
                    "which a SLURM job writes to ray-0.txt in the run folder"
                ) from None
            time.sleep(0.5)
