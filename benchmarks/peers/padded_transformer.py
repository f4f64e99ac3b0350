"""The usual transformer: every sequence of a batch padded to the same length, all of it computed, nothing kept.

Blocks have nanoGPT's shape: norms, queries, keys and values in one product, PyTorch's fused causal attention, an MLP
four times as wide. It replaces `Decoder` in a model, with its weights and its signature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from learner.models.sequence.behaviour_transformer import BehaviourModel


class PaddedDecoder(nn.Module):
    """A decoder that takes the layers of a `Decoder` and computes in the usual way.

    Args:
        decoder: the source of the layers.
        block: padded length of sequences; 0: the longest of each batch.
    """

    def __init__(self, decoder: Any, block: int = 0) -> None:
        super().__init__()
        self.blocks, self.norm, self.heads, self.block = decoder.blocks, decoder.norm, decoder.heads, block

    def forward(self, tokens: Tensor, lengths: Sequence[int], read: Tensor) -> Tensor:
        """Like `Decoder.forward`."""
        longest = max(self.block, *lengths)
        x = pad_sequence(list(torch.split(tokens, list(lengths))), batch_first=True)
        x = nn.functional.pad(x, (0, 0, 0, longest - x.shape[1]))
        for block in self.blocks:
            x = x + block.drop(block.out(self._attend(block.qkv(block.norm(x)))))
            x = x + block.drop(block.down(nn.functional.gelu(block.up(block.wide_norm(x)))))
        x = self.norm(x)
        real = torch.cat([row[:length] for row, length in zip(x, lengths, strict=True)])
        return real.index_select(0, read.to(real.device))

    def _attend(self, qkv: Tensor) -> Tensor:
        rows, length, width = qkv.shape
        split = qkv.view(rows, length, 3, self.heads, width // 3 // self.heads).permute(2, 0, 3, 1, 4)
        query, keys, values = split.unbind()
        seen = scaled_dot_product_attention(query, keys, values, is_causal=True)
        return seen.transpose(1, 2).reshape(rows, length, width // 3)


def padded(model: BehaviourModel, block: int = 0) -> PaddedDecoder:
    """Replace the model's decoder with the usual one. Returns the new decoder."""
    decoder = PaddedDecoder(model.decoder, block)
    model.add_module("decoder", decoder)
    return decoder
