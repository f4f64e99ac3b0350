"""Does a run fit? Checks the numbers of its configuration, and the memory of the machine that it runs on.

    configuration ── needed() ──> bytes that the run needs at least ──┐
                     machine ── available() ──> bytes available ──────┴──> one sentence, or the run begins

Estimates are lower bounds: only certain needs count, so a refused run could not have worked. Jobs run on other
machines, so for them only plain bounds are checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from cluster.config.checks import assert_bounded, number
from cluster.config.overrides import ConfigError
from cluster.config.tree import Config
from cluster.stages import engine
from envs import registry
from envs.config import Part
from learner.methods import selected

GIB = 2**30
ACTOR = {"local": 64 * 2**20, "inline": 16 * 2**10}
"""Bytes of an actor on this machine, by cluster: a process, measured at 67 MB without PyTorch; an object."""
ENV = 256
"""Bytes of an env besides its observations: seeds, counters, the actions of its episode."""
STEP = 16
"""Bytes of a step besides the observation: action, its log-probability, reward, how it ended."""
EPISODE = 100
"""Bytes of an evaluated episode: its seed, its row in one table, and a resample for the interval."""
SHARE = 32
"""Bytes of an episode to be collected."""
SIZES = {  # keys that determine memory, and what they count
    "actors.n": "each a process or an object, with its envs and their chunk",
    "actors.envs": "per actor, with their chunk",
    "actors.steps": "of each chunk",
    "learner.n": "a process each",
    "learner.chunks": "waiting for an update",
    "learner.dqn.capacity": "rows kept by learner.dqn.keep=memory",
    "evaluate.episodes": "each a row of a table",
    "evaluate.validation_episodes": "each a row of a table",
    "method.generalise.episodes": "each a row of a table",
    "method.collect.episodes": "each an entry in the list of episodes to play",
    "method.histories.together": "per actor, each an env, a table and 100 episodes",
}


def assert_fits(config: Config, room: float | None = None, kinds: Collection[str] | None = None) -> None:
    """Refuse a run that does not fit this machine's memory. The `ConfigError` names a key and a value that fits.

    room: bytes available; None asks the machine.
    kinds: kinds of the stages to run; None: all that the configuration selects.
    """
    if config.cluster.name not in ACTOR:
        return
    room = available() if room is None else room
    total = needed(config, kinds)
    if total <= room:
        return assert_bounded(config)
    key = min(SIZES, key=lambda one: needed(_with(config, one, 1), kinds))
    value = number(config, key)
    fits, too_many = 0, value
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if needed(_with(config, key, middle), kinds) <= room else (fits, middle)
    advice = f"{key}={fits} fits" if fits else f"not even {key}=1 fits"
    raise ConfigError(
        f"{key}={value} ({SIZES[key]}) needs at least {_size(total)} of memory in all, and this machine has "
        f"{_size(room)} left: {advice}"
    )


def needed(config: Config, kinds: Collection[str] | None = None) -> int:
    """Bytes of memory that a run on this machine needs at least: its largest stage, of these kinds."""
    kinds = {stage.kind for stage in selected(config)} if kinds is None else kinds
    return max((engine(kind).memory(config) for kind in kinds), default=0)


def available(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> float:
    """Bytes of memory available on the machine, or in the container if that has less; inf if unknown.

    Args:
        proc: where the kernel reports processes and memory.
        groups: where it reports the limits of containers and jobs, in either of its two layouts.
    """
    try:
        told = (proc / "meminfo").read_text()
    except OSError:
        return math.inf
    found = re.search(r"^MemAvailable:\s+(\d+) kB", told, re.MULTILINE)
    room = int(found[1]) * 1024 if found else math.inf
    own = proc / "self" / "cgroup"
    within = re.search(r"^0::/(.*)$", own.read_text(), re.MULTILINE) if own.exists() else None
    folder = groups / (within[1] if within else "")
    for place in (folder, *folder.parents):  # a group has no more than its parents
        if place == groups or groups in place.parents:
            room = min(room, _left(place, "memory.max", "memory.current", ""))
    return min(room, _left(groups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))


def _left(group: Path, limit: str, usage: str, prefix: str) -> float:
    """Bytes that a group may still use. The kernel's caches count, because it can free them at any time."""
    try:
        most, used = (group / limit).read_text().strip(), int((group / usage).read_text())
        cached = rf"^(?:{prefix}inactive_file|{prefix}active_file|slab_reclaimable) (\d+)$"
        free = sum(map(int, re.findall(cached, (group / "memory.stat").read_text(), re.MULTILINE)))
    except (OSError, ValueError):
        return math.inf
    return math.inf if most == "max" else int(most) - used + free


def crew(config: Config) -> int:
    """Bytes of the actors and their envs."""
    actors = config.actors
    return actors.n * (process(config) + actors.envs * (ENV + observed(config)[0]))


def process(config: Config) -> int:
    """Bytes of a role."""
    return ACTOR[config.cluster.name]


def observed(config: Config) -> tuple[int, int]:
    """Bytes of one step's observation as the policy reads it, and of its row in a replay."""
    spec = registry.spec(config.env.id, **config.env.options)
    read = [field for name, field in spec.fields.items() if name in (config.policy.reads or spec.fields)]
    seen = sum(math.prod(field.shape) * field.dtype.itemsize for field in read)
    # A replay keeps categories in as few bytes as possible, an action, its reward and two flags.
    stored = sum(math.prod(field.shape) * (1 if field.kind == "category" else field.dtype.itemsize) for field in read)
    return seen, stored + 7


def _with(config: Part, key: str, value: int) -> Any:
    """`config` with another, smaller, number at `key`, if it has this key."""
    name, _, rest = key.partition(".")
    there = getattr(config, name, None)
    if there is None:
        return config
    return config.model_copy(update={name: _with(there, rest, value) if rest else min(value, there)})


def _size(count: float) -> str:
    return f"{count / GIB:,.1f} GiB"
