"""Does this processor multiply bfloat16 numbers itself?"""

from __future__ import annotations

import torch


def has_bfloat16() -> bool:
    """Does this processor multiply bfloat16?"""
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16") or found.get("bf16"))


def require_bfloat16() -> None:
    """ValueError unless this processor multiplies bfloat16 numbers itself: emulated, they are slower than float32."""
    if not has_bfloat16():
        raise ValueError("learner.autocast: bfloat16 needs a processor with avx512_bf16 or amx_bf16: set it to auto")
