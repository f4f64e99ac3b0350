"""Arithmetic of networks in training: float32, or bfloat16 if the device supports it natively."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from learner.config import Autocast
from learner.optim.device import HOST, device


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
