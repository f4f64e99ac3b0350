"""Where roles run: one small interface, two backends.

    start(name, cls, ...) ──> Handle        submit(handle, method, ...) ──> Ticket
    wait(tickets, timeout) ──> done         result(ticket, part)        ──> value, or RoleDied

A ticket's parts can be handed to another role's method without reading them: on Ray they are object references, so the
controller moves references and never tensors. `Inline` runs every call at once in this process, without Ray.
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
PLACE_S = 600.0  # how long a run may wait for a node that has room for roles which it cannot do without
LOOK_S = 2.0  # how often one who waits for minutes looks up: whether the run was asked to stop, whether Ray is there


class RoleDied(RuntimeError):
    """A role's process is gone, or a call in it raised. The message holds the cause, a traceback where there is one."""


class NodeLost(RoleDied):
    """A role is gone with its node: nothing that it did was the cause."""


class InputLost(NodeLost):
    """What a call was given is gone with the node that held it. The role is well, and did not begin."""


class Interrupted(UsageError):
    """The cluster ended a run, or has no room for it: it goes on from its checkpoint, on this cluster or on another."""

    exit_code = INTERRUPTED


class DiskFull(Interrupted):
    """A disk has no room left. What was saved is whole: the run goes on from there once there is some."""


def is_full_disk(error: BaseException | None) -> bool:
    """Whether it says that a disk, or one user's share of it, has no room left."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def full_disk_in_a_sentence(who: str) -> Iterator[None]:
    """What is done in here, by `who`, may write files.

    Raises:
        DiskFull: there was no room for one, in one sentence.
    """
    try:
        yield
    except OSError as error:
        if is_full_disk(error):
            raise DiskFull(
                f"the disk is full on which {who} writes: free some room, then resume; what was saved before is whole"
            ) from error
        raise


def raise_final(error: BaseException | None, who: str) -> None:
    """Raise what the role `who` raised, if no restart would help it: a `UsageError`, or `DiskFull`. Else return."""
    with full_disk_in_a_sentence(who):
        if error is not None and (isinstance(error, UsageError) or is_full_disk(error)):
            raise error from None


class AskedToStop(UsageError):
    """The run was asked to stop while it waited for roles. They had begun nothing that would have to be saved."""


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
    """What the controller needs of a cluster."""

    links: dict[str, str]  # addresses worth showing: dashboard, metrics
    stop_reason: Callable[[], str]  # why the run should stop, "" while it should not

    def start(self, name: str, cls: type, *args: Any) -> Handle:
        """Begin to start a role; its constructor may still run when this returns."""

    def submit(self, handle: Handle, method: str, *args: Any, returns: int = 1) -> Ticket:
        """Call a method; arguments may be parts of other tickets."""

    def caller(self, handle: Handle, method: str, timeout: float) -> Callable[..., Any]:
        """A function that calls the method and waits for its result; it may be sent to other roles."""

    def wait(self, tickets: Sequence[Ticket], timeout: float, several: int = 1) -> list[Ticket]:
        """Those that are done, or failed, once there are `several`; those that are after `timeout` seconds."""

    def result(self, ticket: Ticket, part: int = 0, timeout: float = 60.0) -> Any:
        """Read one result.

        Raises:
            RoleDied: the role is gone, raised, or took more than `timeout` seconds.
            UsageError: the role raised it, or found a disk full (`DiskFull`): no restart would help.
        """

    def place(self, handle: Handle) -> Place:
        """Whether a role has found no room yet (`none`), has a node (`there`), or had one that is `gone`."""

    def heartbeats(self, handles: Sequence[Handle]) -> dict[str, dict[str, Any]]:
        """What each role was doing when it last said so, by name; of those that are through their constructors."""

    def kill(self, handle: Handle) -> None:
        """End a role at once."""

    def shutdown(self) -> None:
        """End everything."""


def unasked() -> str:
    """The reason to stop of what nobody asks to stop."""
    return ""


def assert_unasked(backend: Backend) -> None:
    """To be called in every wait of more than a few seconds that may be given up without a loss.

    Raises:
        AskedToStop: the run should stop.
    """
    if reason := backend.stop_reason():
        raise AskedToStop(reason)


def await_role(backend: Backend, ticket: Ticket, timeout: float) -> Any:
    """Read the result of a call that may be given up without a loss: of a role that starts, or loads what was saved.

    Raises:
        AskedToStop: the run should stop; it is seen within `LOOK_S` seconds.
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

    def submit(self, handle: Handle, method: str, *args: Any, returns: int = 1) -> Ticket:
        submitted = time.monotonic()
        try:
            value = getattr(handle.target, method)(*args)
            parts = tuple(value) if returns > 1 else (value,)
        except Exception as error:  # a role's failure is its caller's to handle, whatever it is: as on Ray
            parts = (_Failed(error, traceback.format_exc()),) * returns
        return Ticket(handle, method, parts, submitted)

    def caller(self, handle: Handle, method: str, timeout: float) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(handle.target, method)
        return call

    def wait(self, tickets: Sequence[Ticket], timeout: float, several: int = 1) -> list[Ticket]:
        if not tickets:  # all wait to be started again: who waits with them does not spin
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
