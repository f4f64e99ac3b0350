"""One rank of the learner group: takes chunks, returns a report and new weights.

Rank 0 alone returns weights and saves. The role owns the optimiser and keeps no clock and no random
state: (seed, version) give every random choice, so a checkpoint is arrays and counters.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from envs.api import Chunk, EnvSpec
from learner import checkpoint
from learner.collective import Group
from learner.models.policy import Policy, PolicyConfig
from learner.ppo import PPO, LearnerConfig, collate

Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class LearnerSetup:
    """All that a rank needs to build itself anew."""

    learner: LearnerConfig
    policy: PolicyConfig
    spec: EnvSpec
    seed: int


def build_policy(config: PolicyConfig, spec: EnvSpec, seed: int) -> Policy:
    """A policy with weights that follow from `seed` alone."""
    torch.manual_seed(seed)
    return Policy(config, spec)


def get_weights(policy: Policy) -> Weights:
    """Copies of the trainable parameters by name."""
    return {name: p.detach().numpy().copy() for name, p in policy.named_parameters() if p.requires_grad}


def set_weights(policy: Policy, weights: Weights) -> None:
    """Load parameters by name.

    Raises:
        ValueError: names or shapes do not fit this policy.
    """
    own = {name: p for name, p in policy.named_parameters() if p.requires_grad}
    unfit = set(own) ^ set(weights) or {n for n, p in own.items() if tuple(p.shape) != weights[n].shape}
    if unfit:
        raise ValueError(f"the weights do not fit this policy: {', '.join(sorted(unfit)[:3])} differ")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(torch.from_numpy(np.array(weights[name])))


class Learner:
    """A role. Methods are called by the controller, one at a time."""

    def __init__(self, setup: LearnerSetup, rank: int = 0, address: str | None = None) -> None:
        torch.set_num_threads(setup.learner.threads)
        self.config = setup.learner
        self.policy = build_policy(setup.policy, setup.spec, setup.seed)
        self.ppo = PPO(setup.learner, self.policy, Group(rank, setup.learner.n, address), setup.seed)
        self.rank = rank

    def ready(self) -> Weights | None:
        """The current weights (rank 0), once the rank is built."""
        return get_weights(self.policy) if self.rank == 0 else None

    def load_weights(self, weights: Weights) -> Weights | None:
        """Start from other weights, optimiser fresh."""
        set_weights(self.policy, weights)
        return self.ready()

    def update(self, version: int, env_steps: int, *chunks: Chunk) -> tuple[dict[str, Any], Weights | None]:
        """Learn from chunks of equal T; the policy has `version` before the call.

        Chunks older than `max_lag` versions are dropped. Returns the report (`dropped`: how many; `learned`: env steps
        used, 0 if nothing was left) and, from rank 0, the weights of version + 1.

        Raises:
            FloatingPointError: not one gradient was finite.
        """
        began = time.perf_counter()
        lags = [version - chunk.version for chunk in chunks]
        young = sorted((lag, i) for i, lag in enumerate(lags) if lag <= self.config.max_lag)
        # Every rank must learn from equally many, or some would wait for the others' gradients for ever.
        used = sorted(i for _, i in young[: self.ppo.group.minimum(len(young))])
        report: dict[str, Any] = {"dropped": len(chunks) - len(used), "learned": sum(chunks[i].steps for i in used)}
        if used:
            batch = collate([chunks[i] for i in used], self.policy, version, self.config.reward_scale)
            report |= self.ppo.update(batch, version, env_steps)
        report |= {"policy/lag_mean": float(np.mean(lags)), "policy/lag_max": max(lags)}
        report["seconds"] = time.perf_counter() - began
        return report, self.ready()

    def save(self, folder: Path, version: int, actors: checkpoint.Arrays, record: dict[str, Any], keep: int) -> str:
        """Write a checkpoint with the controller's `actors` arrays and JSON `record`. Returns its path."""
        groups = {"model": get_weights(self.policy), "optimiser": self.ppo.adam.state(), "actors": actors}
        return str(checkpoint.write(folder, version, groups, record, keep))

    def restore(self, path: Path) -> Weights | None:
        """Continue from a checkpoint: model and optimiser.

        Raises:
            CheckpointError: it is damaged.
            ValueError: it is of another policy.
        """
        found = checkpoint.read(path)
        set_weights(self.policy, found.arrays["model"])
        self.ppo.adam.restore(found.arrays["optimiser"])
        return self.ready()
