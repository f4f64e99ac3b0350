"""Arithmetic of networks while they learn: float32, or bfloat16 where the processor multiplies it itself."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from learner.config import Autocast


def has_bfloat16() -> bool:
    """Does this processor multiply bfloat16?"""
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16") or found.get("bf16"))


def halves(autocast: Autocast) -> bool:
    """Whether networks learn in bfloat16 here.

    Raises:
        ValueError: it was asked for, and this processor would emulate it, slower than float32.
    """
    if autocast == "bfloat16" and not has_bfloat16():
        raise ValueError("learner.autocast: bfloat16 needs a processor with avx512_bf16 or amx_bf16: set it to auto")
    return autocast != "none" and has_bfloat16()


def arithmetic(half: bool, device: str = "cpu") -> AbstractContextManager[Any]:
    """Within it, networks on a kind of device multiply bfloat16 numbers, or float32. Weights stay as they are."""
    return torch.autocast(device, torch.bfloat16) if half else nullcontext()
