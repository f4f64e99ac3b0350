"""A memory of chunks of episodes: vectors in, and for a query the entries whose keys have the largest cosine, exactly.

    append(keys, columns)  ──normalised──> keys float32 [owners, capacity, width] and pointers (episode, start, stop)
    search(queries)        ──normalised──> matrix product ──> the largest ──> summed again in float64 ──> Found
    draw(owner, uniform)   ──────────────> any entry of the owner, by a random number ──────────────────> Found
    Found                  ──learner.store.ranking──> merged over shards, scored, the best k

Contract
- An entry is a key and columns (`ranking.COLUMNS`): where its chunk stands, not the chunk. Ids are int64 in the order
  of appending, never used twice, and stay when others go.
- Keys and queries are normalised by one function, in training and in acting. A similarity depends on its two vectors
  alone, not on what else is searched, and of equal ones the lower id comes first. So the answer is the same whatever
  the batch, the order of appending but for equal similarities, the shards, and after `save` and `load`.
- Entries belong to owners, small integers, whose keys lie together. A query of one owner reads only its keys: in
  training the owner is the task, in trials each row of (arm, seed, task) has its own memory.
- Nothing to find is ordinary: ids -1, similarities -inf.

How it is exact: a float32 product errs by at most about width * 2^-24, in whatever order it adds. The largest products,
and all that lie no more than this error below the last one that is needed, are computed again in float64 and rounded;
unless that one lies above all that were left out by more than this error, more are taken. What must not be found (the
query's own episode, a chunk that is too similar) is left out at that point too. Only what is too similar by more than
the error is left out of the products: where an episode was lived again and again, a query has as many copies.

The limit is the matrix product: 2 * width operations a key and query. Of products 4 MB are made at once where
everything is searched (`learner/store/products.py`), and 16 MB where each query has an owner. How entries are kept and
saved is `learner/store/entries.py`.
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
"""Products with owners' keys that are made at once, 16 MB: more leave the processor's cache. Where entries are drawn or
compared with each other an eighth of it."""
QUERIES = 512
"""Queries of everything that are answered at once."""
PAIRS = 2**17
"""Pairs of a query and an entry that are looked at at once, or those of one query."""
NUMBERS = 2**18
"""Numbers that are summed in float64 at once."""
SPARE = 8
"""Entries beyond those asked for that are looked at in any case, since some may be the query's own episode."""


@dataclass(frozen=True, eq=False)
class _Own:
    """Queries that are each of an owner, whose products with all of its keys are there."""

    rows: Integers  # [R], which queries
    products: Tensor  # float32 [R, N]
    begins: Integers  # int64 [R], addresses of the first key

    @property
    def total(self) -> int:
        return self.products.shape[1]

    def top(self, part: Integers, count: int) -> tuple[Integers, Floats]:
        """Addresses [P, count] of keys with the largest products with these of the rows, and these, descending."""
        every = len(part) == len(self.rows)
        columns, found = largest(self.products if every else self.products[part], count)
        return columns.cpu().numpy() + self.begins[part, None], found.cpu().numpy()


@dataclass(frozen=True, eq=False)
class _All:
    """Queries of everything."""

    rows: Integers
    queries: Tensor  # [R, width]
    keys: Sequence[Tensor]  # of each owner
    places: Integers  # int64 [N], addresses of these
    most: float

    @property
    def total(self) -> int:
        return len(self.places)

    def top(self, part: Integers, count: int) -> tuple[Integers, Floats]:
        """As of `_Own`."""
        numbers, found = largest_products(self.queries[part], self.keys, count, self.most)
        return self.places[numbers.cpu().numpy()], found.cpu().numpy()


_Scan = _Own | _All


class MemoryIndex(Entries):
    """Entries that are searched. Made, added to, evicted, saved and loaded as `Entries`."""

    def deduplicate(self, above: float = 0.98) -> int:
        """Evict entries that are nearly copies. Returns how many.

        In the order of ids, an entry goes if one of its owner and task that stays has a cosine above `above` to it. So
        afterwards no two are that similar. (Published is a pass over each entry's ten nearest, which leaves some.)
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
        owner: int64 [Q], search only what this one owns; an owner without entries finds nothing. None: everything.
        not_episode: int64 [Q], leave out this episode, the query's own; -1 for none.
        at_most: leave out what is more similar: a copy of the query teaches nothing.

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
        with torch.autocast(self.device.type, enabled=False):  # products of half the precision err by more
            for scan in self._scan(made, asked, at_most):
                self._settle(scan, made, own, at_most, best, cosines)
                del scan  # before the next products are made
        return self._found(best, cosines)

    def draw(
        self, queries: Any, owner: Integers, uniform: NDArray[np.float64], not_episode: Integers | None = None
    ) -> Found:
        """Any entry of each query's owner, each equally likely, [Q, 1]: for queries that say too little, or nothing.

        queries: [Q, width], as of `search`; only similarities depend on them.
        owner: int64 [Q]; one without entries that may be drawn gets none.
        uniform: [Q], in [0, 1): which entry it is, in the order of ids. So a row depends on its own entries and number
            alone, whoever is asked about beside it.
        not_episode: int64 [Q], leave out this episode, the query's own; -1 for none.

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
        """All queries with all keys that they may find, a part at a time. What is surely too similar is not found."""
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
            # Products have no name here, which would keep them while the next are made.
            yield _Own(rows, products_of(own, most), begins)

    def _runs(self, owner: Integers) -> Iterator[list[tuple[int, Integers]]]:
        """Owners of equal sizes whose products are made at once: of each row of owners with equally many queries the
        first one, and which queries, [owners, R]."""
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
                # Any with a product below `least` is surely less near than `count` that are surely left in.
                least = _nth(product, other & (product <= at_most - error), count) - 2 * error
                row, place = np.nonzero(other & (product >= least[:, None]) & (product > -np.inf))
                cosine = np.full(product.shape, -np.inf, np.float32)
                cosine[row, place] = self._cosines(queries, rows[row], address[row, place])
                cosine[cosine > at_most] = -np.inf
                order = np.lexsort((self._at(self._ids, address), -cosine), 1)[:, :count]
                cosine = np.take_along_axis(cosine, order, 1)
                address = np.where(cosine > -np.inf, np.take_along_axis(address, order, 1), -1)
                # Others are surely less similar, or all are too similar, or there are none.
                bound = product[:, -1]
                sure = (cosine[:, -1] > bound.astype(np.float64) + error) | (bound == -np.inf) | (kept == scan.total)
                best[rows[sure], : order.shape[1]] = address[sure]
                cosines[rows[sure], : order.shape[1]] = cosine[sure]
                unsure.append(part[~sure])
            left, kept = np.concatenate(unsure), min(scan.total, 4 * kept)

    @property
    def _error(self) -> float:
        """By how much a float32 product of normalised vectors errs at most."""
        return float((self.width + 8) * 2.0**-24)

    def _cosines(self, queries: Tensor, rows: Integers, address: Integers) -> Floats:
        """Of pairs of a query and an entry, float32 [P]: summed in float64, so that no order of adding can be seen."""
        found = np.empty(len(rows), np.float32)
        for pairs in _batches(np.arange(len(rows)), max(1, NUMBERS // self.width)):
            keys = self._flat_keys[torch.from_numpy(address[pairs]).to(self.device)].double()
            keys *= queries[torch.from_numpy(rows[pairs]).to(self.device)]
            found[pairs] = keys.sum(1).float().cpu().numpy()
        return found

    @staticmethod
    def _at(column: NDArray[Any], address: Integers) -> NDArray[Any]:
        """Values of a column [owners, room] at addresses of any shape; any value where an address is -1."""
        return column.reshape(-1)[address] if column.size else np.full(address.shape, -1, column.dtype)

    def _found(self, address: Integers, cosines: Floats) -> Found:
        there = address >= 0
        columns = {
            name: np.where(there, self._at(column, address), column.dtype.type(-1))
            for name, column in self._columns.items()
        }
        return Found(np.where(there, self._at(self._ids, address), -1), cosines, columns)


def _of_queries(name: str, values: Any, count: int) -> Integers:
    """One for each query, int64 [Q]; -1 for all if none are given."""
    return np.full(count, -1) if values is None else one_each(name, values, "int64", count, "queries")


def _nth(values: Floats, counted: NDArray[np.bool_], count: int) -> Floats:
    """[R], the `count`-th of the values of each row [R, N] that are counted, which descend; -inf if there are fewer."""
    at = (counted.cumsum(1) == count) & counted
    return np.where(at.any(1), np.take_along_axis(values, at.argmax(1)[:, None], 1)[:, 0], np.float32(-np.inf))


def _batches(rows: Integers, most: int) -> Iterator[Integers]:
    for begin in range(0, len(rows), most):
        yield rows[begin : begin + most]
