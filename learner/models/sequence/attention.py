"""Causal attention within each sequence of a packed batch: no sequence sees another, and nothing is padded.

Sequences of equal length are one batched call. Others are computed one by one, so that nothing is spent on padding;
but short ones are padded into one call, since a call for each takes longer than the padding.

    causal_attention    a token sees its whole past; positions are encoded in the tokens
    ragged_attention    the same in one call for all sequences, faster on a GPU
    banded_attention    a token sees the last C tokens, with a learned bias for each offset

The band encodes positions as offsets (as in Raffel et al. 2020, arXiv 1910.10683, but with one number per offset and
layer), not as rotations of queries and keys. Both depend only on differences. But a rotation is computed from a counter
that grows throughout a cache's life, and its rounding error grows too. Offsets are integers below C, which a ring of
keys represents exactly.

The limit is memory traffic: a long sequence's band is cut into blocks of C queries that see 2 C keys, so time and
memory per token are proportional to C, however long the sequence is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nested import nested_tensor_from_jagged
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

FUSED = 1024
"""Number of tokens from which a CPU's fused attention is faster in bfloat16."""
ALIGNED = 8
"""Numbers of a head are multiples of it on a GPU: its kernels for sequences of different lengths refuse others."""
SHORT = 128
"""Number of tokens up to which sequences of different lengths are padded into one call on a CPU."""
SCORES = 2**19
"""Number of scores computed at once in bfloat16 on a CPU, so that they stay in its cache."""


def causal_attention(qkv: Tensor, lengths: Sequence[int], heads: int, wanted: Sequence[Tensor] | None = None) -> Tensor:
    """Each sequence's attention to its own past, [S, width].

    Args:
        qkv: queries, keys and values of all sequences' tokens in turn, [S, 3 * width].
        lengths: of the sequences; their sum is S.
        heads: of attention.
        wanted: the tokens of each sequence that attend, int64; all if None. The output has as many rows.
    """
    if not len(qkv):
        return qkv[:, : qkv.shape[1] // 3]
    counts = lengths if wanted is None else [len(each) for each in wanted]
    if len(set(lengths)) == len(set(counts)) == 1:
        batch = qkv.view(len(lengths), lengths[0], qkv.shape[1])
        return _causal(batch, heads, None if wanted is None else torch.stack(list(wanted))).flatten(0, 1)
    if max(lengths) <= SHORT and qkv.device.type == "cpu":
        return _padded(qkv, lengths, heads, wanted)
    parts = [part[None] for part in torch.split(qkv, list(lengths))]
    rows: Sequence[Tensor | None] = [None] * len(parts) if wanted is None else [each[None] for each in wanted]
    return torch.cat([_causal(part, heads, own)[0] for part, own in zip(parts, rows, strict=True)])


def _padded(qkv: Tensor, lengths: Sequence[int], heads: int, wanted: Sequence[Tensor] | None) -> Tensor:
    """`causal_attention` of sequences padded at their ends, which no token before them sees."""
    most = max(lengths)
    batch = qkv.new_zeros(len(lengths) * most, qkv.shape[1]).index_copy(0, _filled(lengths), qkv)
    batch = batch.view(len(lengths), most, -1)
    if wanted is None:
        return _causal(batch, heads, None).flatten(0, 1).index_select(0, _filled(lengths))
    rows = pad_sequence(list(wanted), batch_first=True)
    return _causal(batch, heads, rows).flatten(0, 1).index_select(0, _filled([len(each) for each in wanted]))


def _filled(counts: Sequence[int]) -> Tensor:
    """The places of a table [B, most], row by row, that rows of so many entries fill."""
    return (torch.arange(max(counts)) < torch.tensor(counts)[:, None]).flatten().nonzero()[:, 0]


def _causal(qkv: Tensor, heads: int, wanted: Tensor | None) -> Tensor:
    """[B, W, width] of a batch [B, L, 3 * width]; W tokens of each sequence, int64 [B, W], attend, or all L."""
    batch, length = qkv.shape[:2]
    by_products = qkv.dtype == torch.bfloat16 and qkv.device.type == "cpu" and length < FUSED
    at_once = max(1, SCORES // max(1, heads * length**2))
    if by_products and batch > at_once:
        parts = torch.split(qkv, at_once)
        rows: Sequence[Tensor | None] = [None] * len(parts) if wanted is None else torch.split(wanted, at_once)
        return torch.cat([_causal(part, heads, own) for part, own in zip(parts, rows, strict=True)])
    query, keys, values = split_heads(qkv, 3 * heads).chunk(3, 1)  # [B, heads, L, size of a head]
    past = None
    if wanted is not None:
        query = query.gather(2, wanted[:, None, :, None].expand(-1, heads, -1, query.shape[3]))
        past = (torch.arange(length, device=qkv.device) <= wanted[:, :, None])[:, None]  # [B, 1, W, L]
    if by_products:
        past = torch.ones(1, 1, length, length, dtype=torch.bool).tril() if past is None else past
        future = torch.zeros(past.shape, dtype=qkv.dtype).masked_fill(~past, -math.inf)
        future = future[0] if len(future) == 1 else future.expand(-1, heads, -1, -1).flatten(0, 1)
        query, keys, values = (each.flatten(0, 1) for each in (query, keys, values))
        score = torch.baddbmm(future, query, keys.transpose(1, 2), alpha=query.shape[2] ** -0.5)
        seen = torch.unflatten(torch.bmm(score.softmax(-1, dtype=qkv.dtype), values), 0, (batch, heads))
    else:
        seen = scaled_dot_product_attention(query, keys, values, past, is_causal=past is None)
    return seen.transpose(1, 2).flatten(2)


def ragged_attention(qkv: Tensor, offsets: Tensor, lengths: Sequence[int], heads: int) -> Tensor:
    """Each sequence's attention to its own past, [S, width], in one call.

    On a GPU a call for each of a hundred short sequences takes longer than their arithmetic.

    Args:
        qkv: queries, keys and values of all sequences' tokens in turn, [S, 3 * width].
        offsets: where sequences begin, and the end of the last, int64 [B + 1], on the device of `qkv`, a GPU: PyTorch
            has no such kernel elsewhere.
        lengths: of the sequences, none of them 0: the same as `offsets`, but on the host.
        heads: of attention.
    """
    size = qkv.shape[1] // 3 // heads
    parts = qkv.view(len(qkv), 3, heads, size).transpose(0, 1)
    parts = pad(parts, (0, -size % ALIGNED)).contiguous()  # [3, S, heads, size of a head], filled up with zeros
    return _one_call(parts, offsets, lengths, size**-0.5)[..., :size].flatten(1)


def _one_call(parts: Tensor, offsets: Tensor, lengths: Sequence[int], scale: float) -> Tensor:
    """Attention of queries, keys and values [3, S, heads, size] of a head, [S, heads, size]."""
    least, most = min(lengths), max(lengths)
    query, keys, values = (
        nested_tensor_from_jagged(part, offsets, min_seqlen=least, max_seqlen=most).transpose(1, 2) for part in parts
    )
    seen: Tensor = scaled_dot_product_attention(query, keys, values, is_causal=True, scale=scale)
    return seen.transpose(1, 2).values()


def banded_attention(qkv: Tensor, lengths: Sequence[int], heads: int, bias: Tensor) -> Tensor:
    """Attention of each token to the last C tokens of its sequence, including itself, [S, width].

    Args:
        qkv, lengths, heads: as in `causal_attention`.
        bias: added to the score of a token 0, 1, ..., C - 1 tokens back, [heads, C].
    """
    if not len(qkv):
        return qkv[:, : qkv.shape[1] // 3]
    if len(set(lengths)) > 1:
        parts = torch.split(qkv, list(lengths))
        return torch.cat([banded_attention(part, [len(part)], heads, bias) for part in parts])
    length, band = lengths[0], bias.shape[1]
    back, block = (band, band) if length > band else (0, length)  # keys before a block of queries, queries of a block
    blocks = -(-length // block)
    query, keys, values = split_heads(qkv.view(len(lengths), length, -1), 3 * heads).chunk(3, 1)
    rest = blocks * block - length
    query = torch.unflatten(
        pad(query, (0, 0, 0, rest)), 2, (blocks, block)
    )  # [B, heads, blocks, block, size of a head]
    keys, values = (
        pad(each, (0, 0, back, rest)).unfold(2, back + block, block).transpose(-1, -2) for each in (keys, values)
    )  # [B, heads, blocks, back + block, size of a head]
    rows, columns = (torch.arange(n, device=qkv.device) for n in (block, back + block))
    offset = rows[:, None] + back - columns  # [block, back + block]
    begin = torch.arange(blocks, device=qkv.device)[:, None, None] * block - back  # the place of a block's first key
    seen = (offset >= 0) & (offset < band) & (begin + columns >= 0)  # [blocks, block, back + block]
    added = bias.index_select(1, offset.clamp(0, band - 1).flatten()).view(heads, 1, block, back + block)
    added = torch.where(seen, added, -math.inf).to(qkv.dtype)
    found = scaled_dot_product_attention(query, keys, values, added).flatten(2, 3)[:, :, :length]
    return found.transpose(1, 2).reshape(len(qkv), -1)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, n, width] as [B, heads, n, width of a head]."""
    return torch.unflatten(x, 2, (heads, x.shape[2] // heads)).transpose(1, 2)
