"""Weights: what of a policy or another model is trained, by name. They travel to actors and are saved.

    learner's parameters ── get_weights: one buffer, one copy from a GPU ──> arrays by name ── set_weights ──> reader's

Arrays of one version are views of one buffer. For readers that compute in bfloat16, the matrices that are multiplied
in that type travel in it: half the bytes, and the same products. NumPy has no such type, so they are its bits, uint16.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learner.optim.device import HOST, fetch, send

Weights = dict[str, NDArray[Any]]
BITS = np.dtype(np.uint16)
"""The type of an array that holds the bits of bfloat16. No weights are integers of this type."""


class Weighted(Protocol):
    """What has weights."""

    def payload(self) -> dict[str, Tensor]:
        """Views of them, without gradients."""


def get_weights(model: Weighted, rounded: Collection[str] = ()) -> Weights:
    """Copies of the model's `payload`; those named in `rounded` as the bits of bfloat16."""
    own = model.payload()
    return fetch(
        {name: value.bfloat16().view(torch.uint16) if name in rounded else value for name, value in own.items()}
    )


def set_weights(model: Weighted, weights: Weights, what: str = "policy") -> None:
    """Load what `get_weights` gave.

    Raises:
        ValueError: names or shapes do not fit the model, which is a `what`.
    """
    own = model.payload()
    assert_same_shapes(own, weights, what)
    copy_into(own, weights)


def copy_into(own: Mapping[str, Tensor], weights: Weights) -> None:
    """Copy arrays into tensors of the same names and shapes."""
    where = next((value.device for value in own.values()), HOST)
    arrays = {name: np.array(array) if array.dtype == BITS else array for name, array in weights.items()}
    if where == HOST:  # straight into place: arrays may be read-only, of which PyTorch makes no tensors
        for name, value in own.items():
            if arrays[name].dtype != BITS:
                np.copyto(value.numpy(), arrays.pop(name))
    for name, x in send(arrays, where).items():
        own[name].copy_(x.view(torch.bfloat16) if x.dtype == torch.uint16 else x)


def assert_same_shapes(own: Mapping[str, Tensor], weights: Weights, what: str = "policy") -> None:
    """ValueError unless names and shapes are the same."""
    unfit = set(own) ^ set(weights) or {n for n, p in own.items() if tuple(p.shape) != weights[n].shape}
    if unfit:
        raise ValueError(f"the weights do not fit this {what}: {', '.join(sorted(unfit)[:3])} differ")


class Versions:
    """A model in two versions: which one it computes with changes by pointers, without a copy of weights.

    Actors that began a chunk with the version before ask in turn with those that have the newest: to copy the weights
    of a large model at each turn would take longer than to answer. The second copy is made when it is first needed.
    """

    def __init__(self, model: nn.Module, payload: Callable[[], Mapping[str, Tensor]]) -> None:
        """`payload` gives the model's weights, by names of its parameters."""
        self._model, self._payload = model, payload
        self._held: OrderedDict[int, dict[str, Tensor]] = OrderedDict()  # the last is in use

    def use(self, version: int, weights: Weights) -> None:
        """Let the model compute with a version, whose weights are these.

        Raises:
            ValueError: names or shapes do not fit the model.
        """
        if version in self._held:
            self._held.move_to_end(version)
        else:
            own = dict(self._payload())
            assert_same_shapes(own, weights)
            if len(self._held) == 2:
                _, place = self._held.popitem(last=False)
            else:
                place = {name: torch.empty_like(value) for name, value in own.items()} if self._held else own
            copy_into(place, weights)
            self._held[version] = place
        parameters = dict(self._model.named_parameters())
        for name, value in self._held[version].items():
            parameters[name].data = value
