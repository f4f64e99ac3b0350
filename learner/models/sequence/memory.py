"""Memory for cross-attention: chunks of encoded tokens; each token attends to one chunk or to none.

    chunks' tokens [M, width] ──> keys and values of each layer, once ──┐
    queries of S tokens, index [S] ──> tokens of one chunk together ────┴──> what they see, [S, width]

Keys and values are computed once per chunk and layer, whether or not steps share a chunk. Queries are grouped into
blocks; each block belongs to one chunk and holds at most the mean number of queries per chunk. So there are at most
twice as many blocks as chunks in use, and fewer places for queries than twice their number plus one for each chunk.

The limit is memory: every chunk, however short, takes 2 * layers * width * longest numbers, 154 KB in float32 with 3
layers, a width of 128 and 50 tokens, and no chunk is ever removed. Up to half as much again may be reserved for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from learner.models.sequence.attention import split_heads
from learner.optim.device import send


class Groups(NamedTuple):
    """The Q tokens that attend to a chunk, in blocks of equal size; each block attends to one chunk."""

    tokens: Tensor  # int64 [Q], their numbers
    places: Tensor  # int64 [Q], their places in the blocks
    chunks: Tensor  # int64 [blocks]
    lengths: Tensor  # int64 [blocks], of these chunks
    size: int
    ragged: bool  # whether some chunks are shorter than the longest of all


class Memory:
    """Keys and values of K chunks, [K or more, heads, longest, width of a head] for each layer; see `Decoder.remember`.

    Attributes:
        lengths: tokens of each chunk, int64 [K], on the host, where `group` needs them.
    """

    def __init__(self, kept: Sequence[Tensor], lengths: Sequence[int], heads: int) -> None:
        """
        Args:
            kept: for each layer, keys and values [M, 2 * width] of the chunks' tokens, one chunk after the other.
            lengths: of the K chunks; their sum is M. A chunk may be empty.
            heads: of attention.
        """
        self.lengths, self.device = torch.tensor(lengths, dtype=torch.int64), kept[0].device
        longest = max(lengths, default=0)
        real = (torch.arange(longest) < self.lengths[:, None]).flatten().nonzero()[:, 0]  # of K * longest
        place = send({"real": real}, self.device)["real"]
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        for both in kept:
            padded = both.new_zeros(len(lengths) * longest, both.shape[1]).index_copy(0, place, both)
            padded = padded.view(len(lengths), longest, both.shape[1])
            keys, values = split_heads(padded, 2 * heads).chunk(2, 1)
            self.keys.append(keys)
            self.values.append(values)

    def __len__(self) -> int:
        """K."""
        return len(self.lengths)

    @torch.no_grad()  # for acting: no gradient passes through a memory that has grown
    def add(self, more: Memory) -> None:
        """Append another memory's chunks: its chunk i becomes chunk K + i. Room grows by half, so that many small
        appends are cheap."""
        count, total = len(self), len(self) + len(more)
        self.lengths = torch.cat([self.lengths, more.lengths])
        for own, new in ((self.keys, more.keys), (self.values, more.values)):
            for layer, added in enumerate(new):
                old = own[layer]
                if total > len(old) or added.shape[2] > old.shape[2]:
                    room, longest = max(total, len(old) * 3 // 2), max(old.shape[2], added.shape[2])
                    own[layer] = old.new_zeros(room, old.shape[1], longest, old.shape[3])
                    own[layer][:count, :, : old.shape[2]] = old[:count]
                own[layer][count:total, :, : added.shape[2]] = added[: len(more)]

    def group(self, index: Tensor) -> Groups:
        """Group tokens by the chunk they attend to, int64 [S] on the host: a chunk's number, or -1 for none. An empty
        chunk counts as none.

        Raises:
            ValueError: a number without a chunk.
        """
        if len(index) and not -1 <= int(index.min()) <= int(index.max()) < len(self):
            raise ValueError(
                f"tokens look at chunks {int(index.min())} to {int(index.max())}, but the memory has {len(self)}: "
                "give a number below that, or -1 for none"
            )
        known = pad(self.lengths, (0, 1))[index] > 0  # -1 selects the padding at the end, an empty chunk
        tokens = known.nonzero()[:, 0]
        tokens = tokens[index[tokens].argsort(stable=True)]
        used, counts = torch.unique_consecutive(index[tokens], return_counts=True)
        size = -(-len(tokens) // max(1, len(used)))
        blocks = (counts + size - 1) // max(1, size)  # of each chunk that is used
        before = torch.stack([counts.cumsum(0) - counts, (blocks.cumsum(0) - blocks) * size])
        start, place = before.repeat_interleave(counts, 1)  # of each token's chunk: first token, first place
        chunks = used.repeat_interleave(blocks)
        places, lengths = place + torch.arange(len(tokens)) - start, self.lengths[chunks]
        there = send({"tokens": tokens, "places": places, "chunks": chunks, "lengths": lengths}, self.device)
        ragged = len(chunks) > 0 and int(lengths.min()) < self.keys[0].shape[2]
        return Groups(**there, size=size, ragged=ragged)

    def look(self, layer: int, query: Tensor, groups: Groups, nothing: Tensor) -> Tensor:
        """Attention of queries [S, width] to their tokens' chunks, [S, width]; `nothing` [width] for tokens without
        one."""
        found = nothing.to(query.dtype).expand_as(query)
        if not len(groups.tokens):
            return found
        keys, values = (each[layer].index_select(0, groups.chunks) for each in (self.keys, self.values))
        longest = keys.shape[2]
        mask = None
        if groups.ragged:
            mask = (torch.arange(longest, device=query.device) < groups.lengths[:, None])[:, None, None]
        asked = query.new_zeros(len(groups.chunks) * groups.size, query.shape[1])
        asked = asked.index_copy(0, groups.places, query.index_select(0, groups.tokens))
        asked = split_heads(torch.unflatten(asked, 0, (len(groups.chunks), groups.size)), keys.shape[1])
        seen = scaled_dot_product_attention(asked, keys, values, mask).transpose(1, 2).flatten(2).flatten(0, 1)
        return found.index_copy(0, groups.tokens, seen.index_select(0, groups.places))
