"""Weights: what of a policy or another model is trained, by name. They travel to actors and are saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.optim.device import read

Weights = dict[str, NDArray[Any]]


class Weighted(Protocol):
    """What has weights."""

    def payload(self) -> dict[str, Tensor]:
        """Views of them, without gradients."""


def get_weights(model: Weighted) -> Weights:
    """Copies of the model's `payload`."""
    return {name: np.array(read(value)) for name, value in model.payload().items()}


def set_weights(model: Weighted, weights: Weights, what: str = "policy") -> None:
    """Load what `get_weights` gave.

    Raises:
        ValueError: names or shapes do not fit the model, which is a `what`.
    """
    own = model.payload()
    assert_same_shapes(own, weights, what)
    for name, value in own.items():
        value.copy_(torch.from_numpy(np.array(weights[name])))


def assert_same_shapes(own: Mapping[str, Tensor], weights: Weights, what: str = "policy") -> None:
    """ValueError unless names and shapes are the same."""
    unfit = set(own) ^ set(weights) or {n for n, p in own.items() if tuple(p.shape) != weights[n].shape}
    if unfit:
        raise ValueError(f"the weights do not fit this {what}: {', '.join(sorted(unfit)[:3])} differ")
