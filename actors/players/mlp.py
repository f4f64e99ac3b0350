"""A small policy as a player without PyTorch: the `mlp` network with its two heads, in NumPy.

    numbers of a state ──> x [B, width] ──> tanh ──> tanh ──┬──> logits [B, A]
                                        └─> tanh ──> tanh ──┴──> values [B]

For a network of this size PyTorch is mostly overhead: a second of processor time and 150 MB in every actor, and five
times the time of the arithmetic in a step of one env. Weights and layers are the same as in that network, and results
are equal to the last bits of float32 (a test compares them). Limit: no texts, no memory, no stacked pictures, no action
values.
"""

from __future__ import annotations

import math
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from actors.players import LogitsPlayer, Step
from envs.api import EnvSpec, Observation
from learner.models.config import PolicyConfig, visible

if TYPE_CHECKING:
    from actors.setup import ActorSetup
    from learner.group import Weights


def suits(setup: ActorSetup) -> bool:
    """Whether the policy can act in NumPy."""
    config = setup.policy
    plain = (config.network, config.memory, config.head, config.stack) == ("mlp", "none", "actor_critic", 1)
    return plain and all(field.kind != "text" for field in visible(config, setup.spec).fields.values())


def make(setup: ActorSetup, caller: str) -> MLPPlayer:
    return MLPPlayer(setup.policy, setup.spec)


class MLPPlayer(LogitsPlayer):
    """An `mlp` policy that only acts: weights by version."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        self._config = config
        self.fields = self._fields = visible(config, spec).fields
        self._eyes = {
            name: np.eye(f.size, dtype=np.float32) for name, f in self._fields.items() if f.kind == "category"
        }
        self.version = -1

    def load(self, weights: Weights | None, version: int) -> None:
        if version != self.version:
            assert weights is not None
            # They arrive as read-only views of shared memory, in their saved layout. Here all products have one
            # layout: with one env, code that is not in the processor's cache costs most.
            w = {name: np.asarray(value, np.float32) for name, value in weights.items()}
            self._body = _layer(w["network.first_weight"], w["network.first_bias"])
            second = zip(w["network.second_weight"], w["network.second_bias"], strict=True)
            self._actor, self._critic = (_layer(*part) for part in second)
            self._logits = _layer(w["actor.weight"].T, w["actor.bias"])
            self._value = _layer(w["critic.weight"].T, w["critic.bias"])
            self.version = version

    def twin(self, elsewhere: ActorSetup | None = None) -> MLPPlayer:
        assert elsewhere is None, "this policy reads no prompts, and supports one environment"
        return copy(self)

    def step(self, obs: Observation, state: NDArray[Any] | None = None) -> Step:
        """Logits [B, A] and values [B] of dense observations [B, ...]."""
        hidden = self._config.hidden
        inner = np.tanh(_apply(self._body, self._flat(obs)))
        logits = _apply(self._logits, np.tanh(_apply(self._actor, inner[:, :hidden])))
        value = _apply(self._value, np.tanh(_apply(self._critic, inner[:, hidden:])))
        return logits, value[:, 0], None

    def _flat(self, obs: Observation) -> NDArray[np.float32]:
        """All numbers concatenated, float32 [B, width], as in `Network.inputs`."""
        parts = []
        for name, field in self._fields.items():
            value = obs[name]
            if field.kind == "category":
                parts.append(self._eyes[name][value])
                continue
            flat = value.reshape(len(value), math.prod(field.shape)).astype(np.float32)
            parts.append(flat / np.float32(10) if field.kind == "grid" else flat)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, 1)


Layer = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Weights [in, out] in this memory order, and biases [out]."""


def _layer(weight: NDArray[np.float32], bias: NDArray[np.float32]) -> Layer:
    return np.ascontiguousarray(weight), bias.reshape(-1).copy()


def _apply(layer: Layer, x: NDArray[np.float32]) -> NDArray[np.float32]:
    weight, bias = layer
    return x @ weight + bias
