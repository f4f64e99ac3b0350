"""Where roles run: one small interface, two backends.

    start(name, cls, ...) ──> Handle        submit(handle, method, ...) ──> Ticket
    wait(tickets, timeout) ──> done         result(ticket, part)        ──> value, or RoleDied

A ticket's parts can be passed to another role's method without reading them: on Ray they are object references, so the
controller moves references and never tensors. `Inline` runs every call immediately in this process, without Ray.
"""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from llm_service.errors import INTERRUPTED, UsageError

Place = Literal["none", "there", "gone"]
PLACE_S = 600.0  # seconds that a run waits for a node with room for roles that it needs
JOIN = "CAIRN_RAY_ADDRESS"  # environment variable: HOST:PORT of the Ray to join
LOOPBACK = "127.0.0.1"
LOOK_S = 2.0  # seconds between checks during long waits: was the run asked to stop, is Ray still there


class RoleDied(RuntimeError):
    """A role's process is gone, or a call in it raised. The message holds the cause, a traceback where there is one."""


class NodeLost(RoleDied):
    """A role is gone with its node: the role was not the cause."""


class InputLost(NodeLost):
    """An argument of a call is gone with the node that held it. The role is fine, and did not begin the call."""


class Interrupted(UsageError):
    """The cluster ended a run, or has no room for it. It can be resumed from its checkpoint, here or elsewhere."""

    exit_code = INTERRUPTED


class DiskFull(Interrupted):
    """The disk is full. Everything saved before is intact: the run can be resumed once there is room."""


def is_full_disk(error: BaseException | None) -> bool:
    """Whether the error says that a disk is full, or a user's quota exhausted."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def full_disk_in_a_sentence(who: str) -> Iterator[None]:
    """A context in which `who` writes files.

    Raises:
        DiskFull: there was no room for a file; one sentence.
    """
    try:
        yield
    except OSError as error:
        if is_full_disk(error):
            raise DiskFull(
                f"the disk that {who} writes to is full: free some space, then resume; what was saved is intact"
            ) from error
        raise


def raise_final(error: BaseException | None, who: str) -> None:
    """Raise the error of the role `who` if a restart would not help: a `UsageError` or `DiskFull`. Otherwise return."""
    with full_disk_in_a_sentence(who):
        if error is not None and (isinstance(error, UsageError) or is_full_disk(error)):
            raise error from None


class AskedToStop(UsageError):
    """The run was asked to stop while it waited for roles. They had begun nothing that needs saving."""


@dataclass
class Handle:
    """A started role."""

    name: str
    target: Any


@dataclass
class Ticket:
    """A call in flight. `parts` are its results, unread: pass them on, or read them with `Backend.result`."""

    handle: Handle
    method: str
    parts: tuple[Any, ...]
    submitted: float = field(default_factory=time.monotonic)


class Backend(Protocol):
    """What the controller needs from a cluster."""

    links: dict[str, str]  # addresses worth showing: dashboard, metrics
    stop_reason: Callable[[], str]  # why the run should stop; "" while it should not

    def start(self, name: str, cls: type, *args: Any) -> Handle:
        """Start a role; its constructor may still be running when this returns."""

    def resources(self, name: str) -> dict[str, Any]:
        """Arguments of `ray.remote` that place the role `name`; empty without Ray."""

    def meeting(self, names: Sequence[str]) -> str:
        """The address of the first of these roles' node for the others: loopback if all are on that node."""

    def submit(self, handle: Handle, method: str, *args: Any, returns: int = 1) -> Ticket:
        """Call a method; arguments may be parts of other tickets."""

    def caller(self, handle: Handle, method: str, timeout: float) -> Callable[..., Any]:
        """A function that calls the method and waits for its result; it can be sent to other roles."""

    def wait(self, tickets: Sequence[Ticket], timeout: float, several: int = 1) -> list[Ticket]:
        """The tickets that are done or failed, once there are `several` of them or after `timeout` seconds."""

    def result(self, ticket: Ticket, part: int = 0, timeout: float = 60.0) -> Any:
        """Read one result.

        Raises:
            RoleDied: the role is gone, raised, or took more than `timeout` seconds.
            UsageError: the role raised it, or found a disk full (`DiskFull`): no restart would help.
        """

    def place(self, handle: Handle) -> Place:
        """Whether a role has found no room yet (`none`), has a node (`there`), or its node is `gone`."""

    def heartbeats(self, handles: Sequence[Handle]) -> dict[str, dict[str, Any]]:
        """Each role's activity in its last heartbeat, by name; only for roles whose constructors have finished."""

    def kill(self, handle: Handle) -> None:
        """End a role at once."""

    def shutdown(self) -> None:
        """End everything."""


def unasked() -> str:
    """The reason to stop if nobody can ask to stop: never."""
    return ""


def assert_unasked(backend: Backend) -> None:
    """Call this in every wait of more than a few seconds that can be given up without a loss.

    Raises:
        AskedToStop: the run should stop.
    """
    if reason := backend.stop_reason():
        raise AskedToStop(reason)


def await_role(backend: Backend, ticket: Ticket, timeout: float) -> Any:
    """Read the result of a call that can be given up without a loss: a role that starts, or loads what was saved.

    Raises:
        AskedToStop: the run should stop; this is noticed within `LOOK_S` seconds.
        RoleDied: the role is gone, raised, or took more than `timeout` seconds.
    """
    ends = time.monotonic() + timeout
    while not backend.wait([ticket], min(LOOK_S, max(0.0, ends - time.monotonic()))) and time.monotonic() < ends:
        assert_unasked(backend)
    return backend.result(ticket, timeout=max(0.0, ends - time.monotonic()))


@dataclass(frozen=True)
class _Failed:
    error: Exception
    cause: str


class Inline:
    """All roles in this process; a call runs when it is submitted."""

    def __init__(self, stop_reason: Callable[[], str] = unasked) -> None:
        self.links: dict[str, str] = {}
        self.stop_reason = stop_reason

    def start(self, name: str, cls: type, *args: Any) -> Handle:
        return Handle(name, cls(*args))

    def resources(self, name: str) -> dict[str, Any]:
        return {}

    def meeting(self, names: Sequence[str]) -> str:
        return LOOPBACK

    def submit(self, handle: Handle, method: str, *args: Any, returns: int = 1) -> Ticket:
        submitted = time.monotonic()
        try:
            value = getattr(handle.target, method)(*args)
            parts = tuple(value) if returns > 1 else (value,)
        except Exception as error:  # the caller handles a role's failure, whatever it is, as on Ray
            parts = (_Failed(error, traceback.format_exc()),) * returns
        return Ticket(handle, method, parts, submitted)

    def caller(self, handle: Handle, method: str, timeout: float) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(handle.target, method)
        return call

    def wait(self, tickets: Sequence[Ticket], timeout: float, several: int = 1) -> list[Ticket]:
        if not tickets:  # all wait for a restart: sleep instead of spinning
            time.sleep(min(timeout, 0.05))
        return list(tickets)

    def result(self, ticket: Ticket, part: int = 0, timeout: float = 60.0) -> Any:
        value = ticket.parts[part]
        if isinstance(value, _Failed):
            raise_final(value.error, ticket.handle.name)
            raise RoleDied(f"{ticket.handle.name}: {value.cause}")
        return value

    def place(self, handle: Handle) -> Place:
        return "there"

    def heartbeats(self, handles: Sequence[Handle]) -> dict[str, dict[str, Any]]:
        return {h.name: h.target.heartbeat() for h in handles}

    def kill(self, handle: Handle) -> None:
        handle.target = None

    def shutdown(self) -> None:
        """Nothing runs."""
