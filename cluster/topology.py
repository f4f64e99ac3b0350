"""The drawing of the system: which roles run, how many of each, and what flows between them.

`run.py` starts what this says, and `--dry-run` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from envs.config import Part
from learner import methods

if TYPE_CHECKING:
    from cluster.config import Config


class ClusterConfig(Part):
    """Where the roles run."""

    name: Literal["local", "inline"] = "local"
    """`local`: Ray on this machine, one process a role. `inline`: all roles in this process, no Ray."""
    dashboard: bool = True
    """Start Ray's dashboard and the Prometheus endpoint, on loopback, behind the run's token."""
    start_timeout_s: float = 120.0
    """How long a role may take to start."""


@dataclass(frozen=True)
class Role:
    """A kind of process."""

    name: str
    count: int
    threads: int
    does: str


@dataclass(frozen=True)
class Topology:
    """Roles, and what flows from one to another."""

    roles: tuple[Role, ...]
    edges: tuple[tuple[str, str, str], ...]  # from, to, what

    @property
    def processes(self) -> int:
        """Started processes, without the controller's own."""
        return sum(role.count for role in self.roles if role.name != "controller")


def topology(config: Config) -> Topology:
    """What a configuration asks for."""
    actors, learner = config.actors, config.learner
    controller = Role("controller", 1, 1, "starts roles, moves references, restarts what dies, saves, reports")
    rollout = Role("actor", actors.n, 1, f"{actors.envs} envs of {config.env.id}, chunks of {actors.steps} steps")
    roles: tuple[Role, ...] = (controller, rollout)
    edges: tuple[tuple[str, str, str], ...] = (("actor", "controller", "summary and heartbeat"),)
    if trains(config):
        does = f"{learner.epochs} epochs"
        if learner.algorithm == "dqn":
            does = f"{config.dqn.samples_per_insert:g} rows replayed a step"
        does = f"{config.method.model_dump()['name']}: {does}, in minibatches of {learner.minibatch}"
        roles = (*roles, Role("learner", learner.n, learner.threads, does))
        chunk = f"chunks [{actors.steps}, {actors.envs}, ...] by reference"
        edges = (
            *edges,
            ("actor", "learner", chunk),
            ("learner", "actor", "weights by argument, one version at a time"),
        )
    if asks_a_language_model(config):
        llm = config.llm
        does = f"LLM service, backend {llm.name}, with journal and Redis"
        if llm.address:
            does = f"LLM service at {llm.address}, started by others"
        roles = (*roles, Role("llm", int(not llm.address), 1, does))
        if llm.replicas and not llm.address:
            roles = (*roles, Role("replica", llm.replicas, 1, "holds the model"))
            edges = (*edges, ("llm", "replica", "batches of calls"))
        edges = (*edges, ("actor", "llm", "batches of questions over gRPC"))
    return Topology(roles, edges)


def trains(config: Config) -> bool:
    """Whether any selected stage trains."""
    return any(stage.kind == "train" for stage in _stages(config))


def asks_a_language_model(config: Config) -> bool:
    """Whether any selected stage needs the LLM service."""
    return any(stage.asks(config) for stage in _stages(config))


def _stages(config: Config) -> list[methods.Stage]:
    stages = methods.method(config.method.model_dump()["name"]).stages(config)
    return [s for s in stages if not config.stages or s.name in config.stages]


def draw(config: Config) -> str:
    """The topology as text."""
    drawn = topology(config)
    place = "one Ray process each, on this machine" if config.cluster.name == "local" else "all in this process"
    pace = "in turns (sync)" if config.sync else "at the same time (async)"
    lines = [f"cluster {config.cluster.name}: {place}; acting and learning {pace}", ""]
    for role in drawn.roles:
        threads = "1 thread" if role.threads == 1 else f"{role.threads} threads"
        lines.append(f"  {role.name:<11} x {role.count:<3} {threads:<10}  {role.does}")
    lines.append("")
    lines += [f"  {a:<8} --> {b:<11} {what}" for a, b, what in drawn.edges]
    return "\n".join(lines)
