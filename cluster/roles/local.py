"""Ray on this machine: one process per role, everything on loopback, and a token of this process for the dashboard.

    /tmp/cairn-XXXXXXXX/token, ray/session_.../{logs,sockets}     mode 0700, removed at the end

Ray reads its authentication settings once, when it is imported, so the token is made before that, only here. A process
that joins another Ray cluster (`joined`) has that cluster's token. By default Ray keeps logs and sockets where
everybody may write. If RAY_TMPDIR is set, as in a SLURM job, they are kept there instead.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cluster.metrics.exporting import beats, exporting
from cluster.roles.backend import (
    JOIN,
    LOOPBACK,
    PLACE_S,
    Handle,
    InputLost,
    Interrupted,
    NodeLost,
    Place,
    RoleDied,
    Ticket,
    assert_unasked,
    raise_final,
    unasked,
)
from cluster.roles.checkout import refuse_shadowed_workers
from cluster.roles.placement import Plan, Reservation
from llm_service.errors import UsageError


def write_secret(path: Path, secret: str) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret)


LONGEST = 24
"""Longest path of Ray's folder, in bytes: socket paths in it then have at most 107 bytes, the kernel's limit."""


def make_private() -> Path:
    """A folder with a short path that only this user can enter, in the system's folder for temporary files.

    Raises:
        UsageError: it cannot be created.
    """
    place = tempfile.gettempdir()
    if len(os.fsencode(place)) > LONGEST:
        place = "/tmp"
    try:
        return Path(tempfile.mkdtemp(prefix="cairn-", dir=place))
    except OSError as error:
        raise UsageError(
            f"cannot create this run's folder in {place}, {error.strerror}: free space, or set TMPDIR to another folder"
        ) from None


SEES_NONE = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"
"""Ray's name of a switch: a process that was given no GPU sees none, instead of all."""


def _make_token(folder: Path) -> str:
    token = secrets.token_hex(32)
    write_secret(folder / "token", token)
    os.environ |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "RAY_USAGE_STATS_ENABLED": "0",
        SEES_NONE: "1",
        # A process for each core, started in advance, that no role can use: its environment is another one.
        "RAY_prestart_worker_first_driver": "0",
    }
    # Ray's own is 15: the kernel would give the controller as much weight as 28 actors, which wait while it computes.
    os.environ.setdefault("RAY_worker_niceness", "0")
    return token


TOKEN, FILES = "", ""
if JOIN not in os.environ:
    _private = make_private()
    atexit.register(shutil.rmtree, _private, ignore_errors=True)
    TOKEN = _make_token(_private)
    if "RAY_TMPDIR" not in os.environ:
        FILES = str(_private / "ray")

import ray  # noqa: E402 - after the token
from ray._private.state import state  # noqa: E402

from cluster.roles.ray_start import only_our_words, only_what_is_used, stay_on_loopback  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


STARTS = 3
"""How often starting Ray is tried: on a busy machine its head may take longer than the half minute that Ray waits."""


def _init(look: Callable[[], None], dashboard: bool, **options: Any) -> Any:
    """`ray.init`, repeated if Ray's own processes did not start. Leftovers of a failed start end with this process.

    Args:
        look: called before each try; an exception ends them.

    Raises:
        Interrupted: they never started.
    """
    for _ in range(STARTS):
        look()
        try:
            with stay_on_loopback(), only_our_words(), only_what_is_used(dashboard):
                # Its own cluster, whatever else runs on this machine.
                return ray.init("local", include_dashboard=dashboard, **options)
        except Exception as error:  # Ray has no exception class for this, and nothing was requested yet
            ray.shutdown()
            cause = str(error).strip().splitlines()[-1]
    raise Interrupted(
        f"Ray did not start on this machine in {STARTS} tries: {cause}; resume when memory and a processor are free"
    )


def _why(error: Exception) -> str:
    """Why a call has no result, without colour; for a dead process one line instead of Ray's page of guesses."""
    text = re.sub(r"\x1b\[\d+m", "", str(error))
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return "its node ran out of memory, and Ray ended its process: take fewer actors or envs, or more memory"
    if not isinstance(error, ray.exceptions.RayActorError) or error.actor_init_failed:
        return text
    if isinstance(error, ray.exceptions.ActorUnavailableError):
        return "its process no longer answers"
    if "its worker process has died" in text:
        pid = "".join(re.findall(r"^\tpid:( \d+)$", text, re.MULTILINE))
        return f"its process{pid} has died: it crashed or was killed, perhaps for lack of memory"
    if "its node has died" in text:
        return "its node has died"
    return text.strip().splitlines()[-1].partition(". ")[0]


def runtime_env() -> dict[str, Any]:
    """The environment of a role's process: our packages on its path, and one thread unless it needs more."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        "env_vars": {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": path, SEES_NONE: "1"},
        "worker_process_setup_hook": refuse_shadowed_workers,
    }


def answers(node: dict[str, Any]) -> bool:
    """Whether a node of `ray.nodes()` answers: Ray lists a dead node as alive for some 15 s, or for a minute."""
    if not node["Alive"]:
        return False
    try:
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), timeout=2.0).close()
    except OSError:
        return False
    return True


def _call(target: Any, method: str, timeout: float, *args: Any) -> Any:
    """Call a role's method from another role."""
    return ray.get(getattr(target, method).remote(*args), timeout=timeout)


class Local:
    """A Ray cluster on this machine that exists as long as this object.

    Args:
        roles: how many roles will be started. Each asks for one CPU, and Ray gets as many CPUs as there are roles,
            because roles that wait for each other can share a core.
        token_file: file in the run's folder, mode 0600, where people find the dashboard's token.
        dashboard: start Ray's dashboard and metrics endpoint.
        stop_reason: see `Backend`.
        plan, gpus: who computes on which of this many GPUs.
        store: bytes of the object store.
    """

    def __init__(
        self,
        roles: int,
        token_file: Path,
        dashboard: bool,
        stop_reason: Callable[[], str] = unasked,
        plan: Plan | None = None,
        gpus: int = 0,
        store: int = 1_000_000_000,
    ) -> None:
        self._begin(token_file.parent.name, stop_reason)
        self._token_file = token_file
        write_secret(token_file, TOKEN)
        metrics_port = _free_port()
        context = _init(
            lambda: assert_unasked(self),
            dashboard,
            num_cpus=roles,
            num_gpus=gpus,
            resources={"learner": 1},
            dashboard_host="127.0.0.1",
            dashboard_port=_free_port(),
            _node_ip_address="127.0.0.1",
            _temp_dir=FILES or None,
            _metrics_export_port=metrics_port,
            object_store_memory=store,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env=runtime_env(),
        )
        self._reserved = Reservation(plan or Plan())
        if dashboard:
            self.links["dashboard"] = f"http://{context.dashboard_url}"
            self.links["metrics"] = f"http://127.0.0.1:{metrics_port}/metrics"

    def _begin(self, run: str, stop_reason: Callable[[], str]) -> None:
        self._run, self.stop_reason = run, stop_reason
        self.links: dict[str, str] = {}
        self._started: Counter[str] = Counter()

    def resources(self, name: str) -> dict[str, Any]:
        if seat := self._reserved.plan.seat(name):
            self._await_gpus()
            return self._reserved.options(seat)
        return self._without_gpu(name)

    def _without_gpu(self, name: str) -> dict[str, Any]:
        """Arguments of `ray.remote` for a role that computes on the processor."""
        return {"num_cpus": 1}

    def _await_gpus(self) -> list[dict[str, Any]]:
        """The nodes of the reserved GPUs, as Ray lists them, once it has placed them on nodes that answer.

        Raises:
            Interrupted: there is no room, for `PLACE_S` seconds.
        """
        ends = time.monotonic() + PLACE_S
        while True:
            assert_unasked(self)
            listed = {node["NodeID"]: node for node in ray.nodes()}  # type: ignore[no-untyped-call]
            nodes = [listed[one] for one in self._reserved.nodes()]
            if nodes and all(answers(node) for node in nodes):
                return nodes
            if time.monotonic() > ends:
                bundles = self._reserved.plan.bundles
                raise Interrupted(
                    f"no nodes have had {sum(bundles):g} free GPUs for {PLACE_S:.0f} s: add some, then resume"
                )
            time.sleep(0.2)

    def meeting(self, names: Sequence[str]) -> str:
        seats = [self._reserved.plan.seat(name) for name in names]
        if None in seats:  # on the learner's node
            return LOOPBACK
        nodes = self._await_gpus()
        own = [nodes[seat.bundle] for seat in seats if seat]
        several = len({node["NodeID"] for node in own}) > 1
        return str(own[0]["NodeManagerAddress"]) if several else LOOPBACK

    def start(self, name: str, cls: type, *args: Any) -> Handle:
        # One call at a time, in the main thread, except for a role with many callers. Where Ray's threads do the
        # work, its main thread wakes every 10 ms to check signals: with 64 such actors, a tenth of two cores.
        options: dict[str, Any] = {"max_concurrency": cls.concurrency} if hasattr(cls, "concurrency") else {}
        options |= {"max_restarts": 0, "enable_task_events": False}  # Ray's log of calls: its cost grows with chunks
        remote: Any = ray.remote(**options, **self.resources(name))(exporting(cls, name, self._run))
        # Ray frees a name some time after its actor was killed: a successor does not wait for that.
        self._started[name] += 1
        unique = name if self._started[name] == 1 else f"{name}#{self._started[name]}"
        return Handle(name, remote.options(name=unique).remote(*args))

    def submit(self, handle: Handle, method: str, *args: Any, returns: int = 1) -> Ticket:
        refs = getattr(handle.target, method).options(num_returns=returns).remote(*args)
        return Ticket(handle, method, tuple(refs) if returns > 1 else (refs,))

    def caller(self, handle: Handle, method: str, timeout: float) -> Callable[..., Any]:
        return partial(_call, handle.target, method, timeout)

    def wait(self, tickets: Sequence[Ticket], timeout: float, several: int = 1) -> list[Ticket]:
        if not tickets:
            time.sleep(timeout)
            return []
        by_ref = {ticket.parts[0]: ticket for ticket in tickets}
        several = min(several, len(by_ref))
        done, _ = ray.wait(list(by_ref), num_returns=several, timeout=timeout, fetch_local=False)
        if done:  # take everything else that is ready too
            done, _ = ray.wait(list(by_ref), num_returns=len(by_ref), timeout=0, fetch_local=False)
        return [by_ref[ref] for ref in done]

    def result(self, ticket: Ticket, part: int = 0, timeout: float = 60.0) -> Any:
        try:
            return ray.get(ticket.parts[part], timeout=timeout)
        except ray.exceptions.RayTaskError as error:
            raise_final(error.cause, ticket.handle.name)
            kind = InputLost if isinstance(error.cause, ray.exceptions.ObjectLostError) else RoleDied
            raise kind(f"{ticket.handle.name}: {_why(error)}") from None
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError) as error:
            kind = NodeLost if self.place(ticket.handle) == "gone" else RoleDied
            raise kind(f"{ticket.handle.name} in {ticket.method}: {_why(error)}") from None

    def place(self, handle: Handle) -> Place:
        row = state.actor_table(actor_id(handle))
        if not row or (row["State"] != "DEAD" and not row["Pid"]):
            return "none"
        # A role that died before it had a process was meant for this node.
        own = [node for node in ray.nodes() if node["NodeID"] == row["Address"]["NodeID"]]  # type: ignore[no-untyped-call]
        return "there" if all(answers(node) for node in own) else "gone"

    def heartbeats(self, handles: Sequence[Handle]) -> dict[str, dict[str, Any]]:
        names = {actor_id(handle): handle.name for handle in handles}
        return {names[actor]: beat for actor, beat in beats(list(names)).items()}

    def kill(self, handle: Handle) -> None:
        ray.kill(handle.target, no_restart=True)

    def shutdown(self) -> None:
        ray.shutdown()
        if FILES:
            shutil.rmtree(FILES, ignore_errors=True)
        # On a shared disk, an attempt on another host may have replaced our token by its own.
        if self._token_file.exists() and self._token_file.read_text() == TOKEN:
            self._token_file.unlink(missing_ok=True)


def actor_id(handle: Handle) -> str:
    """The id of a role's actor in Ray."""
    return str(handle.target._actor_id.hex())
