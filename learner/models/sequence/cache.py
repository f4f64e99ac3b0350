"""Keys and values kept during acting, so that only the new token is computed.

Cache    whole sequences, for causal attention; rows may begin with prompts
Ring     the last C tokens, for banded attention; rows restart independently, and it never fills
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from learner.models.sequence.attention import split_heads
from learner.optim.device import send


class Cache:
    """Keys and values of B rows, [B, heads, capacity, width of a head] for each layer.

    Prompts of different lengths end in the same column, so that the next token's is the same for all rows; the columns
    before a row's first token are masked.

    Attributes:
        filled: number of columns that hold tokens.
    """

    def __init__(self, kept: Sequence[Tensor], lengths: Sequence[int], heads: int) -> None:
        """
        Args:
            kept: for each layer, queries, keys and values [S, 3 * width] of the prompts' tokens.
            lengths: of the B prompts.
        """
        self.heads, self.filled = heads, max(lengths)
        size, device = kept[0].shape[1] // 3 // heads, kept[0].device
        self.keys, self.values = (
            [each.new_zeros(len(lengths), heads, self.filled, size) for each in kept] for _ in range(2)
        )
        self._begins = [self.filled - length for length in lengths]  # on the host, so that no step waits for a GPU
        self.first = send({"first": torch.tensor(self._begins)}, device)["first"]
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
        """Number of columns."""
        return self.keys[0].shape[2]

    def spread(self, rows: Tensor, more: int) -> None:
        """Become a cache of this one's `rows`, int64 [B'] on the host, as often as they are named, with room for `more`
        tokens."""
        there = send({"rows": rows}, self.first.device)["rows"]

        def spread(old: Tensor) -> Tensor:
            new = old.new_zeros(len(rows), self.heads, self.filled + more, old.shape[3])
            new[:, :, : self.filled] = old[there, :, : self.filled]
            return new

        for layer in range(len(self.keys)):
            self.keys[layer], self.values[layer] = spread(self.keys[layer]), spread(self.values[layer])
        self.first, self._begins = self.first[there], [self._begins[row] for row in rows.tolist()]

    def open(self, n: int) -> Tensor | None:
        """Make room for n tokens per row. Returns their attention mask, bool [B or 1, 1, n, filled], None for all.

        Raises:
            ValueError: there is none.
        """
        if self.filled + n > self.capacity:
            raise ValueError(f"the cache has room for {self.capacity} tokens a row, not {self.filled + n}: spread it")
        self.filled += n
        columns = torch.arange(self.filled, device=self.first.device)
        seen = columns <= columns[-n:, None]  # [n, filled]
        if any(self._begins):
            return seen & (columns >= self.first[:, None, None, None])
        return None if n == 1 else seen[None, None]

    def attend(self, layer: int, qkv: Tensor, mask: Tensor | None, last_only: bool) -> Tensor:
        """Store keys and values of n new tokens, [B, n, 3 * width]. Returns attention of all or the last, [B, .,
        width]."""
        query, keys, values = split_heads(qkv, 3 * self.heads).chunk(3, 1)
        new = slice(self.filled - qkv.shape[1], self.filled)
        self.keys[layer][:, :, new], self.values[layer][:, :, new] = keys, values
        keys, values = self.keys[layer][:, :, : self.filled], self.values[layer][:, :, : self.filled]
        if last_only:
            query, mask = query[:, :, -1:], None if mask is None else mask[:, :, -1:]
        return scaled_dot_product_attention(query, keys, values, mask).transpose(1, 2).flatten(2)


class Held(NamedTuple):
    """A snapshot of some rows of a ring."""

    rows: Tensor  # int64 [n]
    ages: Tensor  # int64 [n]
    clock: int
    both: list[list[Tensor]]  # keys and values per layer, [n, heads, C, width of a head]


class Ring:
    """Keys and values of the last C tokens of B rows, [B, heads, C, width of a head] for each layer.

    All rows write into one column, that of the clock, so that a column's offset is the same for all; a restarted row
    masks columns older than its own first token.

    For acting only: no gradient passes through stored keys and values, since that would keep the computation of every
        past step.

    Attributes:
        ages: tokens of each row since its start, at most C, int64 [B].
    """

    def __init__(self, rows: int, layers: int, band: int, heads: int, like: Tensor) -> None:
        """
        Args:
            rows: B, their number.
            layers: of the decoder.
            band: C.
            heads: of attention.
            like: queries, keys and values of any tokens, [., 3 * width]: their type and device.
        """
        self.heads, self.clock = heads, 0
        shape = rows, heads, band, like.shape[1] // 3 // heads
        self.keys, self.values = ([like.new_zeros(shape) for _ in range(layers)] for _ in range(2))
        self.ages = torch.zeros(rows, dtype=torch.int64, device=like.device)

    @property
    def rows(self) -> int:
        """B."""
        return len(self.ages)

    def restart(self, rows: Tensor) -> None:
        """Rows, bool [B] or int64, begin a new sequence with their next token."""
        self.ages[send({"rows": rows}, self.ages.device)["rows"]] = 0

    def hold(self, rows: Tensor) -> Held:
        """What rows, int64 [n], know now, for those that pause while others go on."""
        rows = send({"rows": rows}, self.ages.device)["rows"]
        both = [[each[rows] for each in layers] for layers in (self.keys, self.values)]
        return Held(rows, self.ages[rows], self.clock, both)

    def resume(self, held: Held) -> None:
        """Restore paused rows from a snapshot, without the tokens added meanwhile."""
        by = self.clock - held.clock
        for layers, kept in zip((self.keys, self.values), held.both, strict=True):
            for own, old in zip(layers, kept, strict=True):
                own[held.rows] = old.roll(by, 2)
        self.ages[held.rows] = held.ages

    def open(self) -> tuple[Tensor, Tensor]:
        """Make room for one token per row. Returns each column's offset, int64 [C], and whether it is seen, bool [B,
        C]."""
        band = self.keys[0].shape[2]
        self.ages = (self.ages + 1).clamp(max=band)
        offsets = (self.clock - torch.arange(band, device=self.ages.device)) % band
        self.clock = (self.clock + 1) % band
        return offsets, offsets < self.ages[:, None]

    def attend(self, layer: int, qkv: Tensor, opened: tuple[Tensor, Tensor], bias: Tensor) -> Tensor:
        """Store keys and values of one new token per row, [B, 1, 3 * width]. Returns its attention, [B, 1, width].

        bias: by offset, [heads, C]; see `banded_attention`.
        """
        offsets, seen = opened
        query, keys, values = split_heads(qkv, 3 * self.heads).chunk(3, 1)
        new = self.clock - 1  # the clock has advanced
        self.keys[layer][:, :, new], self.values[layer][:, :, new] = keys[:, :, 0].detach(), values[:, :, 0].detach()
        added = torch.where(seen[:, None, None], bias[:, None, offsets], -math.inf).to(query.dtype)  # [B, heads, 1, C]
        found = scaled_dot_product_attention(query, self.keys[layer], self.values[layer], added)
        return found.transpose(1, 2).flatten(2)
