"""Ray on this machine: one process a role, everything on loopback, the dashboard behind a token of this run."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

from cluster.backend import Handle, RoleDied, Ticket

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("envs", "llm_service", "learner", "actors", "cluster")


def assert_own_packages() -> None:
    """Fail if any of our packages was imported from elsewhere: their names are common, and an installed package that
    shadows one would give wrong results instead of an error. Also runs in every Ray worker."""
    import importlib

    for name in PACKAGES:
        origin = Path(str(importlib.import_module(name).__file__)).resolve()
        if not origin.is_relative_to(ROOT):
            raise ImportError(f"package {name!r} was imported from {origin}, not from {ROOT}: remove it from sys.path")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Local:
    """A Ray cluster of this machine that lives as long as this object.

    Args:
        roles: how many roles will be started; each asks for one CPU, and Ray is told of as many, since roles that wait
            for each other may share a core.
        token_file: where this run's Ray token is written, mode 0600.
        dashboard: start Ray's dashboard and metrics endpoint.
        start_timeout_s: bound on reading a first result.
    """

    def __init__(self, roles: int, token_file: Path, dashboard: bool) -> None:
        token_file.unlink(missing_ok=True)
        descriptor = os.open(token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
        self._token_file = token_file
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        os.environ |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token_file.resolve()),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }
        metrics_port = _free_port()
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        context = ray.init(
            num_cpus=roles,
            include_dashboard=dashboard,
            dashboard_host="127.0.0.1",
            dashboard_port=_free_port(),
            _node_ip_address="127.0.0.1",
            _metrics_export_port=metrics_port,
            object_store_memory=1_000_000_000,
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env={"env_vars": threads | {"PYTHONPATH": path}, "worker_process_setup_hook": assert_own_packages},
        )
        self.links: dict[str, str] = {}
        if dashboard:
            self.links = {
                "dashboard": f"http://{context.dashboard_url}",
                "metrics": f"http://127.0.0.1:{metrics_port}/metrics",
            }

    def start(self, name: str, cls: type, *args: Any) -> Handle:
        options: dict[str, Any] = {"num_cpus": 1, "name": name, "max_restarts": 0}
        remote: Any = ray.remote(cls)
        if hasattr(cls, "heartbeat"):
            # A plain actor is deaf while a long call runs: heartbeats have a thread of their own.
            options["concurrency_groups"] = {"heartbeat": 1}
        return Handle(name, remote.options(**options).remote(*args))

    def submit(self, handle: Handle, method: str, *args: Any, returns: int = 1) -> Ticket:
        refs = getattr(handle.target, method).options(num_returns=returns).remote(*args)
        return Ticket(handle, method, tuple(refs) if returns > 1 else (refs,))

    def wait(self, tickets: Sequence[Ticket], timeout: float) -> list[Ticket]:
        if not tickets:
            return []
        by_ref = {ticket.parts[0]: ticket for ticket in tickets}
        done, _ = ray.wait(list(by_ref), num_returns=1, timeout=timeout, fetch_local=False)
        if done:  # one came: take whatever else is there too
            done, _ = ray.wait(list(by_ref), num_returns=len(by_ref), timeout=0, fetch_local=False)
        return [by_ref[ref] for ref in done]

    def result(self, ticket: Ticket, part: int = 0, timeout: float = 60.0) -> Any:
        try:
            return ray.get(ticket.parts[part], timeout=timeout)
        except ray.exceptions.RayTaskError as error:
            raise RoleDied(f"{ticket.handle.name}: {error}") from None
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError) as error:
            raise RoleDied(f"{ticket.handle.name} in {ticket.method}: {error}") from None

    def heartbeats(self, handles: Sequence[Handle], timeout: float = 0.5) -> dict[str, dict[str, Any]]:
        refs = {h.target.heartbeat.options(concurrency_group="heartbeat").remote(): h.name for h in handles}
        done, _ = ray.wait(list(refs), num_returns=len(refs), timeout=timeout) if refs else ([], [])
        answers = {}
        for ref in done:
            with contextlib.suppress(ray.exceptions.RayError):  # its death is noticed by the call it was working on
                answers[refs[ref]] = ray.get(ref, timeout=timeout)
        return answers

    def kill(self, handle: Handle) -> None:
        ray.kill(handle.target, no_restart=True)

    def shutdown(self) -> None:
        ray.shutdown()
        self._token_file.unlink(missing_ok=True)
        sys.stdout.flush()
