"""Does any of our servers answer beyond this machine? Asked as a stranger would: without a token, not on loopback.

    psutil: who listens, and where ──> Ray, Redis, LLM services, runs ──> a call to this machine's own external address
                                                                              └──> Exposed: who answered, and what

A port is judged by its answer, not by the address that it is bound to. Ports of other programs are tried only if they
are well known and dangerous when open: 6379, 8265, 10001 and the like.

Limit: this does not see a firewall between this machine and others, because the call never leaves the machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Literal

import psutil

Address = IPv4Address | IPv6Address
Whose = Literal["run", "job", ""]
TIMEOUT_S = 1.0

KINDS = {
    "Ray": r"^ray::|/(gcs_server|raylet)( |$)|/ray/(dashboard|autoscaler|_private)/|ray\.util\.client|cluster\.head",
    "Redis": r"^(\S*/)?redis-server( |$)",
    "LLM service": r" llm_service\.server( |$)| (\S*/)?launch\.py llm serve( |$)",
    "a run": r" (\S*/)?launch\.py( |$)",
    "Prometheus": r"^(\S*/)?prometheus( |$)",
    "Grafana": r"^(\S*/)?grafana(-server)?( |$)",
}
"""The kind of a process, by its command line."""
WELL_KNOWN = {6379: "Redis or Ray", 8265: "Ray", 10001: "Ray", 9090: "Prometheus", 3000: "Grafana"}
RUN = re.compile(r"/cairn-\w{8}/token$")
"""At the end of RAY_AUTH_TOKEN_PATH, of Ray's processes: the token that `cluster.roles.local` made."""
JOB = "CAIRN_JOB"
"""In the environment of every process that a job has started."""
METHODS = (
    "ray.rpc.NodeInfoGcsService/CheckAlive",
    "ray.rpc.NodeManagerService/GetNodeStats",
    "ray.rpc.CoreWorkerService/NumPendingTasks",
    "ray.rpc.ReporterService/HealthCheck",
    "ray.rpc.RayletDriver/ClusterInfo",
    "cairn.llm.v1.LLM/Health",
)
"""For each gRPC server, one read-only method that requires the token if the server has one."""


class Answer(Enum):
    """How a port answers a caller without a token."""

    OPEN = "without a token"
    NUMBERS = "with read-only metrics"
    GUARDED = "and requires a token"
    SILENT = "and does not say whether it requires a token"


@dataclass(frozen=True)
class Listener:
    """A TCP socket that accepts connections."""

    host: Address
    port: int
    pid: int = 0  # 0: not a known process of this user
    kind: str = ""  # of `KINDS`, or of `WELL_KNOWN`; empty: not ours
    of: Whose = ""  # of Cairn: of a run on this machine, or in a job of several nodes


@dataclass(frozen=True)
class Exposed:
    """A listener that answered at an external address."""

    listener: Listener
    address: Address
    answer: Answer

    def __str__(self) -> str:
        who = f"{self.listener.kind} (pid {self.listener.pid})" if self.listener.pid else self.listener.kind
        host = f"[{self.address}]" if self.address.version == 6 else str(self.address)
        return f"{who} answers on {host}:{self.listener.port} {self.answer.value}"


def external_addresses() -> list[Address]:
    """Addresses of this machine that others may reach: all except loopback and link-local ones."""
    families = (socket.AF_INET, socket.AF_INET6)
    own = [one for addresses in psutil.net_if_addrs().values() for one in addresses if one.family in families]
    found = {ip_address(one.address.partition("%")[0]) for one in own}  # behind %: the interface of a link's address
    outside = [address for address in found if not (address.is_loopback or address.is_link_local)]
    return sorted(outside, key=lambda address: (address.version, int(address)))


def listeners() -> list[Listener]:
    """Every listening TCP socket of this network namespace; sockets of our processes are marked."""
    found = []
    for one in psutil.net_connections("tcp"):
        if one.status == psutil.CONN_LISTEN:
            host = ip_address(one.laddr.ip)
            kind, of = _owner(one.pid)
            pid = one.pid if kind else 0
            known = kind or WELL_KNOWN.get(one.laddr.port, "")
            found.append(Listener(getattr(host, "ipv4_mapped", None) or host, one.laddr.port, pid, known, of))
    return found


def exposed(addresses: Sequence[Address], found: Sequence[Listener]) -> list[Exposed]:
    """The listeners of ours that answer on one of these addresses, each once."""
    at_port = defaultdict(list)
    for listener in found:
        at_port[listener.port].append(listener)
    calls: dict[Listener, list[Address]] = defaultdict(list)
    for sharing in at_port.values():
        for address in addresses:  # the kernel prefers a socket bound to the address over one bound to any
            owner = min(sharing, key=lambda one: (one.host != address, not one.host.is_unspecified))
            if owner.kind:
                calls[owner].append(address)

    def first(item: tuple[Listener, list[Address]]) -> Exposed | None:
        listener, where = item
        answers = ((address, ask(address, listener.port)) for address in where)
        return next((Exposed(listener, address, answer) for address, answer in answers if answer), None)

    with ThreadPoolExecutor(16) as pool:
        return [one for one in pool.map(first, calls.items()) if one]


def ask(address: Address, port: int) -> Answer | None:
    """How a port on an address of this machine answers a caller without a token; None: nothing listens there."""
    try:
        said = _said(address, port, b"PING\r\n\r\n", len(b"+PONG\r\n"))
        if said.startswith(b"+PONG"):
            return Answer.OPEN
        if said.startswith((b"-NOAUTH", b"-DENIED", b"-NOPERM")):  # a Redis with a password, or in its protected mode
            return Answer.GUARDED
        if said[3:9] == b"\x04\0\0\0\0\0":  # HTTP/2 begins with settings: gRPC
            return _grpc(address, port)
        # Ray's dashboard shows its page to anyone, but nothing behind it; metrics answer at any path.
        request = b"GET /api/cluster_status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        reply = _said(address, port, request, 4096)
    except OSError:
        return None
    status = re.match(rb"HTTP/1\.\d (\d{3})", reply)
    if status and status[1] in (b"401", b"403"):
        return Answer.GUARDED
    if status and status[1] == b"200":
        return Answer.NUMBERS if b"\n# HELP " in reply else Answer.OPEN
    return Answer.SILENT


# ---- processes ------------------------------------------------------------------------------------------------------


def _owner(pid: int | None) -> tuple[str, Whose]:
    """What a process of this user is, and whose; empty if it is nothing of ours, or has ended."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid) if pid else None
        if process and process.uids().real == os.getuid() and (kind := _kind(process)):
            return kind, _of(process)
    return "", ""


def _kind(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, line)), "")


def _of(process: psutil.Process) -> Whose:
    """The run of a process. Ray's process titles overwrite the workers' environment, so parents are checked too."""
    for one in (process, *process.parents()):
        with contextlib.suppress(psutil.Error):  # another user's
            environment = one.environ()
            if RUN.search(environment.get("RAY_AUTH_TOKEN_PATH", "")):
                return "run"
            if JOB in environment:
                return "job"
            if _kind(one) in ("a run", "LLM service"):
                return "run"
    return ""


# ---- calls ----------------------------------------------------------------------------------------------------------


def _said(address: Address, port: int, words: bytes, enough: int) -> bytes:
    """At most `enough` bytes of a port's reply to a call from its own address; an `OSError` if nothing accepts it."""
    host = str(address)
    with socket.create_connection((host, port), timeout=TIMEOUT_S, source_address=(host, 0)) as line:
        reply = b""
        with contextlib.suppress(
            TimeoutError, ConnectionError
        ):  # it accepted the call: whatever it does then is an answer
            line.sendall(words)
            while len(reply) < enough and (more := line.recv(4096)):
                reply += more
        return reply


def _grpc(address: Address, port: int) -> Answer:
    import grpc

    host = f"[{address}]" if address.version == 6 else str(address)
    with grpc.insecure_channel(f"{host}:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        for method in METHODS:
            call: Any = channel.unary_unary(f"/{method}")
            try:
                call(b"", timeout=TIMEOUT_S)
                return Answer.OPEN
            except grpc.RpcError as error:
                code = error.code()
                if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                    return Answer.GUARDED
    return Answer.SILENT
