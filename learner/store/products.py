"""The largest inner products of queries and keys.

    existing products [R, N] ──largest──────────> the largest of each row
    queries, blocks of keys  ──largest_products─> the same, without ever holding all products

A block's products, four megabytes, stay in the processor's cache while they are compared with each query's best so far.
The more keys were compared, the fewer pass: in random order, about `count` in each doubling of N keys.

Limit: the matrix product, 2 * width operations per query and key; comparing costs a fifteenth of that. Many owners with
few keys cost one small product each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.compiler import compiled

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

BLOCK = 2**20
"""Products per block, 4 MB."""


def multiply(left: Tensor, right: Tensor, product: Tensor) -> None:
    """Write left @ right, of matrices or of equal numbers of them. With one CPU thread it uses NumPy's OpenBLAS, which
    is a tenth faster at these shapes than PyTorch's MKL on processors that are not Intel's; OpenBLAS ignores PyTorch's
    number of threads."""
    if product.device.type == "cpu" and torch.get_num_threads() == 1:
        np.matmul(left.numpy(), right.numpy(), out=product.numpy())
    else:
        torch.matmul(left, right, out=product)


def products_of(own: Sequence[tuple[Tensor, Tensor]], most: float) -> Tensor:
    """Products of each query with all keys of its owner, [rows, N]; -inf where one is larger than `most`.

    own: queries [owners, R, width] and keys [owners, N, width] of the same owners; R may differ.
    """
    rows = [queries.shape[0] * queries.shape[1] for queries, _ in own]
    made = torch.empty((sum(rows), own[0][1].shape[1]), device=own[0][0].device)
    for (queries, keys), part in zip(own, torch.split(made, rows), strict=True):
        multiply(queries, keys.transpose(1, 2), part.view(*queries.shape[:2], -1))
    return made.masked_fill_(made > most, -math.inf) if most < math.inf else made


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Indices int64 [R, count] of the largest values of each row [R, N], and the values, descending.

    Columns are grouped first: the largest `count` values are in the `count` groups with the largest maxima.
    """
    rows, columns = values.shape
    group = math.isqrt(columns // count)
    if group < 4:
        top, places = values.topk(count)
        return places, top
    width = columns // group
    maxima = values[:, : group * width].view(rows, group, width).amax(1)
    inside = torch.arange(group, device=values.device) * width
    near = (maxima.topk(count).indices[:, :, None] + inside).flatten(1)
    rest = torch.arange(group * width, columns, device=values.device).expand(rows, -1)
    near = torch.cat([near, rest], 1)
    top, places = values.gather(1, near).topk(count)
    return near.gather(1, places), top


def largest_products(queries: Tensor, keys: Sequence[Tensor], count: int, most: float) -> tuple[Tensor, Tensor]:
    """The largest products with all keys.

    queries: [R, width].
    keys: blocks of keys, [n, width] each, numbered consecutively.
    count: number of results, at most the number of keys.
    most: larger products are ignored.

    Returns:
        Numbers of keys int64 [R, count], and their products, descending; an arbitrary number and -inf if there are no
        more.
    """
    rows, device = len(queries), queries.device
    size = max(1, BLOCK // rows)
    made = torch.empty((size, rows), device=device)
    top = torch.full((rows, count), -math.inf, device=device)
    numbers = torch.zeros((rows, count), dtype=torch.int64, device=device)
    waiting: list[tuple[Tensor, Tensor, Tensor]] = []  # rows, numbers and products of those that passed
    first, passed = 0, 0
    for block in (own[begin : begin + size] for own in keys for begin in range(0, len(own), size)):
        found = made[: len(block)]
        multiply(block, queries.T, found)
        if not first:  # the first block: there is nothing to compare with yet
            several = min(count, len(block))
            top[:, :several], numbers[:, :several] = found.masked_fill_(found > most, -math.inf).T.topk(several)
            first = len(block)
            continue
        key, row, near = passing(found, top[:, -1], most)
        waiting.append((row, first + key, near))
        first, passed = first + len(block), passed + len(key)
        if passed > rows * count // 2:
            top, numbers = _joined(top, numbers, waiting)
            waiting, passed = [], 0
    return _joined(top, numbers, waiting)[::-1] if waiting else (numbers, top)


def passing(products: Tensor, above: Tensor, most: float) -> tuple[Tensor, Tensor, Tensor]:
    """The products [N, R] above each column's bound [R] and at most `most`: rows, columns and values, in order."""
    if products.device.type == "cpu":
        found = _passing(products.numpy(), above.contiguous().numpy(), np.float32(most))
        return torch.from_numpy(found[0]), torch.from_numpy(found[1]), torch.from_numpy(found[2])
    key, row = ((products > above) & (products <= most)).nonzero(as_tuple=True)
    return key, row, products[key, row]


@compiled
def _passing(products: Floats, above: Floats, most: np.float32) -> tuple[Integers, Integers, Floats]:
    """Few pass, so each row is first counted, eight values at once, and mostly skipped."""
    counts = np.empty(len(products), np.int32)
    total = 0
    for i in range(len(products)):
        count: Any = np.int32(0)
        for j in range(len(above)):
            count += np.int32(products[i, j] > above[j])
        counts[i] = count
        total += int(count)
    keys, rows, found = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.float32)
    at = 0
    for i in range(len(products)):
        if not counts[i]:
            continue
        for j in range(len(above)):
            if above[j] < products[i, j] <= most:
                keys[at], rows[at], found[at] = i, j, products[i, j]
                at += 1
    return keys[:at], rows[:at], found[:at]


def _joined(top: Tensor, numbers: Tensor, waiting: Sequence[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The largest of each row's values [R, count] and of those that passed since, and their numbers."""
    row, number, value = (torch.cat(parts) for parts in zip(*waiting, strict=True))
    counts = torch.bincount(row, minlength=len(top))
    order = row.argsort(stable=True)
    slot = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row[order]]
    shape = (len(top), int(counts.max()))
    values = torch.full(shape, -math.inf, device=top.device)
    places = torch.zeros(shape, dtype=torch.int64, device=top.device)
    values[row[order], slot], places[row[order], slot] = value[order], number[order]
    best, at = torch.cat([top, values], 1).topk(top.shape[1])
    return best, torch.cat([numbers, places], 1).gather(1, at)
