"""Rows of a table by number, on the processor: which of them a minibatch names, and sums of them.

    ids [...] ──> the different ones [U], and where each is among them [...]
    table [U, C], ids [B, K] ──> sums [B, C], and back: each row's gradient [U, C]

Minibatches are small, so sorting to find equal ids, or recording a gather and a sum, takes longer than the arithmetic:
here each is one compiled loop. The limit is reading and writing B * K rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from envs.compiler import compiled

Array = NDArray[np.float32]
Ids = NDArray[np.int64]


class Appearing:
    """Numbers, from 0 up to `n` - 1, by the order of their first appearance."""

    def __init__(self, n: int) -> None:
        self._place_of = np.full(n, -1)

    def __call__(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The distinct ones of `numbers` [...] by first appearance, [U], and for each its place among them, [...]."""
        flat = numbers.ravel()
        distinct, place = np.empty_like(flat), np.empty_like(flat)
        found = _appear(flat, self._place_of, distinct, place)
        return distinct[:found], place.reshape(numbers.shape)


def sum_rows(table: Tensor, ids: Tensor) -> Tensor:
    """Sums [B, C] of the rows `ids` (int64 [B, K]) of a table [U, C]. On the processor, of float32, by compiled loops.

    Args:
        ids: from 0 to U - 1; they are not checked.
    """
    if table.device.type != "cpu" or table.dtype != torch.float32:
        return torch.nn.functional.embedding_bag(ids, table, mode="sum")
    sums: Tensor = _SumRows.apply(table, ids)  # type: ignore[no-untyped-call]
    return sums


class _SumRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.rows = len(table)
        sums = table.new_empty(len(ids), table.shape[1])
        sum_of(table.contiguous().detach().numpy(), ids.contiguous().numpy(), sums.numpy())
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_sums: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        d_table = d_sums.new_zeros(ctx.rows, d_sums.shape[1])
        scatter(ids.contiguous().numpy(), d_sums.contiguous().numpy(), d_table.numpy())
        return d_table, None


@compiled
def _appear(
    numbers: NDArray[np.int64],
    place_of: NDArray[np.int64],
    distinct: NDArray[np.int64],
    place: NDArray[np.int64],
) -> int:
    """`place_of` is -1 everywhere, before and after."""
    found = 0
    for i in range(len(numbers)):
        number = numbers[i]
        if place_of[number] < 0:
            place_of[number] = found
            distinct[found] = number
            found += 1
        place[i] = place_of[number]
    for i in range(found):
        place_of[distinct[i]] = -1
    return found


@compiled
def sum_of(table: Array, ids: Ids, sums: Array) -> None:
    """Write the sums of the rows `ids` [B, K] of a table [U, C], [B, C]."""
    for b in range(ids.shape[0]):
        to = sums[b]
        to[:] = 0
        for k in range(ids.shape[1]):
            row = table[ids[b, k]]
            for i in range(len(to)):
                to[i] += row[i]


@compiled
def scatter(ids: Ids, d_sums: Array, d_table: Array) -> None:
    """Add the gradients [B, C] of sums of the rows `ids` [B, K] to those of the rows, [U, C]."""
    for b in range(ids.shape[0]):
        for k in range(ids.shape[1]):
            to = d_table[ids[b, k]]
            for i in range(len(to)):
                to[i] += d_sums[b, i]
