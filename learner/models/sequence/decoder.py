"""A causal transformer decoder for sequences of different lengths: pre-norm blocks, no padding, cached keys and values.

    training   tokens [S, width] of all sequences, one after the other ──> blocks ──> outputs at tokens that are read
    acting     prompts ──> Cache (keys and values, [B, capacity] columns) <──> extend: n new tokens a row ──> output
               nothing ──> Ring  (of the last C tokens, if there is a band) <──┘
    memory     chunks  ──> Memory (keys and values of each chunk) <── index: which chunk each token looks at, or none

Layers see all tokens of a batch as one matrix; only attention separates sequences (`attention.py`), so that none sees
another and nothing is computed for padding. The order of tokens must be encoded in the tokens, for example by a code of
their position; a band has its own offsets. A block can also attend to a memory, tokens outside the sequence (Vaswani
et al. 2017). Blocks, initial weights and names follow GPT-2 (Radford et al. 2019), without biases.

With a band of C tokens, one pass over a whole episode gives the same outputs as acting with a ring of C keys per layer:
through L layers a token depends on the last L * (C - 1) + 1 tokens. A window of C tokens recomputed at each step
depends on only C, and is a different model.

The limit is the matrix products: in float32 they take nine tenths of the time on a CPU. In bfloat16 a CPU's fused
attention is up to three times as slow as its separate products unless sequences are long, so these are called one by
one there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from learner.models.sequence.attention import banded_attention, causal_attention, ragged_attention
from learner.models.sequence.cache import Cache, Ring
from learner.models.sequence.memory import Memory
from learner.optim.device import send

INITIAL = 0.02
"""Standard deviation of initial weights."""


class Decoder(nn.Module):
    """Blocks of causal attention over tokens given as vectors.

    Args:
        width: length of a token.
        layers: number of blocks.
        heads: of attention; must divide the width.
        dropout: of the outputs of blocks in training; attention weights have none.
        cross_attention: blocks also attend to a memory. Without a memory this part adds nothing.
        null_chunk: a token without a chunk or a memory sees a learned null chunk. Attention to a single key returns its
            value, so this is one learned value per layer.
        band: number of last tokens, including itself, that a token attends to; 0: all.

    Raises:
        ValueError: the width is not a multiple of the heads, the band is below 0, or a null chunk lacks
            cross-attention.
    """

    def __init__(
        self,
        width: int,
        layers: int,
        heads: int,
        dropout: float = 0.0,
        cross_attention: bool = False,
        null_chunk: bool = False,
        band: int = 0,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"a width of {width} cannot be divided among {heads} heads: choose a multiple")
        if band < 0:
            raise ValueError(f"a band of {band} tokens cannot be: choose 1 or more, or 0 for all that came before")
        if null_chunk and not cross_attention:
            raise ValueError("a null chunk is what cross-attention looks at: set cross_attention, too")
        self.width, self.heads, self.band = width, heads, band
        self.cross_attention, self.null_chunk = cross_attention, null_chunk
        self.blocks = nn.ModuleList(Block(width, dropout, cross_attention) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                # Added to the residual stream, whose scale should not grow with the number of blocks.
                adds = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=INITIAL / math.sqrt(2 * layers) if adds else INITIAL)
        if null_chunk:
            self.nothing = nn.Parameter(torch.zeros(layers, width))  # seen by a layer without a chunk
        if band:
            self.offsets = nn.Parameter(torch.zeros(layers, heads, band))  # added to scores, by how far back a key is

    def forward(
        self,
        tokens: Tensor,
        lengths: Sequence[int],
        read: Tensor | None = None,
        memory: Memory | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        """Outputs [S, width] of sequences, or [R, width] of the tokens in `read`.

        Args:
            tokens: [S, width], the sequences one after the other.
            lengths: of the sequences; their sum is S.
            read: int64 [R], ascending, the tokens whose outputs are returned. The last block is computed only for
                these.
            memory: chunks for cross-attention, see `remember`.
            index: the chunk that each token attends to, -1 for none, int64 [S]. If None, all tokens of sequence i
                attend to chunk i.

        `read` and `index` are on the host, wherever tokens are, because they determine shapes.

        Raises:
            ValueError: the index has the wrong length or names a missing chunk.
        """
        last, wanted = len(self.blocks) - 1, None
        look = self._look(memory, index, lengths, read)
        ragged = not self.band and self._ragged(tokens)
        real = [n for n in lengths if n]
        offsets = send({"offsets": torch.tensor([0, *accumulate(real)])}, tokens.device)["offsets"] if ragged else None
        if read is not None and not self.band and not ragged:  # by positions in each sequence
            ends = torch.tensor(lengths, dtype=torch.int64).cumsum(0)
            counts = torch.searchsorted(read, ends).diff(prepend=ends.new_zeros(1))
            own = read - (ends - torch.tensor(lengths, dtype=torch.int64)).repeat_interleave(counts)
            there = send({"read": read, "own": own}, tokens.device)
            read, wanted = there["read"], list(torch.split(there["own"], counts.tolist()))
        elif read is not None:
            read = send({"read": read}, tokens.device)["read"]

        def attend(layer: int, qkv: Tensor) -> Tensor:
            if offsets is not None:
                seen = ragged_attention(qkv, offsets, real, self.heads)
            elif not self.band:
                return causal_attention(qkv, lengths, self.heads, wanted if layer == last else None)
            else:
                seen = banded_attention(qkv, lengths, self.heads, self.offsets[layer])
            return seen if read is None or layer < last else seen.index_select(0, read)

        choose = None if read is None else lambda x: x.index_select(0, read)
        return self._through(tokens, attend, look, choose)

    def begin(self, tokens: Tensor, lengths: Sequence[int]) -> Cache:
        """Keys and values of B prompts, tokens [S, width] as in `forward` without a memory; a prompt may be empty.

        Raises:
            ValueError: there is a band.
        """
        if self.band:
            raise ValueError("a decoder with a band keeps no prompts: make a ring and extend it token by token")
        kept: list[Tensor] = []

        def attend(layer: int, qkv: Tensor) -> Tensor:
            kept.append(qkv)
            last = layer == len(self.blocks) - 1  # its outputs are not needed
            return qkv[:0, : self.width] if last else causal_attention(qkv, lengths, self.heads)

        self._through(tokens, attend, self._look(None, None, lengths, None), lambda x: x[:0])
        return Cache(kept, lengths, self.heads)

    def ring(self, rows: int) -> Ring:
        """An empty ring for acting in B rows, if there is a band.

        Raises:
            ValueError: there is none.
        """
        if not self.band:
            raise ValueError("only a decoder with a band has a ring: set band, or begin a cache")
        qkv = self._blocks()[0].qkv
        return Ring(rows, len(self.blocks), self.band, self.heads, like=qkv(qkv.weight.new_zeros(0, self.width)))

    def extend(
        self, tokens: Tensor, cache: Cache | Ring, memory: Memory | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Outputs [B, width] of the last of n new tokens per row [B, n, width]. The cache stores all of them.

        Args:
            tokens: [B, n, width].
            cache: from `begin` or `ring`.
            memory: what tokens may look at, see `remember`.
            index: the chunk that the n tokens of each row attend to, -1 for none, int64 [B]. If None, row i uses chunk
                i.

        Raises:
            ValueError: wrong number of rows, no room in the cache, or an invalid index as in `forward`.
        """
        rows, n = tokens.shape[:2]
        if rows != cache.rows:
            raise ValueError(f"tokens of {rows} rows for a cache of {cache.rows}: give tokens of every row")
        if isinstance(cache, Ring):
            for token in torch.split(tokens[:, :-1], 1, 1) if n > 1 else ():
                self.extend(token, cache, memory, index)
            look = self._look(memory, index, [1] * rows, None)
            opened, ring = cache.open(), cache
            return self._through(
                tokens[:, -1:], lambda layer, qkv: ring.attend(layer, qkv, opened, self.offsets[layer]), look, None
            )[:, 0]
        index = None if index is None else index.repeat_interleave(n)
        last = torch.arange(n - 1, rows * n, n) if n > 1 else None
        look = self._look(memory, index, [n] * rows, last)
        mask, whole = cache.open(n), cache

        def attend(layer: int, qkv: Tensor) -> Tensor:
            return whole.attend(layer, qkv, mask, last_only=layer == len(self.blocks) - 1)

        return self._through(tokens, attend, look, lambda x: x[:, -1:])[:, 0]

    def remember(self, tokens: Tensor, lengths: Sequence[int]) -> Memory:
        """A memory of K chunks, tokens [M, width] one chunk after the other: their keys and values, computed once.

        Gradients pass through it, so training computes it in each step; acting keeps it until weights change.

        Raises:
            ValueError: the decoder has no cross-attention.
        """
        if not self.cross_attention:
            raise ValueError("only a decoder with cross-attention looks at a memory: set cross_attention")
        return Memory([block.memory(tokens) for block in self._blocks()], lengths, self.heads)

    def _look(
        self, memory: Memory | None, index: Tensor | None, lengths: Sequence[int], read: Tensor | None
    ) -> Callable[[int, Tensor], Tensor] | None:
        """Attention of a layer's queries [..., width] to the memory; in the last layer, those of tokens in `read`."""
        nothing = self.nothing if self.null_chunk else self.norm.weight.new_zeros(len(self.blocks), self.width)
        if memory is None:
            return (lambda layer, query: nothing[layer].to(query.dtype).expand_as(query)) if self.null_chunk else None
        known = memory
        if index is None:
            index = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths, dtype=torch.int64))
        if len(index) != sum(lengths):
            raise ValueError(
                f"an index of {len(index)} for {sum(lengths)} tokens: give a chunk for each, or -1 for none"
            )
        groups = [memory.group(index)] * len(self.blocks)
        if read is not None:
            groups[-1] = memory.group(index[read])

        def look(layer: int, query: Tensor) -> Tensor:
            found = known.look(layer, query.flatten(0, -2), groups[layer], nothing[layer])
            return found.view(query.shape)

        return look

    def _through(
        self,
        x: Tensor,
        attend: Callable[[int, Tensor], Tensor],
        look: Callable[[int, Tensor], Tensor] | None,
        read: Callable[[Tensor], Tensor] | None,
    ) -> Tensor:
        """Apply all blocks. From the last block's attention on, only the tokens of `read` remain."""
        for layer, block in enumerate(self._blocks()):
            seen = attend(layer, block.qkv(block.norm(x)))
            if read is not None and layer == len(self.blocks) - 1:
                x = read(x)
            x = block(x, seen, None if look is None else partial(look, layer))
        normed: Tensor = self.norm(x)
        return normed

    def _ragged(self, tokens: Tensor) -> bool:
        """Whether attention of all sequences is one call, for a GPU."""
        return tokens.is_cuda and len(tokens) > 0

    def _blocks(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]


class Block(nn.Module):
    """x + attention(x), then optionally + cross-attention(x), then + perceptron(x); each on normalised x."""

    def __init__(self, width: int, dropout: float, cross_attention: bool) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        if cross_attention:
            self.cross_norm, self.query = nn.LayerNorm(width, bias=False), nn.Linear(width, width, bias=False)
            self.memory, self.cross_out = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, width, bias=False)
        self.wide_norm, self.up = nn.LayerNorm(width, bias=False), nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()  # dropout of 0 would still take time

    def forward(self, x: Tensor, seen: Tensor, look: Callable[[Tensor], Tensor] | None) -> Tensor:
        x = x + self.drop(self.out(seen))
        if look is not None:
            x = x + self.drop(self.cross_out(look(self.query(self.cross_norm(x)))))
        out: Tensor = x + self.drop(self.down(gelu(self.up(self.wide_norm(x)))))
        return out
