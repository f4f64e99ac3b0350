"""What a job requests from SLURM: the keys `cluster.slurm.*`, checked before anything is written.

nodes x (cpus, gpus, memory)              the first has the controller, the learner and everything else that computes
actor_nodes x (actor_cpus, actor_memory)  extra nodes for actors only, in one heterogeneous job

If a key is empty, the cluster's default applies; CPUs are computed from the roles of the run.
"""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from cluster.jobs import assert_form
from envs.config import Part

WORD = r"[\w.,:@/+=&|*\[\]()-]*"
"""Text that an `#SBATCH` line may contain unquoted: no space, no quote, no line break."""


class SlurmConfig(Part):
    """A SLURM job."""

    mode: Literal["manual", "symmetric"] = "manual"
    """How Ray starts on several nodes. `manual`: the head, then `ray start` on the others; also works on shared nodes.
    `symmetric`: `ray symmetric-run`, which needs nodes to itself."""
    partition: str = ""
    """Partition, or several separated by commas; empty: the cluster's default."""
    account: str = ""
    """Account to charge."""
    qos: str = ""
    """Quality of service."""
    time: str = ""
    """Time limit in SLURM's notation: minutes, HH:MM:SS or D-HH:MM:SS; empty: the partition's."""
    nodes: int = Field(default=1, ge=1)
    """Number of nodes; the first has the controller and the learner."""
    cpus: int = Field(default=0, ge=0)
    """CPUs per node; 0: as many as its roles need."""
    gpus: int = Field(default=0, ge=0)
    """GPUs per node."""
    gpu_type: str = ""
    """GPU type, such as a100."""
    memory: str = ""
    """Memory per node, such as 64G; empty: the partition's default."""
    actor_nodes: int = Field(default=0, ge=0)
    """Number of extra nodes without GPUs, for actors only; they make the job heterogeneous."""
    actor_cpus: int = Field(default=0, ge=0)
    """CPUs per actor node; 0: as many as it has actors."""
    actor_memory: str = ""
    """Memory per actor node."""
    actor_partition: str = ""
    """Partition of the actor nodes; empty: the same."""
    interface: str = ""
    """Network interface that Ray's nodes use, such as ib0; empty: the interface of the node's first address."""
    signal_s: int = Field(default=300, ge=1, le=65535)
    """How many seconds before the time limit a run is asked to save; SLURM may be up to a minute early."""
    requeue: bool = True
    """Queue the job again after SLURM's warning, or after an interruption (exit code 5)."""
    idle_requeues: int = Field(default=2, ge=0)
    """How often in a row a job is queued again without progress."""
    interrupted_requeues: int = Field(default=10, ge=0)
    """How often in a row a job is queued again after an interruption, even if it makes progress each time."""
    backoff_s: int = Field(default=120, ge=1)
    """Seconds that the job waits in the queue after the first interruption; further waits double, up to an hour."""
    setup: list[str] = Field(default=[])
    """Shell lines to run before anything starts, such as `module load cuda`."""
    container: str = ""
    """Prefix of every command on a node, such as `apptainer exec --nv cairn.sif`."""
    python: str = ""
    """Python on the nodes; empty: the Python that submits the job."""
    options: list[str] = Field(default=[])
    """Further sbatch options for all nodes, such as `--constraint=a100`."""
    temporary: str = "/tmp"
    """Folder on a node's own disk where each job creates its folder for Ray; a short path, because of sockets."""

    @model_validator(mode="after")
    def _is_sensible(self) -> Self:
        words = ["partition", "account", "qos", "gpu_type", "actor_partition", "interface"]
        assert_form(self, "slurm", words, WORD, "a name without spaces")
        assert_form(self, "slurm", ["options"], r"--[a-z][^\n]*", "options such as --constraint=a100")
        assert_form(self, "slurm", ["memory", "actor_memory"], r"([1-9]\d*[KMGT]?)?", "memory such as 64G")
        seconds = limit_seconds(self.time)
        if seconds is not None and seconds <= self.signal_s:
            raise ValueError(
                f"cluster.slurm.time: {self.time} leaves no time before the signal, which comes "
                f"{self.signal_s} s before the end: choose a longer time, or a smaller cluster.slurm.signal_s"
            )
        if self.gpu_type and not self.gpus:
            raise ValueError(
                f"cluster.slurm.gpu_type is {self.gpu_type}, but there are no GPUs: set cluster.slurm.gpus too"
            )
        if not self.actor_nodes and (self.actor_cpus or self.actor_memory or self.actor_partition):
            raise ValueError("cluster.slurm.actor_nodes is 0, but other keys describe actor nodes: set it")
        if self.interface and self.mode == "symmetric":
            raise ValueError(
                "cluster.slurm.interface: with symmetric-run Ray chooses its addresses: set cluster.slurm.mode=manual"
            )
        assert_form(self, "slurm", ["temporary"], r"/[\w./-]{0,23}", "an absolute path of 24 characters at most")
        return self

    @property
    def all_nodes(self) -> int:
        """Nodes of the whole job."""
        return self.nodes + self.actor_nodes


def limit_seconds(time: str) -> int | None:
    """Seconds of a time limit in SLURM's notation, None for the partition's; a `ValueError` if it is not one."""
    if not time:
        return None
    days, dash, rest = time.rpartition("-")
    parts = rest.split(":")
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", time) or not any(int(part) for part in (days or "0", *parts)):
        raise ValueError(f"cluster.slurm.time: expected minutes, HH:MM:SS or D-HH:MM:SS, got {time!r}")
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)  # D-HH[:MM[:SS]], HH:MM:SS or MM[:SS]
    return int(days or 0) * 86400 + sum(int(part) * unit for part, unit in zip(parts, units, strict=False))
