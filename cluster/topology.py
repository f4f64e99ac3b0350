"""placeholder body follows"""

from __future__ import annotations

from typing import Literal

from envs.config import Part


class ClusterConfig(Part):
    """Where the roles run."""

    name: Literal["local", "inline"] = "local"
    """`local`: Ray on this machine, one process a role. `inline`: all roles in this process, no Ray."""
    dashboard: bool = True
    """Start Ray's dashboard and the Prometheus endpoint, on loopback, behind the run's token."""
    start_timeout_s: float = 120.0
    """How long a role may take to start."""
