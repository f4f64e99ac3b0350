"""The topology of a run: which roles run, how many of each, and what flows between them.

`run.py` starts these roles, and `--dry-run` prints them. Each stage declares what it starts.
"""

from __future__ import annotations

from functools import reduce

from cluster.config.tree import Config
from cluster.roles.drawing import Role, Topology
from cluster.stages import engine
from learner.methods import selected

CONTROLLER = Role("controller", 1, 1, "starts roles, moves references, restarts what dies, saves, reports")


def topology(config: Config) -> Topology:
    """The topology that a configuration asks for."""
    stages = [engine(stage.kind).roles(config) for stage in selected(config)]
    return reduce(Topology.__add__, stages, Topology((CONTROLLER,))) + _language_model(config)


def _language_model(config: Config) -> Topology:
    """The service, and the roles that ask it."""
    askers = {engine(stage.kind).asker: None for stage in selected(config) if engine(stage.kind).asks(config, stage)}
    if not askers:
        return Topology()
    llm = config.llm
    does = f"LLM service, backend {llm.name}, with journal and Redis"
    if llm.address:
        does = f"LLM service at {llm.address}, started elsewhere"
    key = "llm.device" if hasattr(llm.options, "device") else ""
    alone = not llm.replicas and config.cluster.name != "kubernetes"  # there it is not in this run's pods
    drawn = Topology((Role("llm", int(not llm.address), 1, does, key if alone else ""),))
    if llm.replicas and not llm.address:
        replica = Role("replica", llm.replicas, 1, "holds the model", key)
        drawn += Topology((replica,), (("llm", "replica", "batches of calls"),))
    return drawn + Topology((), tuple((role, "llm", "batches of questions over gRPC") for role in askers))


def asks_a_language_model(config: Config) -> bool:
    """Whether any selected stage needs the LLM service."""
    return any(engine(stage.kind).asks(config, stage) for stage in selected(config))


def learns(config: Config) -> bool:
    """Whether any selected stage produces weights."""
    return any(engine(stage.kind).makes == "weights" for stage in selected(config))


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
