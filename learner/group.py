"""One rank of the learner group: takes chunks, returns a report and new weights.

Rank 0 alone returns weights and saves. The role owns the optimiser and keeps no clock and no random
state: (seed, version) give every random choice, so a checkpoint is arrays and counters.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from envs.api import Chunk, EnvSpec
from learner import checkpoint
from learner.algorithms import AlgorithmSetup, LearnerSetup, algorithm
from learner.checkpoint import Arrays
from learner.intrinsic import build_intrinsic
from learner.models.config import LANGUAGE_MODEL, PolicyConfig, visible
from learner.models.language.llm_policy import AnyPolicy, LanguagePolicy, parts_without_numbers
from learner.models.language.meter import Meter
from learner.models.language.probes import probe
from learner.models.policy import Policy
from learner.models.weights import Weighted, Weights, assert_same_shapes, get_weights, set_weights
from learner.optim.collective import Group
from learner.optim.device import device, settle
from learner.optim.gpu import readings
from llm_service.embedding import remember

__all__ = ["Learner", "Weights", "assert_of_shape", "build_policy", "get_weights", "set_weights"]


def build_policy(config: PolicyConfig, spec: EnvSpec, seed: int) -> AnyPolicy:
    """A policy with weights that follow from `seed` alone (of a language model, those that are not loaded)."""
    torch.manual_seed(seed)
    if config.network == LANGUAGE_MODEL:
        return LanguagePolicy(config, spec, seed)
    return Policy(config, spec)


def assert_of_shape(config: PolicyConfig, spec: EnvSpec, weights: Weights) -> None:
    """ValueError unless a policy of this configuration could have these weights. A language model is not loaded."""
    if config.network == LANGUAGE_MODEL:
        assert_same_shapes(parts_without_numbers(config, spec).payload(), weights)
    else:
        set_weights(build_policy(config, spec, 0), weights)


def payload_size(config: PolicyConfig, spec: EnvSpec) -> int:
    """Bytes of the weights of a policy of this configuration, without making them. A language model is not loaded."""
    if config.network == LANGUAGE_MODEL:
        policy: Weighted = parts_without_numbers(config, spec)
    else:
        with torch.device("meta"), _Unfilled():
            policy = Policy(config, spec)
    return sum(value.nbytes for value in policy.payload().values())


class _Unfilled(TorchFunctionMode):
    """Tensors without numbers are neither drawn nor copied: PyTorch would import its compiler for that, 2 s."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if func is Tensor.clone:
            return args[0].new_empty(args[0].shape)
        drawn = getattr(func, "__module__", "") == nn.init.__name__
        return named["tensor"] if drawn else func(*args, **named)


class Learner:
    """A role. Methods are called by the controller, one at a time."""

    def __init__(self, setup: LearnerSetup, rank: int = 0, address: str | None = None) -> None:
        torch.set_num_threads(setup.learner.threads)
        where = device(setup.learner.device, ranks=setup.learner.n)
        settle(where, setup.exact)  # of the intrinsic reward's networks, too
        self.policy = build_policy(setup.policy, setup.spec, setup.seed)
        if isinstance(self.policy, Policy):  # a language model is where its own configuration says
            self.policy.to(where)
        settle(self.policy.device, setup.exact)
        self._config = setup.learner
        group = Group(rank, setup.learner.n, address)
        by_words, size = setup.policy.text != "minilm", max(1, setup.learner.minibatch // group.size)
        read = visible(setup.policy, setup.spec)
        given = AlgorithmSetup(
            config=setup.learner,
            policy=self.policy,
            group=group,
            seed=setup.seed,
            intrinsic=build_intrinsic(setup.intrinsic, read, by_words, size, group, setup.seed, str(where)),
            options=setup.options,
            env_index=setup.env_index(rank),
            folder=setup.rank_folder(rank),
        )
        self.algorithm = algorithm(setup.learner.algorithm)(given)
        self.rank = rank
        names = ("updates", "steps", "seconds", "update_seconds", "gradient_norm")
        self._done = dict.fromkeys(names, 0.0)  # for `numbers`
        self._writer = checkpoint.Writer()
        self._meter = Meter(self.policy)
        self._rounded = self.policy.rounded() if isinstance(self.policy, LanguagePolicy) else frozenset[str]()

    def ready(self) -> Weights | None:
        """The current weights for who acts (rank 0), once the rank is built."""
        return get_weights(self.policy, self._rounded) if self.rank == 0 else None

    def load_weights(self, weights: Weights) -> Weights | None:
        """Start from other weights, optimiser fresh."""
        set_weights(self.policy, weights)
        self.algorithm.begin()
        return self.ready()

    def update(self, version: int, env_steps: int, *chunks: Chunk) -> tuple[dict[str, Any], Weights | None]:
        """Learn from chunks of equal T; the policy has `version` before the call.

        Returns the report (`dropped`: chunks that were not used; `learned`: env steps used, 0 if nothing was left) and,
        from rank 0, the weights of version + 1.

        Raises:
            FloatingPointError: not one gradient was finite.
        """
        self._writer.check()
        began = time.perf_counter()
        for chunk in chunks:
            if chunk.embedded:
                hashes, vectors = chunk.embedded
                remember((chunk.texts[key] for key in hashes.tolist()), vectors)
        report = self.algorithm.learn(version, env_steps, chunks)
        mean = float(np.mean([version - chunk.mean_version for chunk in chunks]))
        report |= {"policy/lag_mean": mean, "policy/lag_max": max(version - chunk.version for chunk in chunks)}
        for name in chunks[0].rewards:
            report[f"rewards/{name}"] = float(np.mean([chunk.rewards[name].mean() for chunk in chunks]))
        report |= self._shares(chunks, self._config.weights_at(env_steps))
        if self.rank == 0 and isinstance(self.policy, LanguagePolicy):
            report |= {f"probes/{name}": share for name, share in probe(self.policy).items()}
        report["seconds"] = time.perf_counter() - began
        speed = self._meter.lap(report["seconds"])
        report |= {f"charts/{name}": number for name, number in speed.items()} | readings(self.policy.device)
        done = self._done
        done["updates"] += bool(report["learned"])
        done["steps"] += report["learned"]
        done["seconds"] += report["seconds"]
        done["update_seconds"] = report["seconds"]
        done["gradient_norm"] = report.get("losses/gradient_norm", done["gradient_norm"])
        done |= speed | ({"tokens": self._meter.tokens} if speed else {})
        return report, self.ready()

    def _shares(self, chunks: Sequence[Chunk], weights: Mapping[str, float]) -> dict[str, float]:
        """Of what is paid beside the world's reward, its share in the sizes of all columns, weighted; in [0, 1]."""
        sizes = {
            name: abs(weights.get(name, 1.0)) * sum(float(np.abs(c.rewards[name]).sum()) for c in chunks)
            for name in chunks[0].rewards
        }
        total = sum(sizes.values())
        return {f"{name}/share": size / total for name, size in sizes.items() if name != "env" and total}

    def numbers(self) -> dict[str, float]:
        """What it has done since it was built, as `cluster.metrics.table.LEARNER` names it; any thread may ask."""
        numbers = self._done | readings(self.policy.device)
        return {f"learner/{key}": float(value) for key, value in numbers.items()}

    def rank_state(self) -> Arrays:
        """What this rank alone keeps; rank 0 writes it for all."""
        return self.algorithm.rank_state()

    def save(
        self, folder: Path, version: int, actors: Arrays, record: dict[str, Any], keep: int, *others: Arrays
    ) -> Path:
        """Write a checkpoint with the controller's `actors` arrays and JSON `record`. Returns its path.

        others: `rank_state` of the ranks from 1 on.
        """
        path = self._writer.write(folder, version, self._state(actors, others), record, keep, wait=True)
        assert path is not None
        return path

    def save_beside(
        self, folder: Path, version: int, actors: Arrays, record: dict[str, Any], keep: int, *others: Arrays
    ) -> float:
        """`save`, but a large model's is only copied when this returns, and written while learning goes on.

        Returns how long it took to write the last large one, in seconds; 0 before the first.
        """
        self._writer.write(folder, version, self._state(actors, others), record, keep, self.algorithm.on_disk)
        return self._writer.seconds

    def saved(self) -> None:
        """Wait until the checkpoint that is being written is complete; raises as `checkpoint.write`."""
        self._writer.finish()

    def _state(self, actors: Arrays, others: Sequence[Arrays]) -> dict[str, Arrays]:
        groups = {"model": get_weights(self.policy), "actors": actors, **self.algorithm.state()}
        return groups | {f"rank-{rank}": each for rank, each in enumerate((self.rank_state(), *others)) if each}

    def restore(self, path: Path) -> Weights | None:
        """Continue from a checkpoint: model, and what the algorithm keeps beside it.

        Raises:
            CheckpointError: it is damaged.
            ValueError: it is of another policy, or of another algorithm.
        """
        found = checkpoint.read(path)
        set_weights(self.policy, found.arrays["model"])
        self.algorithm.restore(found.arrays, found.arrays.get(f"rank-{self.rank}", {}))
        return self.ready()
