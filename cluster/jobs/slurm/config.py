"""What a job asks of SLURM: the keys `cluster.slurm.*`, each checked before anything is written.

nodes x (cpus, gpus, memory)              the learner's node first: controller, learner and whatever else computes
actor_nodes x (actor_cpus, actor_memory)  beside them, in one heterogeneous job: actors only

A key that is left empty leaves the choice to the cluster; CPUs are counted from the roles of the run.
"""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from cluster.jobs import assert_form
from envs.config import Part

WORD = r"[\w.,:@/+=&|*\[\]()-]*"
"""What may stand in an `#SBATCH` line unquoted: no space, no quote, no line break."""


class SlurmConfig(Part):
    """A job of SLURM."""

    mode: Literal["manual", "symmetric"] = "manual"
    """On several nodes: `manual` starts Ray's head and joins the others by `ray start`, also on nodes that others use;
    `symmetric` is `ray symmetric-run`, on nodes of its own."""
    partition: str = ""
    """Partition, or several with commas; empty: the cluster's default."""
    account: str = ""
    """Account that pays."""
    qos: str = ""
    """Quality of service."""
    time: str = ""
    """Time limit as SLURM writes it: minutes, HH:MM:SS or D-HH:MM:SS; empty: the partition's."""
    nodes: int = Field(default=1, ge=1)
    """Nodes; the first has the controller and the learner."""
    cpus: int = Field(default=0, ge=0)
    """CPUs of a node; 0: as many as its roles compute with."""
    gpus: int = Field(default=0, ge=0)
    """GPUs of a node."""
    gpu_type: str = ""
    """Their type, as in a100."""
    memory: str = ""
    """Memory of a node, as in 64G; empty: the partition's."""
    actor_nodes: int = Field(default=0, ge=0)
    """Further nodes without GPUs that have actors only; the job is then a heterogeneous one."""
    actor_cpus: int = Field(default=0, ge=0)
    """CPUs of each of these; 0: as many as actors come to it."""
    actor_memory: str = ""
    """Memory of each of these."""
    actor_partition: str = ""
    """Their partition; empty: the same."""
    interface: str = ""
    """Network interface that Ray's nodes meet on, as in ib0; empty: that of the node's first address."""
    signal_s: int = Field(default=300, ge=1, le=65535)
    """Seconds before the time limit at which a run is told to save; SLURM may be a minute early."""
    requeue: bool = True
    """Queue the job again when SLURM told it to save, or when its surroundings ended it (exit code 5)."""
    idle_requeues: int = Field(default=2, ge=0)
    """So often in a row a job is queued again although it got no further."""
    interrupted_requeues: int = Field(default=10, ge=0)
    """So often in a row a job is queued again after its surroundings ended it, even if it gets further each time."""
    backoff_s: int = Field(default=120, ge=1)
    """Seconds that it waits in the queue after the first of these; each next wait is twice as long, an hour at most."""
    setup: list[str] = Field(default=[])
    """Shell lines before anything starts, as in `module load cuda`."""
    container: str = ""
    """Words before every command on a node, as in `apptainer exec --nv cairn.sif`."""
    python: str = ""
    """Python on the nodes; empty: the one that submits."""
    options: list[str] = Field(default=[])
    """Further options of sbatch, as in `--constraint=a100`; those of all nodes."""
    temporary: str = "/tmp"
    """Folder on a node's own disk in which each job makes one for Ray's files; a short path, for sockets are in it."""

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
                f"{self.signal_s} s before its end: choose more, or a smaller cluster.slurm.signal_s"
            )
        if self.gpu_type and not self.gpus:
            raise ValueError(f"cluster.slurm.gpu_type: {self.gpu_type} of no GPUs: set cluster.slurm.gpus too")
        if not self.actor_nodes and (self.actor_cpus or self.actor_memory or self.actor_partition):
            raise ValueError("cluster.slurm.actor_nodes: what such a node has is said, but there are none: set it")
        if self.interface and self.mode == "symmetric":
            raise ValueError(
                "cluster.slurm.interface: symmetric-run lets Ray choose its addresses: set cluster.slurm.mode=manual"
            )
        assert_form(self, "slurm", ["temporary"], r"/[\w./-]{0,23}", "an absolute path of 24 characters at most")
        return self

    @property
    def all_nodes(self) -> int:
        """Nodes of the whole job."""
        return self.nodes + self.actor_nodes


def limit_seconds(time: str) -> int | None:
    """Seconds of a time limit in SLURM's notation, None for the partition's; a `ValueError` if it is none."""
    if not time:
        return None
    days, dash, rest = time.rpartition("-")
    parts = rest.split(":")
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", time) or not any(int(part) for part in (days or "0", *parts)):
        raise ValueError(f"cluster.slurm.time: expected minutes, HH:MM:SS or D-HH:MM:SS, got {time!r}")
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)  # D-HH[:MM[:SS]], HH:MM:SS or MM[:SS]
    return int(days or 0) * 86400 + sum(int(part) * unit for part, unit in zip(parts, units, strict=False))
