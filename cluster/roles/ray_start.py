"""What this process replaces in Ray while it starts it. Import this after `local` has made the token.

Ray has no options for these. Each replacement is a private function of Ray, by name: if a version of Ray lacks one, the
start fails with that name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from ray._private import node, services, utils, worker
from ray._private.state import GlobalState

REGISTERED_S = 30.0  # seconds for a node to register
LOOK_S = 0.02  # seconds between looks whether it has


@contextmanager
def _replaced(owner: Any, name: str, other: Any) -> Iterator[None]:
    real = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, real)


def stay_on_loopback() -> AbstractContextManager[None]:
    """Keep the node address on loopback. Ray replaces it by the machine's public address, and its servers then bind
    every interface; with the loopback address they bind loopback. A test checks the listening sockets."""
    return _replaced(services, "resolve_ip_for_localhost", lambda host: host)


def only_our_words() -> AbstractContextManager[None]:
    """Silence Ray's own output while this process uses it. For a dead process Ray would print a page in colour,
    whatever `log_to_driver` says; the caller that needs the role reports the death in one line."""
    return _replaced(worker, "listen_error_messages", lambda *_: None)


@contextmanager
def only_what_is_used(dashboard: bool) -> Iterator[None]:
    """Start none of Ray's processes that nothing here uses: each takes half a second of a core and some 70 MB.

        log monitor                sends the roles' output to this process, which asked for none (`log_to_driver`)
        autoscaler, dashboard      serve the dashboard's pages; Ray starts both, and waits, also without a dashboard
        the agent's larger half    serves the dashboard and the metrics' endpoint

    To know whether a dashboard can be served, Ray imports all of it here, for a second: `requirements.txt` has it.
    """
    nothing = (lambda *_: None) if dashboard else (lambda *_: ImportError("no dashboard was asked for"))
    with ExitStack() as replaced:
        for change in (
            _replaced(node.Node, "start_log_monitor", lambda *_: None),
            _replaced(utils, "get_dashboard_dependency_error", nothing),
            _replaced(services, "get_node", _soon(services.get_node)),
        ):
            replaced.enter_context(change)
        if not dashboard:
            replaced.enter_context(_replaced(node.Node, "start_monitor", lambda *_: None))
            replaced.enter_context(_replaced(services, "start_api_server", lambda *_, **__: ("", None)))
        yield


def _soon(get_node: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    """Ray looks once a second whether its node has registered; this looks first, often, until it has."""

    def soon(address: str, name: str) -> Any:
        nodes: Any = GlobalState()  # type: ignore[no-untyped-call]
        ends = time.monotonic() + REGISTERED_S
        nodes._initialize_global_state(services._get_gcs_client_options(address))  # type: ignore[no-untyped-call]
        while all(row["NodeID"] != name for row in nodes.node_table()) and time.monotonic() < ends:
            time.sleep(LOOK_S)
        return get_node(address, name)

    return soon
