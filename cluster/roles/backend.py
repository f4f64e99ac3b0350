"""Where roles run: one small interface, two backends.

    start(name, cls, ...) ──> Handle        submit(handle, method, ...) ──> Ticket
    wait(tickets, timeout) ──> done         result(ticket, part)        ──> value, or RoleDied

A ticket's parts can be handed to another role's method without reading them: on Ray they are object references, so the
controller moves references and never tensors. `Inline` runs every call at once in this process, without Ray.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from llm_service.errors import INTERRUPTED, UsageError

Place = Literal["none", "there", "gone"]
PLACE_S = 600.0  # how long a run may wait for a node that has room for roles which it cannot do without


class RoleDied(RuntimeError):
    """A role's process is gone, or a call in it raised. The message holds the cause, a traceback where there is one."""


class NodeLost(RoleDied):
    """A role is gone with its node: nothing that it did was the cause."""


class InputLost(NodeLost):
    """What a call was given is gone with the node that held it. The role is well, and did not begin."""


class Interrupted(UsageError):
    """The cluster ended a run, or has no room for it: it goes on from its checkpoint, on this cluster or on another."""

    exit_code = INTERRUPTED


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

    def start(self, name: str, cls: type, *args: Any) -> Handle:
        """Begin to start a role; its constructor may still run when this returns."""

    def submit(self, handle: Handle, method: str, *args: Any, returns: int = 1) -> Ticket:
        """Call a method; arguments may be parts of other tickets."""

    def caller(self, handle: Handle, method: str, timeout: float) -> Callable[..., Any]:
        """A function that calls the method and waits for its result; it may be sent to other roles."""

    def wait(self, tickets: Sequence[Ticket], timeout: float, several: int = 1) -> list[Ticket]:
        """Those that are done, or failed, once there are `several`; those that are after `timeout` seconds."""

    def result(self, ticket: Ticket, part: int = 0, timeout: float = 60.0) -> Any:
        """Read one result. Raises RoleDied, or the `UsageError` that the role raised: no restart would help."""

    def place(self, handle: Handle) -> Place:
        """Whether a role has found no room yet (`none`), has a node (`there`), or had one that is `gone`."""

    def heartbeats(self, handles: Sequence[Handle]) -> dict[str, dict[str, Any]]:
        """What each role was doing when it last said so, by name; of those that are through their constructors."""

    def kill(self, handle: Handle) -> None:
        """End a role at once."""

    def shutdown(self) -> None:
        """End everything."""


@dataclass(frozen=True)
class _Failed:
    error: Exception
    cause: str


class Inline:
    """All roles in this process; a call runs when it is submitted."""

    def __init__(self) -> None:
        self.links: dict[str, str] = {}

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
            if isinstance(value.error, UsageError):
                raise value.error
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
