"""T5's blocks arranged for a GPU: all prompts of a micro-batch form one matrix, and only attention separates them.

    tokens [S, D] of all groups ──> norm, queries, keys, values ──> attention, group by group ──> perceptron

Small matrices leave a GPU idle, so prompts of different lengths share every product with weights. Only attention pads,
inside groups of similar length. States between blocks keep the dtype of the computation: bfloat16 halves memory
traffic. The library's blocks cast them to float32 and back around every norm and perceptron.

The submodules are the model's own, so adapters and dropout still work. Hooks on a block would be bypassed, so `able`
excludes such models.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

KERNELS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Attention kernels that support a learned bias and return its gradient."""
ALIGNED = 8
"""Lengths are rounded up to multiples of this, in tokens: unless rows fill 16 bytes, the kernels copy the bias
first."""


def able(stack: Any) -> bool:
    """Whether the blocks of a stack can be run part by part: none has a hook, and none clamps float16."""
    parts = (part for block in stack.block for part in (block, *block.layer, block.layer[0].SelfAttention))
    hooked = any(m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in parts)
    return not hooked and arithmetic(stack.embed_tokens.weight) != torch.float16


def arithmetic(like: Tensor) -> torch.dtype:
    """The dtype of matrix products with weights like `like`."""
    kind = like.device.type
    automatic = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if automatic else like.dtype


def run(block: Any, states: Tensor, shapes: Sequence[tuple[int, int]], biases: Sequence[Tensor]) -> Tensor:
    """Run one encoder block. Its activations are kept or recomputed for the backward pass, as the block is configured.

    Args:
        block: the model's.
        states: [S, D], the tokens of all groups, one group after the other.
        shapes: rows B and length L of each group; S is the sum of B * L.
        biases: per group, [B or 1, H, L, L], added to scores before the softmax.
    """

    def whole(states: Tensor) -> Tensor:
        return perceptron(block.layer[-1], attend(block.layer[0], states, shapes, biases))

    if block.gradient_checkpointing and block.training and torch.is_grad_enabled():
        found: Tensor = checkpoint(whole, states, use_reentrant=False)
        return found
    return whole(states)


def attend(layer: Any, states: Tensor, shapes: Sequence[tuple[int, int]], biases: Sequence[Tensor]) -> Tensor:
    """The layer's norm and self-attention, added to states [S, D]; see `run`."""
    attention, given = layer.SelfAttention, normed(layer.layer_norm, states)
    sizes = [rows * length for rows, length in shapes]
    projected = (torch.split(project(given), sizes) for project in (attention.q, attention.k, attention.v))
    drop = attention.dropout if attention.training else 0.0
    seen = []
    with sdpa_kernel(KERNELS):
        for group, (rows, length), bias in zip(zip(*projected, strict=True), shapes, biases, strict=True):
            query, keys, values = (each.view(rows, length, attention.n_heads, -1).transpose(1, 2) for each in group)
            found = functional.scaled_dot_product_attention(query, keys, values, bias, drop, scale=attention.scaling)
            seen.append(found.transpose(1, 2).reshape(rows * length, -1))
    added: Tensor = layer.dropout(attention.o(torch.cat(seen)))
    return states + added


def perceptron(layer: Any, states: Tensor) -> Tensor:
    """The layer's norm and perceptron, gated or not, added to states [..., D]."""
    dense, given = layer.DenseReluDense, normed(layer.layer_norm, states)
    gated = hasattr(dense, "wi_0")
    wide = dense.act(dense.wi_0(given)) * dense.wi_1(given) if gated else dense.act(dense.wi(given))
    added: Tensor = layer.dropout(dense.wo(dense.dropout(wide)))
    return states + added


def normed(norm: Any, states: Tensor) -> Tensor:
    """T5's norm in one pass, with the dtype of `states`. Autocast would make it float32."""
    kind = states.device.type
    with torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext():
        weight = norm.weight.to(states.dtype)
        return functional.rms_norm(states, states.shape[-1:], weight, norm.variance_epsilon)
