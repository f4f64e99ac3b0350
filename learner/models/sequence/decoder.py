"""A causal transformer decoder for sequences of different lengths: pre-norm blocks, no padding, keys and values kept.

    training   tokens [S, width] of all sequences, one after the other ──> blocks ──> outputs at tokens that are read
    acting     prompts ──> Cache (keys and values, [B, capacity] columns) <──> extend: n new tokens a row ──> output

Layers see all tokens of a batch as one matrix; only attention is computed sequence by sequence, so that none sees
another and nothing is computed for padding. What has a meaning to the order of tokens, such as a code of their place,
is in the tokens that are given. Blocks, initial weights and names follow GPT-2 (Radford et al. 2019), without biases.

The limit is the matrix products: in float32 they take nine tenths of the time on a CPU. In bfloat16 a CPU's fused
attention is up to three times as slow as the products that it consists of, unless sequences are long, so these are
called one by one there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

INITIAL = 0.02
"""Standard deviation of initial weights."""
FUSED = 1024
"""Tokens from which a CPU's fused attention is the faster one in bfloat16."""


class Decoder(nn.Module):
    """Blocks of causal attention over tokens that are vectors already.

    Args:
        width: of a token.
        layers: blocks.
        heads: of attention; they divide the width.
        dropout: share of what a block adds that is dropped in training; attention itself drops nothing.

    Raises:
        ValueError: the width is no multiple of the heads.
    """

    def __init__(self, width: int, layers: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"a width of {width} cannot be divided among {heads} heads: choose a multiple")
        self.width, self.heads = width, heads
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                adds = name.endswith(("out.weight", "down.weight"))  # to what passes by; all blocks together should not
                nn.init.normal_(weight, std=INITIAL / math.sqrt(2 * layers) if adds else INITIAL)

    def forward(self, tokens: Tensor, lengths: Sequence[int], read: Tensor | None = None) -> Tensor:
        """Outputs [S, width] of sequences, or [R, width] of the tokens that are read.

        Args:
            tokens: [S, width], of each sequence in turn.
            lengths: of the sequences; their sum is S.
            read: int64 [R], rising, the tokens whose outputs are wanted. The last block is computed for these alone.
        """
        last, wanted = len(self.blocks) - 1, None
        if read is not None:  # by their places in each sequence
            ends = torch.tensor(lengths, device=read.device).cumsum(0)
            counts = torch.searchsorted(read, ends).diff(prepend=ends.new_zeros(1))
            wanted = list(torch.split(read, counts.tolist()))
            wanted = [each - (end - n) for each, end, n in zip(wanted, ends, lengths, strict=True)]

        def attend(layer: int, qkv: Tensor) -> Tensor:
            return causal_attention(qkv, lengths, self.heads, wanted if layer == last else None)

        choose = None if read is None else lambda x: x.index_select(0, read)
        return self._through(tokens, attend, choose)

    def begin(self, tokens: Tensor, lengths: Sequence[int]) -> Cache:
        """Keys and values of B prompts, tokens [S, width] as in `forward`; a prompt may be empty."""
        kept: list[Tensor] = []

        def attend(layer: int, qkv: Tensor) -> Tensor:
            kept.append(qkv)
            last = layer == len(self.blocks) - 1  # whose outputs nobody reads
            return qkv[:0, : self.width] if last else causal_attention(qkv, lengths, self.heads)

        self._through(tokens, attend, lambda x: x[:0])
        return Cache(kept, lengths, self.heads)

    def extend(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Outputs [B, width] of the last of n new tokens a row [B, n, width], all of which the cache keeps.

        Raises:
            ValueError: the cache has no room for them.
        """
        mask = cache.open(tokens.shape[1])

        def attend(layer: int, qkv: Tensor) -> Tensor:
            return cache.attend(layer, qkv, mask, last_only=layer == len(self.blocks) - 1)

        return self._through(tokens, attend, lambda x: x[:, -1:])[:, 0]

    def _through(
        self, x: Tensor, attend: Callable[[int, Tensor], Tensor], read: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        """All blocks. From the attention of the last one on, there is only what `read` takes of x."""
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            seen = attend(layer, block.qkv(block.norm(x)))
            if read is not None and layer == len(self.blocks) - 1:
                x = read(x)
            x = block(x, seen)
        normed: Tensor = self.norm(x)
        return normed


class Block(nn.Module):
    """x + attention(x), then + perceptron(x); each of a normed x."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.wide_norm, self.up = nn.LayerNorm(width, bias=False), nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()  # to drop nothing would take its time, too

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        x = x + self.drop(self.out(seen))
        out: Tensor = x + self.drop(self.down(gelu(self.up(self.wide_norm(x)))))
        return out


class Cache:
    """Keys and values of B rows, [B, heads, capacity, width of a head] for each layer.

    Prompts of different lengths end in the same column, so that the next token's is the same for all rows; the columns
    before a row's first token are never looked at.

    Attributes:
        filled: columns that hold tokens.
    """

    def __init__(self, kept: Sequence[Tensor], lengths: Sequence[int], heads: int) -> None:
        """kept: of each layer, queries, keys and values [S, 3 * width] of the tokens of B prompts, by their lengths."""
        self.heads, self.filled = heads, max(lengths)
        size, device = kept[0].shape[1] // 3 // heads, kept[0].device
        self.keys, self.values = (
            [each.new_zeros(len(lengths), heads, self.filled, size) for each in kept] for _ in range(2)
        )
        self.first = torch.tensor([self.filled - length for length in lengths], device=device)
        for layer, qkv in enumerate(kept):
            for row, part in enumerate(torch.split(qkv, list(lengths))):
                _, keys, values = part.view(-1, 3, heads, size).permute(1, 2, 0, 3).unbind()
                self.keys[layer][row, :, self.filled - len(part) :] = keys
                self.values[layer][row, :, self.filled - len(part) :] = values

    @property
    def rows(self) -> int:
        """B."""
        return len(self.first)

    @property
    def capacity(self) -> int:
        """Columns that there are."""
        return self.keys[0].shape[2]

    def spread(self, rows: Tensor, more: int) -> None:
        """Become a cache of this one's `rows`, int64 [B'], as often as they are named, with room for `more` tokens."""

        def spread(old: Tensor) -> Tensor:
            new = old.new_zeros(len(rows), self.heads, self.filled + more, old.shape[3])
            new[:, :, : self.filled] = old[rows, :, : self.filled]
            return new

        for layer in range(len(self.keys)):
            self.keys[layer], self.values[layer] = spread(self.keys[layer]), spread(self.values[layer])
        self.first = self.first[rows]

    def open(self, n: int) -> Tensor | None:
        """Make room for n tokens a row; what they may look at, bool [B or 1, 1, n, filled], None for all.

        Raises:
            ValueError: there is none.
        """
        if self.filled + n > self.capacity:
            raise ValueError(f"the cache has room for {self.capacity} tokens a row, not {self.filled + n}: spread it")
        self.filled += n
        columns = torch.arange(self.filled, device=self.first.device)
        seen = columns <= columns[-n:, None]  # [n, filled]
        if self.first.any():
            return seen & (columns >= self.first[:, None, None, None])
        return None if n == 1 else seen[None, None]

    def attend(self, layer: int, qkv: Tensor, mask: Tensor | None, last_only: bool) -> Tensor:
        """Keep keys and values of n new tokens, [B, n, 3 * width]; what they, or the last one, see, [B, ., width]."""
        query, keys, values = (_split(each, self.heads) for each in qkv.chunk(3, -1))
        new = slice(self.filled - qkv.shape[1], self.filled)
        self.keys[layer][:, :, new], self.values[layer][:, :, new] = keys, values
        keys, values = self.keys[layer][:, :, : self.filled], self.values[layer][:, :, : self.filled]
        if last_only:
            query, mask = query[:, :, -1:], None if mask is None else mask[:, :, -1:]
        return scaled_dot_product_attention(query, keys, values, mask).transpose(1, 2).flatten(2)


def causal_attention(qkv: Tensor, lengths: Sequence[int], heads: int, wanted: Sequence[Tensor] | None = None) -> Tensor:
    """Each sequence's attention to its own past, [S, width], of queries, keys and values [S, 3 * width].

    wanted: which of each sequence's tokens attend, int64; all if None. There are as many rows as these are in all.
    """
    size = qkv.shape[1] // 3 // heads
    by_products = qkv.dtype == torch.bfloat16 and qkv.device.type == "cpu"
    found = []
    for sequence, part in enumerate(torch.split(qkv, list(lengths))):
        length = len(part)
        query, keys, values = part.view(length, 3, heads, size).permute(1, 2, 0, 3).unbind()  # [heads, length, size]
        past = None
        if wanted is not None:
            query = query.index_select(1, wanted[sequence])
            past = torch.arange(length, device=qkv.device) <= wanted[sequence][:, None]
        if by_products and length < FUSED:
            past = torch.ones(length, length, dtype=torch.bool).tril() if past is None else past
            future = torch.zeros(past.shape, dtype=qkv.dtype).masked_fill(~past, -math.inf)
            score = torch.baddbmm(future, query, keys.transpose(1, 2), alpha=size**-0.5)
            seen = torch.bmm(score.softmax(-1, dtype=qkv.dtype), values)
        else:
            seen = scaled_dot_product_attention(query[None], keys[None], values[None], past, is_causal=past is None)[0]
        found.append(seen.transpose(0, 1).reshape(-1, heads * size))
    return torch.cat(found)


def _split(x: Tensor, heads: int) -> Tensor:
    """[B, n, width] as [B, heads, n, width of a head]."""
    return x.view(*x.shape[:2], heads, x.shape[2] // heads).transpose(1, 2)
