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
from learner.optim.device import send


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
        return real.index_select(0, send({"read": read}, real.device)["read"])

    def _attend(self, qkv: Tensor) -> Tensor:
        rows, length, width = qkv.shape
        split = qkv.view(rows, length, 3, self.heads, width // 3 // self.heads).permute(2, 0, 3, 1, 4)
        query, keys, values = split.unbind()
        seen = scaled_dot_product_attention(query, keys, values, is_causal=True)
        return seen.transpose(1, 2).reshape(rows, length, width // 3)


class CachedDecoder(PaddedDecoder):
    """Acts in the usual way: keys and values of one sequence in buffers of the longest length, a new token at a time
    attends to what they hold so far.

    Args:
        decoder: the source of the layers.
        capacity: tokens of the longest sequence.
    """

    def __init__(self, decoder: Any, capacity: int) -> None:
        super().__init__(decoder)
        each = decoder.blocks[0].qkv.weight.shape[1] // decoder.heads
        # [layer, keys or values, one sequence, head, token, width of a head]
        self.kept = torch.zeros(len(decoder.blocks), 2, 1, decoder.heads, capacity, each)
        self.length = 0

    def begin(self, tokens: Tensor, lengths: Sequence[int]) -> CachedDecoder:
        """Like `Decoder.begin`, of one prompt: the cache is this decoder's own."""
        if len(lengths) != 1:
            raise ValueError(f"this cache is of one sequence: got {len(lengths)}")
        self.length = 0
        self.extend(tokens[None], self)
        return self

    def extend(self, tokens: Tensor, cache: CachedDecoder) -> Tensor:
        """Like `Decoder.extend`, of one row [1, n, width]."""
        n, begin = tokens.shape[1], self.length
        self.length = begin + n
        # Of n new tokens each sees all before it; a single one sees all that there is.
        mask = None if n == 1 else torch.ones(n, self.length, dtype=torch.bool).tril(begin)
        x = tokens
        for layer, block in enumerate(self.blocks):
            split = block.qkv(block.norm(x)).view(1, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            self.kept[layer, :, :, :, begin : self.length] = split[1:]
            keys, values = self.kept[layer, :, :, :, : self.length]
            seen = scaled_dot_product_attention(split[0], keys, values, attn_mask=mask)
            x = x + block.out(seen.transpose(1, 2).reshape(1, n, -1))
            x = x + block.down(nn.functional.gelu(block.up(block.wide_norm(x))))
        last: Tensor = self.norm(x[:, -1])
        return last


def cached(model: BehaviourModel, capacity: int) -> CachedDecoder:
    """Replace the model's decoder with one that acts for one robot. Returns the new decoder."""
    decoder = CachedDecoder(model.decoder, capacity)
    model.add_module("decoder", decoder)
    return decoder


def padded(model: BehaviourModel, block: int = 0) -> PaddedDecoder:
    """Replace the model's decoder with the usual one. Returns the new decoder."""
    decoder = PaddedDecoder(model.decoder, block)
    model.add_module("decoder", decoder)
    return decoder
