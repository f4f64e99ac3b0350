"""Our decoder before it batched sequences of equal length: one fused attention call for each sequence.

It replaces `Decoder` in training, with its layers and its signature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention


class PerSequenceDecoder(nn.Module):
    """A decoder that takes the layers of a `Decoder` and computes attention sequence by sequence."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.blocks, self.norm, self.heads = decoder.blocks, decoder.norm, decoder.heads

    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """Like `Decoder.forward`, without `read` and without a memory."""
        x = tokens
        for block in self.blocks:
            x = x + block.drop(block.out(self._attend(block.qkv(block.norm(x)), lengths)))
            x = x + block.drop(block.down(gelu(block.up(block.wide_norm(x)))))
        normed: Tensor = self.norm(x)
        return normed

    def _attend(self, qkv: Tensor, lengths: Sequence[int]) -> Tensor:
        size, found = qkv.shape[1] // 3 // self.heads, []
        for part in torch.split(qkv, list(lengths)):
            query, keys, values = part.view(len(part), 3, self.heads, size).permute(1, 2, 0, 3).unbind()
            seen = scaled_dot_product_attention(query[None], keys[None], values[None], is_causal=True)[0]
            found.append(seen.transpose(0, 1).reshape(len(part), self.heads * size))
        return torch.cat(found)
