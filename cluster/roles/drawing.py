"""Roles and what flows between them, as data: declared by each stage, and added up for a whole run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Role:
    """A kind of process."""

    name: str
    count: int
    threads: int
    does: str
    device: str = ""
    """The key that says what it computes on; empty: the processor."""


Edge = tuple[str, str, str]
"""From one role to another: what flows."""


@dataclass(frozen=True)
class Topology:
    """Roles, and what flows between them. Two drawings can be added; what both have appears once."""

    roles: tuple[Role, ...] = ()
    edges: tuple[Edge, ...] = ()

    def __add__(self, other: Topology) -> Topology:
        names = {role.name for role in self.roles}
        return Topology(
            (*self.roles, *(role for role in other.roles if role.name not in names)),
            (*self.edges, *(edge for edge in other.edges if edge not in self.edges)),
        )

    @property
    def processes(self) -> int:
        """Processes that are started, without the controller."""
        return sum(role.count for role in self.roles if role.name != "controller")
