"""The drawing of the system: which roles run, how many of each, and what flows between them.

`run.py` starts what this says, and `--dry-run` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cluster.kubernetes_config import KubernetesConfig
from cluster.slurm_config import SlurmConfig
from envs.config import Part
from learner import methods
from learner.algorithms import algorithm
from learner.models.policy import LANGUAGE_MODEL

if TYPE_CHECKING:
    from cluster.config import Config


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
    kinds = {stage.kind for stage in selected(config)}
    if kinds & {"search", "curate", "imitate", "deploy", "judge"}:
        return _of_behaviours(config, kinds, controller)
    roles: tuple[Role, ...] = (controller, rollout)
    edges: tuple[tuple[str, str, str], ...] = (("actor", "controller", "summary and heartbeat"),)
    served = config.policy.network == LANGUAGE_MODEL and config.policy.lm.placement == "server"
    if "collect" in kinds:
        what = f"{config.collect.episodes:,} episodes by {config.collect.player}, in shards"
        edges = (*edges, ("actor", "store", what))
    if "fit" in kinds:
        does = f"{config.fit.steps:,} gradient steps, each on {config.fit.batch} recorded ones"
        roles = (*roles, Role("fitter", learner.n, learner.threads, does))
        edges = (*edges, ("store", "fitter", "steps, mapped from disk"))
    if trains(config):
        does = algorithm(learner.algorithm).describe(config)
        does = f"{config.method.model_dump()['name']}: {does}, in minibatches of {learner.minibatch}"
        roles = (*roles, Role("learner", learner.n, learner.threads, does))
        chunk = f"chunks [{actors.steps}, {actors.envs}, ...] by reference"
        acts = "policy" if served else "actor"
        edges = (
            *edges,
            ("actor", "learner", chunk),
            ("learner", acts, "weights by argument, one version at a time"),
        )
    if served:
        roles = (*roles, Role("policy", 1, 1, f"answers for all actors with {config.policy.lm.folder}"))
        edges = (*edges, ("actor", "policy", "batches of prompts"))
    if asks_a_language_model(config):
        return Topology(*_with_language_model(config, roles, edges, "actor"))
    return Topology(roles, edges)


Edges = tuple[tuple[str, str, str], ...]


def _with_language_model(
    config: Config, roles: tuple[Role, ...], edges: Edges, asks: str
) -> tuple[tuple[Role, ...], Edges]:
    """Roles and edges, and the service that the role `asks` asks."""
    llm = config.llm
    does = f"LLM service, backend {llm.name}, with journal and Redis"
    if llm.address:
        does = f"LLM service at {llm.address}, started by others"
    roles = (*roles, Role("llm", int(not llm.address), 1, does))
    if llm.replicas and not llm.address:
        roles = (*roles, Role("replica", llm.replicas, 1, "holds the model"))
        edges = (*edges, ("llm", "replica", "batches of calls"))
    return roles, (*edges, (asks, "llm", "batches of questions over gRPC"))


def _of_behaviours(config: Config, kinds: set[methods.Kind], controller: Role) -> Topology:
    """The roles of a search, and of a transformer that is fitted to what it found."""
    method: Any = config.method
    roles: tuple[Role, ...] = (controller,)
    edges: Edges = ()
    if "search" in kinds:
        does = f"episodes of {config.env.id} with small policies, {method.search.offspring} a generation in all"
        roles = (*roles, Role("actor", config.actors.n, 1, does))
        edges = (("controller", "actor", "weights of policies"), ("actor", "controller", "ends and actions"))
        edges = (*edges, ("controller", "archive", "what is novel"))
    if "curate" in kinds:
        edges = (*edges, ("archive", "store", "episodes, groups, texts, trials"))
    if "imitate" in kinds:
        fit = method.sequence
        does = f"{fit.steps:,} gradient steps, each on {fit.batch} episodes"
        roles = (*roles, Role("fitter", config.learner.n, config.learner.threads, does))
        edges = (*edges, ("store", "fitter", "steps, mapped from disk"))
    if asks_a_language_model(config):
        roles, edges = _with_language_model(config, roles, edges, "controller")
    return Topology(roles, edges)


def trains(config: Config) -> bool:
    """Whether any selected stage trains."""
    return any(stage.kind == "train" for stage in selected(config))


def learns(config: Config) -> bool:
    """Whether weights come out of any selected stage."""
    return any(stage.learns for stage in selected(config))


def asks_a_language_model(config: Config) -> bool:
    """Whether any selected stage needs the LLM service."""
    return any(stage.asks(config) for stage in selected(config))


def selected(config: Config) -> list[methods.Stage]:
    """The stages of the method that shall run, in order."""
    return [s for s in every_stage(config) if (s.name in config.stages if config.stages else not s.asked_for)]


def every_stage(config: Config) -> list[methods.Stage]:
    """The stages of the method, in order; a policy that is a language model may be tried in other words in any."""
    stages: list[methods.Stage] = methods.method(config.method.model_dump()["name"]).stages(config)
    if config.policy.network != LANGUAGE_MODEL or any(stage.kind == "generalise" for stage in stages):
        return stages
    return [*stages, methods.Stage("generalise", "generalise", asked_for=True)]


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
