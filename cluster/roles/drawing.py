"""Roles and what flows between them, as data: what a stage says of itself, and what a whole run is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Role:
    """A kind of process."""

    name: str
    count: int
    threads: int
    does: str


Edge = tuple[str, str, str]
"""From a role, to a role, what."""


@dataclass(frozen=True)
class Topology:
    """Roles, and what flows from one to another. Two of them add up: what both have is there once."""

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
        """Started processes, without the controller's own."""
        return sum(role.count for role in self.roles if role.name != "controller")
