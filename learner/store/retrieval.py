"""A memory of episode chunks: exact search for the entries whose keys have the largest cosine with a query.

    append(keys, columns)  ──normalised──> keys float32 [owners, capacity, width] and pointers (episode, start, stop)
    search(queries)        ──normalised──> matrix product ──> the largest ──> summed again in float64 ──> Found
    draw(owner, uniform)   ──────────────> any entry of the owner, by a random number ──────────────────> Found
    Found                  ──learner.store.ranking──> merged over shards, scored, the best k

Contract
- An entry is a key and columns (`ranking.COLUMNS`): the position of its chunk, not the chunk itself. Ids are int64 in
  the order of appending, never reused, and do not change when other entries are removed.
- One function normalises keys and queries, in training and in acting. A similarity depends only on its two vectors, not
  on the rest of the search, and among equals the lower id comes first. So the result does not depend on the batch, on
  the order of appending (except for equal similarities), on shards, or on `save` and `load`.
- Entries belong to owners, small integers, whose keys are contiguous. A query for one owner reads only that owner's
  keys: in training the owner is the task; in trials each row of (arm, seed, task) has its own memory.
- Finding nothing is not an error: ids are -1, similarities -inf.

How it is exact: a float32 product has an error of at most about width * 2^-24, in any order of addition. The largest
products, and all within this error of the last one needed, are recomputed in float64 and rounded. If the last one does
not exceed all omitted products by more than this error, more are taken. Entries that must not be found (the query's own
episode, chunks that are too similar) are excluded at this point too. Only entries that are too similar by more than the
error are excluded from the products, because repeated episodes produce many copies of a query.

The limit is the matrix product: 2 * width operations per key and query. Products are computed in blocks of 4 MB if
everything is searched (`learner/store/products.py`), and of 16 MB if each query has an owner.
`learner/store/entries.py` stores and saves entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.store.entries import Entries, normalised, one_each
from learner.store.products import largest, largest_products, products_of
from learner.store.ranking import Floats, Found, Integers

CELLS = 2**22
"""Products with owners' keys per block, 16 MB: more do not fit the processor's cache. An eighth of it when entries are
sampled or compared with each other."""
QUERIES = 512
"""Queries without an owner per block."""
PAIRS = 2**17
"""Pairs of a query and an entry per block, at least those of one query."""
NUMBERS = 2**18
"""Numbers summed in float64 per block."""
SPARE = 8
"""Extra entries that are always examined, since some may belong to the query's own episode."""


@dataclass(frozen=True, eq=False)
class _Own:
    """Queries with owners, and their products with all keys of the owner."""

    rows: Integers  # [R], which queries
    products: Tensor  # float32 [R, N]
    begins: Integers  # int64 [R], addresses of the first key

    @property
    def total(self) -> int:
        return self.products.shape[1]

    def top(self, part: Integers, count: int) -> tuple[Integers, Floats]:
        """Addresses [P, count] of the keys with the largest products for these rows, and the products, descending."""
        every = len(part) == len(self.rows)
        columns, found = largest(self.products if every else self.products[part], count)
        return columns.cpu().numpy() + self.begins[part, None], found.cpu().numpy()


@dataclass(frozen=True, eq=False)
class _All:
    """Queries without an owner."""

    rows: Integers
    queries: Tensor  # [R, width]
    keys: Sequence[Tensor]  # of each owner
    places: Integers  # int64 [N], addresses of these keys
    most: float

    @property
    def total(self) -> int:
        return len(self.places)

    def top(self, part: Integers, count: int) -> tuple[Integers, Floats]:
        """As in `_Own`."""
        numbers, found = largest_products(self.queries[part], self.keys, count, self.most)
        return self.places[numbers.cpu().numpy()], found.cpu().numpy()


_Scan = _Own | _All


class MemoryIndex(Entries):
    """Searchable entries. Construction, appending, eviction, saving and loading are those of `Entries`."""

    def deduplicate(self, above: float = 0.98) -> int:
        """Evict near-duplicates. Returns how many were evicted.

        In the order of ids, an entry is evicted if a kept entry of its owner and task has a cosine above `above` with
        it. So afterwards no two are that similar. (The published code checks each entry's ten nearest once, which
        leaves some.)
        """
        gone = [np.empty(0, np.int64)]
        for owner in np.flatnonzero(self.sizes):
            size = int(self.sizes[owner])
            keys, tasks = self._keys[owner, :size].double(), self._columns["task"][owner, :size]
            stays = np.ones(size, np.bool_)
            for begin in range(0, size, step := max(1, CELLS // 8 // size)):
                block = (keys[begin : begin + step] @ keys[begin:].T).float().cpu().numpy() > above
                for i, copies in enumerate(block, begin):
                    if stays[i]:
                        stays[i + 1 :] &= ~(copies[i + 1 - begin :] & (tasks[i + 1 :] == tasks[i]))
            gone.append(self._ids[owner, :size][~stays])
        return self.evict(np.concatenate(gone))

    # ---- searching ---------------------------------------------------------------------------------------------------

    def search(
        self,
        queries: Any,
        count: int,
        owner: Integers | None = None,
        not_episode: Integers | None = None,
        at_most: float = math.inf,
    ) -> Found:
        """The `count` entries nearest to each query, ordered by similarity, then id.

        queries: [Q, width], of any length but zero.
        owner: int64 [Q], search only this owner's entries; an owner without entries finds nothing. None: search
            everything.
        not_episode: int64 [Q], exclude this episode, the query's own; -1 for none.
        at_most: exclude entries that are more similar, because a copy of the query teaches nothing.

        Raises:
            ValueError: queries have another shape, are zero or not finite, `count` is below 1, or a column is not one
                integer for each query.
        """
        if count < 1:
            raise ValueError(f"a search is for 1 entry or more, not {count}")
        made = normalised(queries, self.width, self.device)
        own = _of_queries("not_episode", not_episode, len(made))
        asked = None if owner is None else _of_queries("owner", owner, len(made))
        best = np.full((len(made), count), -1)  # addresses
        cosines = np.full((len(made), count), -np.inf, np.float32)
        with torch.autocast(self.device.type, enabled=False):  # half-precision products have larger errors
            for scan in self._scan(made, asked, at_most):
                self._settle(scan, made, own, at_most, best, cosines)
                del scan  # before the next products are computed
        return self._found(best, cosines)

    def draw(
        self, queries: Any, owner: Integers, uniform: NDArray[np.float64], not_episode: Integers | None = None
    ) -> Found:
        """A random entry of each query's owner, uniform, [Q, 1]: for queries with little or no information.

        queries: [Q, width], as in `search`; only similarities depend on them.
        owner: int64 [Q]; an owner without eligible entries gets none.
        uniform: [Q], in [0, 1): selects the entry, in the order of ids. So a row depends only on its own entries and
            number, not on other queries.
        not_episode: int64 [Q], exclude this episode, the query's own; -1 for none.

        Raises:
            ValueError: as `search`, or a number is not in [0, 1).
        """
        made = normalised(queries, self.width, self.device)
        whose, own = _of_queries("owner", owner, len(made)), _of_queries("not_episode", not_episode, len(made))
        chance = one_each("uniform", uniform, "float64", len(made), "queries")
        if (outside := (chance < 0) | (chance >= 1)).any():
            raise ValueError(f"uniform {chance[outside][0]} is not in [0, 1)")
        best, room, most = np.full((len(made), 1), -1), self._ids.shape[1], int(self.sizes.max(initial=0))
        known = np.flatnonzero((whose >= 0) & (whose < len(self.sizes)))
        for rows in _batches(known, max(1, CELLS // 8 // max(1, most))):
            free = np.arange(most) < self.sizes[whose[rows], None]
            mine = own[rows, None]
            free &= (self._columns["episode"][whose[rows], :most] != mine) | (mine < 0)
            nth = (chance[rows] * free.sum(1)).astype(np.int64)
            place = (free & (free.cumsum(1) == nth[:, None] + 1)).argmax(1) if most else nth
            best[rows, 0] = np.where(free.any(1), whose[rows] * room + place, -1)
        cosines, there = np.full(best.shape, -np.inf, np.float32), np.flatnonzero(best[:, 0] >= 0)
        cosines[there, 0] = self._cosines(made, there, best[there, 0])
        return self._found(best, cosines)

    def _scan(self, queries: Tensor, owner: Integers | None, at_most: float) -> Iterator[_Scan]:
        """Products of all queries with all keys that they may find, block by block, without those that are certainly
        too similar."""
        room, most = self._ids.shape[1], at_most + self._error
        if owner is None:
            if len(self):
                keys, places = [self._keys[i, : self.sizes[i]] for i in np.flatnonzero(self.sizes)], self._places()
                for rows in _batches(np.arange(len(queries)), QUERIES):
                    yield _All(rows, queries[rows], keys, places, most)
            return
        for run in self._runs(owner):
            size, rows = int(self.sizes[run[0][0]]), np.concatenate([grid.reshape(-1) for _, grid in run])
            begins = np.concatenate([np.repeat(np.arange(i, i + len(grid)) * room, grid.shape[1]) for i, grid in run])
            own = [(queries[grid], self._keys[first : first + len(grid), :size]) for first, grid in run]
            # Products get no name here: it would keep them alive while the next ones are computed.
            yield _Own(rows, products_of(own, most), begins)

    def _runs(self, owner: Integers) -> Iterator[list[tuple[int, Integers]]]:
        """Groups of owners of equal size, whose products are computed together: the first owner of each group with
        equal numbers of queries, and the queries, [owners, R]."""
        if not len(owner):
            return
        order = np.argsort(owner, kind="stable")
        asked, begins = np.unique(owner[order], return_index=True)
        run: list[tuple[int, list[Integers]]] = []
        cells, before = 0, 0
        for i, rows in zip(asked.tolist(), np.split(order, begins[1:]), strict=True):
            if not (0 <= i < len(self.sizes) and (size := int(self.sizes[i]))):
                continue
            for batch in _batches(rows, max(1, CELLS // size)):
                if run and (size != before or cells + len(batch) * size > CELLS):
                    yield [(first, np.stack(grid)) for first, grid in run]
                    run, cells = [], 0
                if run and i == run[-1][0] + len(run[-1][1]) and len(batch) == len(run[-1][1][0]):
                    run[-1][1].append(batch)
                else:
                    run.append((i, [batch]))
                cells, before = cells + len(batch) * size, size
        if run:
            yield [(first, np.stack(grid)) for first, grid in run]

    def _settle(
        self, scan: _Scan, queries: Tensor, own: Integers, at_most: float, best: Integers, cosines: Floats
    ) -> None:
        """Write the addresses and cosines of the nearest entries of a scan's rows into `best` and `cosines`."""
        count, error = best.shape[1], self._error
        kept, left = min(scan.total, count + SPARE), np.arange(len(scan.rows))
        while len(left):
            unsure: list[Integers] = []
            for part in _batches(left, max(1, PAIRS // kept)):
                address, product = scan.top(part, kept)
                rows, mine = scan.rows[part], own[scan.rows[part], None]
                other = (self._at(self._columns["episode"], address) != mine) | (mine < 0)
                # An entry with a product below `least` is certainly farther than `count` eligible ones.
                least = _nth(product, other & (product <= at_most - error), count) - 2 * error
                row, place = np.nonzero(other & (product >= least[:, None]) & (product > -np.inf))
                cosine = np.full(product.shape, -np.inf, np.float32)
                cosine[row, place] = self._cosines(queries, rows[row], address[row, place])
                cosine[cosine > at_most] = -np.inf
                order = np.lexsort((self._at(self._ids, address), -cosine), 1)[:, :count]
                cosine = np.take_along_axis(cosine, order, 1)
                address = np.where(cosine > -np.inf, np.take_along_axis(address, order, 1), -1)
                # The others are certainly less similar, or all are too similar, or there are none.
                bound = product[:, -1]
                sure = (cosine[:, -1] > bound.astype(np.float64) + error) | (bound == -np.inf) | (kept == scan.total)
                best[rows[sure], : order.shape[1]] = address[sure]
                cosines[rows[sure], : order.shape[1]] = cosine[sure]
                unsure.append(part[~sure])
            left, kept = np.concatenate(unsure), min(scan.total, 4 * kept)

    @property
    def _error(self) -> float:
        """Largest error of a float32 product of normalised vectors."""
        return float((self.width + 8) * 2.0**-24)

    def _cosines(self, queries: Tensor, rows: Integers, address: Integers) -> Floats:
        """Cosines of pairs of a query and an entry, float32 [P]: summed in float64, so that the order of addition has
        no effect."""
        found = np.empty(len(rows), np.float32)
        for pairs in _batches(np.arange(len(rows)), max(1, NUMBERS // self.width)):
            keys = self._flat_keys[torch.from_numpy(address[pairs]).to(self.device)].double()
            keys *= queries[torch.from_numpy(rows[pairs]).to(self.device)]
            found[pairs] = keys.sum(1).float().cpu().numpy()
        return found

    @staticmethod
    def _at(column: NDArray[Any], address: Integers) -> NDArray[Any]:
        """Values of a column [owners, room] at addresses of any shape; arbitrary where an address is -1."""
        return column.reshape(-1)[address] if column.size else np.full(address.shape, -1, column.dtype)

    def _found(self, address: Integers, cosines: Floats) -> Found:
        there = address >= 0
        columns = {
            name: np.where(there, self._at(column, address), column.dtype.type(-1))
            for name, column in self._columns.items()
        }
        return Found(np.where(there, self._at(self._ids, address), -1), cosines, columns)


def _of_queries(name: str, values: Any, count: int) -> Integers:
    """One value per query, int64 [Q]; all -1 if none are given."""
    return np.full(count, -1) if values is None else one_each(name, values, "int64", count, "queries")


def _nth(values: Floats, counted: NDArray[np.bool_], count: int) -> Floats:
    """[R], the `count`-th counted value of each descending row [R, N]; -inf if there are fewer."""
    at = (counted.cumsum(1) == count) & counted
    return np.where(at.any(1), np.take_along_axis(values, at.argmax(1)[:, None], 1)[:, 0], np.float32(-np.inf))


def _batches(rows: Integers, most: int) -> Iterator[Integers]:
    for begin in range(0, len(rows), most):
        yield rows[begin : begin + most]
