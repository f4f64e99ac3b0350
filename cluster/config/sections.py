"""Sections of the configuration that belong to no other package: run folder, environment, learners, and cluster."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from pydantic import ConfigDict, Field, create_model, model_validator

from cluster.jobs.kubernetes.config import KubernetesConfig
from cluster.jobs.slurm.config import SlurmConfig
from envs import registry
from envs.config import Part
from learner import algorithms
from learner.config import LearnerConfig


class RunConfig(Part):
    """The run folder, and what is written there."""

    name: str = ""
    """Name of the run's folder inside `folder`; empty: the experiment (or else method and env) and the time."""
    folder: str = "runs"
    """Where run folders are created."""
    max_wall_seconds: float | None = None
    """Stop after this many seconds so that the run can be resumed; none: never."""
    checkpoint_every_s: float = 60.0
    """Seconds between checkpoints, and at least ten times as long as a large one takes to write; the first is saved
    after the first update. 0: after every update."""
    log_every_s: float = 10.0
    """Seconds between lines of progress."""
    keep_checkpoints: int = 3
    """How many of the latest checkpoints are kept on disk."""
    sinks: list[str] = Field(default=[])
    """Where else the rows of `metrics.jsonl` go: modules of `cluster/metrics/sinks`, such as `tensorboard`, `wandb` and
    `mlflow`."""


class EnvConfig(Part):
    """The environment, and its family's own options as further fields (with the family's defaults)."""

    model_config = ConfigDict(extra="allow")

    id: str = "toy/Line"
    """`family/Name`."""

    @property
    def options(self) -> dict[str, Any]:
        """The family's options: keyword arguments of `envs.make`."""
        return dict(self.__pydantic_extra__ or {})

    @model_validator(mode="before")
    @classmethod
    def _of_the_family(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """Check the options against the family's own section, and add the defaults."""
        options = dict(tree)
        env_id = options.pop("id", cls.model_fields["id"].default)
        try:
            module, _ = registry.resolve(str(env_id))
        except registry.UnknownEnv as unknown:
            raise ValueError(f"env.id: {unknown.args[0]}") from None
        return {"id": env_id, **module.Config(**options).model_dump()}


@cache
def _together(parts: tuple[tuple[str, type[Part]], ...]) -> type[Part]:
    """Sections by name, as one."""
    fields: dict[str, Any] = {name: (part, part()) for name, part in parts}
    return create_model("Parts", __base__=Part, **fields)


class LearnerSection(LearnerConfig):
    """The learner group. Besides the fields here, each algorithm with options has a section under its name."""

    model_config = ConfigDict(extra="allow")

    @property
    def own(self) -> Part | None:
        """The section of the selected algorithm, None if it has none."""
        return (self.__pydantic_extra__ or {}).get(self.algorithm)

    @model_validator(mode="before")
    @classmethod
    def _with_parts_of_algorithms(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """Check the algorithms' sections, and add their defaults."""
        given = {name: value for name, value in tree.items() if name not in cls.model_fields}
        return {**tree, **dict(_together(tuple(algorithms.parts().items()))(**given))}


class ClusterConfig(Part):
    """Where the processes run."""

    name: Literal["local", "inline", "slurm", "kubernetes"] = "local"
    """`local`: Ray here, one process per role. `inline`: one process, no Ray. `slurm`, `kubernetes`: a job."""
    dashboard: bool = True
    """Start Ray's dashboard and the Prometheus endpoint, on loopback, behind the run's token."""
    start_timeout_s: float = 120.0
    """Seconds that a role may take to start."""
    share_gpus: Literal["auto", "yes", "no"] = "auto"
    """Whether the policy server and the LLM service's model compute on the GPUs of the learner's ranks. `no`: each has
    a GPU of its own. `yes`: they share, and so do actors with a language model of their own. `auto`: they share if
    there are too few GPUs."""
    object_store_gb: float = Field(default=0.0, ge=0.0)
    """Size of Ray's object store on a node, in units of 10^9 bytes. 0: on this machine, or in a SLURM job of one node,
    large enough for a few versions of the policy's weights, and at least 1; in a SLURM job of several nodes 1.
    Kubernetes has `cluster.kubernetes.shared_memory` for this."""
    slurm: SlurmConfig = SlurmConfig()
    """The job's settings, for `cluster=slurm`."""
    kubernetes: KubernetesConfig = KubernetesConfig()
    """The job's settings, for `cluster=kubernetes`."""
