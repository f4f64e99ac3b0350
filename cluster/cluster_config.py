"""Where the roles of a run are, as a part of the configuration."""

from __future__ import annotations

from typing import Literal

from cluster.kubernetes_config import KubernetesConfig
from cluster.slurm_config import SlurmConfig
from envs.config import Part


class ClusterConfig(Part):
    """Where the roles run."""

    name: Literal["local", "inline", "slurm", "kubernetes"] = "local"
    """`local`: Ray here, one process a role. `inline`: all in this process, no Ray. `slurm`, `kubernetes`: a job."""
    dashboard: bool = True
    """Start Ray's dashboard and the Prometheus endpoint, on loopback, behind the run's token."""
    start_timeout_s: float = 120.0
    """How long a role may take to start."""
    slurm: SlurmConfig = SlurmConfig()
    """The job, for `cluster=slurm`."""
    kubernetes: KubernetesConfig = KubernetesConfig()
    """The job, for `cluster=kubernetes`."""
