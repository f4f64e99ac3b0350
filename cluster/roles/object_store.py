"""How large Ray's object store is: from the weights that pass through it, unless the configuration says a size.

    policy without numbers ── payload_size ──> bytes of a version ── times VERSIONS, and chunks ──> bytes of the store

The store holds chunks and weights on their way. If they do not fit, Ray moves them to the disk and back, and a version
that takes milliseconds takes minutes: so a run whose weights do not fit this machine is refused before it starts.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from actors.policy_server import KEPT
from cluster.config import limits
from cluster.config.overrides import ConfigError
from cluster.config.tree import Config
from cluster.roles.policy_server import served
from learner.group import payload_size

LEAST = 1_000_000_000
"""Bytes: enough for the chunks of any run so far, and for the weights of a small network."""
VERSIONS = 3
"""Versions at once: actors use the newest and the one before while the learner returns the next."""
SHARED = Path("/dev/shm")
GB = 10**9


def object_store(config: Config) -> int:
    """Bytes of each node's object store."""
    if config.cluster.object_store_gb:
        return int(config.cluster.object_store_gb * GB)
    return _needed(config, payload_size(config.policy, config.spec))


def assert_room(config: Config, shared: float | None = None, memory: float | None = None) -> None:
    """Check that the weights fit this machine, if Ray starts here and no size of its store was given.

    Args:
        shared: free bytes of shared memory; None asks the machine.
        memory: available bytes of memory; None asks the machine.

    Raises:
        ConfigError: they do not; the sentence says what needs how much.
    """
    if config.cluster.name != "local" or config.cluster.object_store_gb:
        return
    payload = payload_size(config.policy, config.spec)
    store = _needed(config, payload)
    if store == LEAST:
        return
    shared = shutil.disk_usage(SHARED).free if shared is None else shared
    advice = "train adapters only (policy.lm.tune=lora), take a smaller policy"
    if store > shared:
        raise ConfigError(
            f"the policy's weights are {payload / GB:.1f} GB, several versions of them need an object store of "
            f"{store / GB:.1f} GB, and {SHARED} has {shared / GB:.1f} GB free: enlarge it (docker run --shm-size), "
            f"{advice}, or set cluster.object_store_gb"
        )
    here = config.learner.n if not torch.cuda.is_available() else 0  # ranks whose arrays are in this memory
    # Weights, gradients and Adam's two moments; and the first rank's copy of a checkpoint that is being written.
    needed = store + here * 4 * payload + 3 * payload
    memory = limits.available() if memory is None else memory
    if needed > memory:
        raise ConfigError(
            f"the policy's weights are {payload / GB:.1f} GB: to train and pass them on takes {needed / GB:.1f} GB of "
            f"memory, and this machine has {memory / GB:.1f} GB left: {advice}, or set cluster.object_store_gb to make "
            "Ray use the disk"
        )


def _needed(config: Config, payload: int) -> int:
    actors = config.actors
    chunk = actors.steps * actors.envs * (limits.observed(config)[0] + limits.STEP)
    versions = VERSIONS + bool(config.evaluate.every)  # an evaluation may take longer than an update
    if served(config):
        versions = KEPT + 1
    return max(LEAST, int(1.1 * (versions * payload + 3 * actors.n * chunk)))  # a tenth for what lies between objects
