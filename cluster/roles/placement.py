"""Where a run's roles compute: which of them have a GPU, and what does not fit. Behind every kind of cluster.

    configuration, GPUs of each node ── plan ──> Plan ── Reservation ──> a placement group of Ray ──> options of a role
                                          └────> one sentence, before anything starts

- A rank that learns has a whole GPU, and no two ranks share one: NCCL refuses that. Ranks of small networks learn on
  the processor if there is not a GPU for each, unless their key says `cuda`. Language models are not left to the
  processor where there are GPUs: what does not fit is refused.
- The policy server, and processes that hold a model of the LLM service, have a whole GPU each, apart from the learner.
  If there are too few, they share the GPUs of its ranks; `cluster.share_gpus` forbids or forces that. Actors with a
  model of their own share only if it is forced.
- Every other role has none, and sees none: Ray shows a process the GPUs that it was given.

Ray places the bundles. It packs them onto few nodes, and the ranks are on the learner's node if that has enough.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster.config.overrides import ConfigError
from cluster.config.tree import Config
from cluster.roles.backend import JOIN
from cluster.roles.drawing import Role
from cluster.topology import topology

RANKS = ("learner", "fitter", "preference")
"""Roles that learn. Only one of them exists at a time, so they use the same GPUs."""
MODELS = ("policy.lm.device", "llm.device")
"""Keys of language models."""
SHARE = {"auto": (False, True), "yes": (True,), "no": (False,)}
"""Ways to place those beside the ranks, in the order of trial: whether they share the ranks' GPUs."""
HOME = {"learner": 1e-4}
"""A share of the resource that marks the learner's node, so small that any number of roles fits."""


@dataclass(frozen=True)
class Seat:
    """The place of one process: its bundle, and how many GPUs of it."""

    bundle: int
    gpus: float


@dataclass(frozen=True)
class Plan:
    """GPUs that are kept together on a node, and who sits where. A role without seats computes on the processor."""

    bundles: tuple[float, ...] = ()  # GPUs of each; the ranks' come first
    ranks: int = 0  # how many are the ranks'
    home: frozenset[int] = frozenset()  # those that must be on the learner's node
    seats: Mapping[str, tuple[Seat, ...]] = field(default_factory=dict)  # by role, one for each process

    def seat(self, name: str) -> Seat | None:
        """Of a process by its name, such as `learner-1.2`: rank 1 of the third group."""
        role, number = re.match(r"([a-z]+)-?(\d*)", name).groups()  # type: ignore[union-attr] # all are named so
        seats = self.seats.get(role, ())
        return seats[int(number or 0) % len(seats)] if seats else None


def plan(config: Config, nodes: Sequence[int], where: str = "this machine") -> Plan:
    """Who computes on which GPU.

    Args:
        nodes: how many GPUs each node has, the learner's first.
        where: what has these GPUs, for the message.

    Raises:
        ConfigError: what needs GPUs does not fit; one sentence.
    """
    able = [role for role in topology(config).roles if _gpus(config, role)]
    chosen = [role for role in able if _must(config, role, nodes)]
    for share in SHARE[config.cluster.share_gpus]:
        if _fits(found := _seated(config, chosen, nodes, share), nodes):
            break
    else:
        raise ConfigError(_refusal(config, chosen, nodes, where))
    for role in able:
        more = _seated(config, [*chosen, role], nodes, share)
        if role not in chosen and _fits(more, nodes):
            chosen, found = [*chosen, role], more
    return found


def _gpus(config: Config, role: Role) -> float:
    """GPUs that each process of a role would have; 0: it never has one."""
    if role.name == "replica" and config.llm.gpus:
        return config.llm.gpus
    name = _device(config, role)
    if not role.count or name not in ("auto", "cuda"):
        return 0
    return 0 if role.name == "actor" and name == "auto" and config.cluster.share_gpus != "yes" else 1


def _device(config: Config, role: Role) -> str:
    """What the key of a role says: auto, cpu or cuda."""
    value: Any = config
    for part in role.device.split(".") if role.device else ():
        value = getattr(value, part)
    return value if role.device else "cpu"


def _must(config: Config, role: Role, nodes: Sequence[int]) -> bool:
    told = _device(config, role) == "cuda" or (role.name == "replica" and config.llm.gpus > 0)
    return told or (role.device in MODELS and any(nodes) and role.name != "actor")


def _seated(config: Config, roles: Sequence[Role], nodes: Sequence[int], share: bool) -> Plan:
    """The plan that gives all of these roles GPUs, whether there are so many or not."""
    ranks = max((role.count for role in roles if role.name in RANKS), default=0)
    guests = [role.name for role in roles if role.name not in RANKS for _ in range(role.count)]
    bundles, at, turn = [1.0] * ranks, list[int](), 0
    for name in guests:
        amount = config.llm.gpus if name in ("llm", "replica") else 0
        if not share or amount:
            bundles.append(amount or 1)
            at.append(len(bundles) - 1)
            continue
        bundles = bundles or [1.0]
        at.append(0 if name == "llm" else turn % max(1, ranks))
        turn += 1
    crowd = Counter([*range(ranks), *at])
    seats = {role.name: tuple(map(_share(bundles, crowd), range(role.count))) for role in roles if role.name in RANKS}
    for name in dict.fromkeys(guests):
        own = [bundle for guest, bundle in zip(guests, at, strict=True) if guest == name]
        seats[name] = tuple(map(_share(bundles, crowd), own))
    # A pod of the learner is one; elsewhere ranks may be on several nodes, and the first stays with the controller.
    together = config.cluster.name == "kubernetes" or ranks <= max(nodes[:1], default=0)
    service = [seat.bundle for seat in seats.get("llm", ())]  # who asks it may be on the learner's node alone
    return Plan(tuple(bundles), ranks, frozenset([*range(ranks if together else min(ranks, 1)), *service]), seats)


def _share(bundles: Sequence[float], crowd: Mapping[int, int]) -> Callable[[int], Seat]:
    """The seat in a bundle that as many processes share as are in the crowd; Ray counts ten-thousandths."""
    return lambda bundle: Seat(bundle, math.floor(1e4 * bundles[bundle] / crowd[bundle]) / 1e4)


def _fits(found: Plan, nodes: Sequence[int]) -> bool:
    """Whether there is room for all bundles, the ranks' first."""
    left = [float(count) for count in nodes]
    guests = range(found.ranks, len(found.bundles))
    for bundle in [*range(found.ranks), *sorted(guests, key=lambda one: (one not in found.home, -found.bundles[one]))]:
        gpus = found.bundles[bundle]
        taken = gpus if gpus >= 1 else 1 / math.floor(1 / gpus)  # a part of one GPU, not of two
        candidates = range(len(nodes))[: 1 if bundle in found.home else None]
        able = [node for node in candidates if left[node] > taken - 1e-6]
        if not able:
            return False
        left[able[0]] -= taken
    return True


def _refusal(config: Config, roles: Sequence[Role], nodes: Sequence[int], where: str) -> str:
    needed = sum(_seated(config, roles, nodes, SHARE[config.cluster.share_gpus][-1]).bundles)
    who = ", ".join(f"{role.name} x {role.count} ({role.device or 'llm.gpus'})" for role in roles)
    advice = ["add GPUs"]
    if any(role.name in RANKS and role.count > 1 for role in roles):
        advice.append("take a smaller learner.n")
    if config.cluster.share_gpus == "no" and any(role.name not in RANKS for role in roles):
        advice.append("set cluster.share_gpus=auto")
    if any(role.name == "actor" for role in roles):
        advice.append("set policy.lm.placement=server")
    keys = dict.fromkeys(f"{role.device}=cpu" for role in roles if role.device)
    last = " ".join(keys) or "llm.gpus=0"
    has = " + ".join(map(str, nodes)) or "0"
    return f"{who}: {needed:g} GPUs are needed, but {where} has {has}: {', '.join(advice)}, or set {last}"


# ---- the GPUs that there are ----------------------------------------------------------------------------------------


def here() -> int:
    """How many GPUs this process sees."""
    import torch

    return torch.cuda.device_count()


def declared(config: Config) -> tuple[list[int], str]:
    """GPUs of each node that a configuration asks for, or that are here; and what has them, for a message."""
    slurm, kubernetes = config.cluster.slurm, config.cluster.kubernetes
    if config.cluster.name == "slurm" and "CAIRN_JOB" not in os.environ:
        return [slurm.gpus] * slurm.nodes + [0] * slurm.actor_nodes, "each node of the job (cluster.slurm.gpus)"
    if config.cluster.name == "kubernetes":
        pods = [kubernetes.asked(kubernetes.llm_gpus)] * kubernetes.llm_pods
        where = "the learner's pod and those of group llm (cluster.kubernetes.learner_gpus, .llm_gpus, .llm_pods)"
        return [kubernetes.asked(kubernetes.learner_gpus), *pods], where
    return [here()], "this machine"


def assert_placed(config: Config) -> None:
    """Raise `ConfigError` if the GPUs that are asked for, or that are here, do not suffice; one sentence.

    A run that joins a cluster of nodes is checked by `plan` once it sees them."""
    if config.cluster.name == "inline":  # one process sees what there is
        config = config.model_copy(update={"cluster": config.cluster.model_copy(update={"share_gpus": "yes"})})
    if JOIN not in os.environ or config.cluster.name == "kubernetes":
        plan(config, *declared(config))


def describe(config: Config, nodes: Sequence[int] | None = None) -> str:
    """What would be placed where, on these nodes or those that are declared: a line for the nodes, one for each role.

    Raises:
        ConfigError: as `plan`.
    """
    known, where = declared(config)
    nodes = known if nodes is None else nodes
    found = plan(config, nodes, where)
    if not any(nodes):
        return "no GPU: every role computes on the processor"
    lines = [f"GPUs of each node: {', '.join(map(str, nodes))}"]
    for role, seats in found.seats.items():
        several = found.ranks > nodes[0] and role in RANKS
        own = all(seat.gpus >= found.bundles[seat.bundle] for seat in seats)
        taken = f"{seats[0].gpus:g} GPU each" if own else "on a shared GPU"
        lines.append(f"  {role:<11} x {len(seats):<3} {taken}{', on several nodes' if several else ''}")
    return "\n".join([*lines, "  all else    computes on the processor, and sees no GPU"])


def offer(gpus: int) -> str:
    """What a machine with so many GPUs has room for, in a sentence."""
    if not gpus:
        return "no GPU: every role computes on the processor; --dry-run says it of a run"
    beside = f", {gpus - 1} beside a policy server" if gpus > 1 else ", which a policy server shares"
    least = f"{gpus} GPU{'s' * (gpus > 1)}: learner.n may be up to {gpus}{beside}"
    return f"{least}; --dry-run says what a run would place where"


# ---- on Ray ---------------------------------------------------------------------------------------------------------


class Reservation:
    """The GPUs of a plan, which Ray keeps for this run until it ends. Needs a Ray that is connected."""

    def __init__(self, found: Plan) -> None:
        from ray.util import placement_group

        self.plan = found
        made = [{"GPU": gpus} | (HOME if at in found.home else {}) for at, gpus in enumerate(found.bundles)]
        # Ranks first: what is beside them must not take their node's GPUs.
        parts = ((0, made[: found.ranks]), (found.ranks, made[found.ranks :]))
        self._groups = [(begin, placement_group(part, strategy="PACK")) for begin, part in parts if part]

    def nodes(self) -> list[str]:
        """The id of each bundle's node; empty while Ray has not placed all of them."""
        from ray.util import placement_group_table

        tables = [placement_group_table(group) for _, group in self._groups]
        if any(table["state"] != "CREATED" for table in tables):
            return []
        return [table["bundles_to_node_id"][at] for table in tables for at in range(len(table["bundles_to_node_id"]))]

    def options(self, seat: Seat) -> dict[str, Any]:
        """Arguments of `ray.remote` that place a process there; it then sees this GPU alone."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        begin, group = next(one for one in reversed(self._groups) if one[0] <= seat.bundle)
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=seat.bundle - begin)
        return {"num_cpus": 0, "num_gpus": seat.gpus, "scheduling_strategy": strategy}
