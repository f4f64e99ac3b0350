"""Arithmetic of networks in training: float32, or bfloat16 if the device supports it natively."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from learner.config import Autocast
from learner.optim.device import HOST, device

Network = TypeVar("Network", bound=nn.Module)


def has_bfloat16() -> bool:
    """Does this processor multiply bfloat16?"""
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16") or found.get("bf16"))


def halves(autocast: Autocast, where: torch.device = HOST) -> bool:
    """Whether networks learn in bfloat16 on this device.

    Raises:
        ValueError: it was asked for, and the device would emulate it, slower than float32.
    """
    if where.type == "cuda":
        able, needed = torch.cuda.is_bf16_supported(including_emulation=False), "a GPU of compute capability 8.0"
    else:
        able, needed = where.type == "cpu" and has_bfloat16(), "a processor with avx512_bf16 or amx_bf16"
    if autocast == "bfloat16" and not able:
        raise ValueError(f"learner.autocast: bfloat16 needs {needed}: set it to auto")
    return autocast != "none" and able


def assert_arithmetic(autocast: Autocast, name: str) -> None:
    """As `halves`, for a device that a configuration names. A GPU that only other machines have says so itself."""
    if name != "cuda" or torch.cuda.is_available():
        halves(autocast, device(name))


def arithmetic(half: bool, device: str = "cpu") -> AbstractContextManager[Any]:
    """In this context, networks on a kind of device multiply in bfloat16 or in float32. Weights keep their type."""
    return torch.autocast(device, torch.bfloat16) if half else nullcontext()


def whole(device: str) -> AbstractContextManager[Any]:
    """In this context, float32, whatever the surrounding context."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


class Halved(Generic[Network]):
    """A copy of a network whose weights are bfloat16, for passes under `arithmetic`: autocast would otherwise make it
    anew in every pass, which costs a small minibatch more than its faster products save. Buffers are not followed.

    Args:
        original: the network that learns, in float32.
        kept: layers of it that compute in float32. The copy shares their weights.

    Attributes:
        network: the copy. Where the original has a gradient, it has one in its own type.
    """

    def __init__(self, original: Network, kept: Iterable[nn.Module]) -> None:
        whole = {id(parameter) for layer in kept for parameter in layer.parameters()}
        self.network = copy.deepcopy(original)
        self._pairs: list[tuple[Tensor, Tensor]] = []
        for own, other in zip(original.parameters(), self.network.parameters(), strict=True):
            if id(own) in whole:
                other.data, other.grad = own.data, own.grad
                continue
            other.data = own.data.bfloat16()
            other.grad = None if own.grad is None else torch.zeros_like(other)
            self._pairs.append((own, other))

    @torch.no_grad()
    def refresh(self) -> None:
        """The original has other weights."""
        for own, other in self._pairs:
            other.copy_(own)
