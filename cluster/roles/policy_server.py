"""The policy server from the controller's side: start it, send new weights, monitor it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.policy_server import PolicyServer
from cluster.config.tree import Config
from cluster.roles.backend import Backend, RoleDied, Ticket
from envs.api import EnvSpec

ANSWER_S = 300.0  # seconds that an actor waits for an answer
ALIVE_S = 5.0  # seconds that the server may take for a sign of life


def served(config: Config) -> bool:
    """Whether actors use a policy server."""
    return config.policy.network == "language_model" and config.policy.lm.placement == "server"


class ServedPolicy:
    """A running policy server."""

    def __init__(self, backend: Backend, config: Config, spec: EnvSpec) -> None:
        self._backend = backend
        self._handle = backend.start("policy", PolicyServer, config.policy, spec, config.seed, config.sync)
        self._loading: list[Ticket] = []

    @property
    def call(self) -> Callable[..., Any]:
        """The function that actors call: `PolicyServer.answer`."""
        return self._backend.caller(self._handle, "answer", ANSWER_S)

    def publish(self, version: int, weights: Any) -> None:
        """Send the weights of a version. Actors may ask for them immediately: the server lets them wait.

        Raises:
            RoleDied: the server is gone.
        """
        for ticket in self._backend.wait(self._loading, 0) if self._loading else ():
            self._backend.result(ticket)
            self._loading.remove(ticket)
        self._loading.append(self._backend.submit(self._handle, "load", version, weights))

    def alive(self) -> bool:
        """Whether it answers."""
        try:
            return bool(self._backend.result(self._backend.submit(self._handle, "heartbeat"), timeout=ALIVE_S))
        except RoleDied:
            return False

    def kill(self) -> None:
        self._backend.kill(self._handle)
