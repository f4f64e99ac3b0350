"""A memory index in shards, each in its own role: a search runs on all shards and finds what one index would find.

    append ──> entries by owner modulo n ──> IndexShard 0 ... n - 1, each a `MemoryIndex` in its own process
    search ──> all shards at once ──> Found of each ──`ranking.merge`──> Found, bitwise equal to that of one index
    save   ──> a file per shard, one `retrieval.json` ──load──> any number of shards, or one index

All entries of an owner are on one shard, so draws and duplicates within an owner concern one shard only. Ids are
assigned here. What a shard would refuse is refused here, before anything is sent.

A dead shard's entries are lost, and the index does not search without them: `ShardDied` names the shard, the other
shards end, and the caller loads the last saved index or builds it again, as the learner's ranks go back to a
checkpoint.

Limit: a batch of queries is sent to every shard, and each returns count * 76 bytes per query. Owners of very different
sizes make shards of different sizes, and a search takes as long as the largest shard.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from cluster.roles.backend import Backend, RoleDied, Ticket
from cluster.roles.supervisor import last_line
from learner.files import Attempt
from learner.store import entry_files
from learner.store.entry_files import RetrievalError
from learner.store.ranking import Found, Integers, merge
from learner.store.retrieval import MemoryIndex


class ShardDied(RuntimeError):
    """A shard is gone, and the index with it: load or build it again. The first line names the shard."""


class IndexShard:
    """A role: the entries of some owners.

    Args:
        width: of a key.
    """

    def __init__(self, width: int) -> None:
        self._index = MemoryIndex(width)

    def load(self, folder: Path, shard: int, of: int) -> int:
        """Load the saved entries of owners that are `shard` modulo `of`. Returns the number of entries.

        Raises:
            RetrievalError: there is no index, or it is damaged.
        """
        self._index = MemoryIndex.load(folder, shard=shard, of=of)
        return len(self._index)

    def call(self, method: str, *args: Any) -> Any:
        """The result of a method of the index."""
        return getattr(self._index, method)(*args)


class ShardedIndex:
    """An empty index on `shards` roles. It works like `MemoryIndex`, with equal results.

    Args:
        backend: where the shards run.
        width: of a key.
        shards: how many, 1 or more.
        timeout_s: seconds that a call may take; the first call also waits for its shard to start.

    Raises:
        ValueError: a width or a number of shards below 1.
    """

    def __init__(self, backend: Backend, width: int, shards: int, timeout_s: float = 600.0) -> None:
        if shards < 1:
            raise ValueError(f"an index needs at least 1 shard, not {shards}")
        self._backend, self._timeout_s, self._size = backend, timeout_s, 0
        self._empty = MemoryIndex(width)  # assigns ids, and refuses what shards would refuse
        self._shards = [backend.start(f"index-{i}", IndexShard, width) for i in range(shards)]

    def __len__(self) -> int:
        return self._size

    def append(self, keys: Any, columns: Mapping[str, Any]) -> Integers:
        """Add M entries, see `MemoryIndex.append`. Returns their ids, int64 [M].

        Raises:
            ValueError: as in `MemoryIndex.append`; nothing was added.
            ShardDied: a shard is gone.
        """
        _, ids, values = self._empty.checked(keys, columns)
        vectors, shard = _numbers(keys), values["owner"] % len(self._shards)
        tickets = []
        for i, handle in enumerate(self._shards):
            own = shard == i
            part = {name: column[own] for name, column in values.items()}
            tickets.append(self._backend.submit(handle, "call", "append", vectors[own], part, ids[own]))
        self._results(tickets)
        self._empty.next_id += len(ids)
        self._size += len(ids)
        return ids

    def search(
        self,
        queries: Any,
        count: int,
        owner: Integers | None = None,
        not_episode: Integers | None = None,
        at_most: float = math.inf,
    ) -> Found:
        """The `count` entries nearest to each query, see `MemoryIndex.search`.

        Raises:
            ValueError: as there.
            ShardDied: a shard is gone.
        """
        self._empty.search(queries, count, owner, not_episode, at_most)
        return merge(self._all("search", _numbers(queries), count, owner, not_episode, at_most), count)

    def draw(
        self, queries: Any, owner: Integers, uniform: NDArray[np.float64], not_episode: Integers | None = None
    ) -> Found:
        """A random entry of each query's owner, see `MemoryIndex.draw`.

        Raises:
            ValueError: as there.
            ShardDied: a shard is gone.
        """
        self._empty.draw(queries, owner, uniform, not_episode)
        return merge(self._all("draw", _numbers(queries), owner, uniform, not_episode), 1)

    def evict(self, ids: Any) -> int:
        """Remove the entries with these ids. Returns how many there were.

        Raises:
            ShardDied: a shard is gone.
        """
        return self._gone(self._all("evict", np.asarray(ids)))

    def deduplicate(self, above: float = 0.98) -> int:
        """Evict near-duplicate entries, see `MemoryIndex.deduplicate`. Returns how many.

        Raises:
            ShardDied: a shard is gone.
        """
        return self._gone(self._all("deduplicate", above))

    def save(self, folder: Path, attempt: Attempt | None = None) -> None:
        """Write all entries into a folder that every shard can reach, see `MemoryIndex.save`.

        Raises:
            Superseded: a newer attempt has begun; the folder is unchanged.
            ShardDied: a shard is gone; the same.
        """
        before = entry_files.begin(folder, attempt)
        files = dict(self._all("write", folder, attempt))
        entry_files.publish(folder, self._empty.width, self._empty.next_id, files, before, attempt)

    @classmethod
    def load(cls, backend: Backend, folder: Path, shards: int, timeout_s: float = 600.0) -> Self:
        """Load a saved index, whatever its number of shards; nobody may save meanwhile.

        Raises:
            RetrievalError: there is no index, or it is damaged.
            ShardDied: a shard is gone.
        """
        says = entry_files.about(folder)
        found = cls(backend, says["width"], shards, timeout_s)
        found._empty.next_id = says["next_id"]
        tickets = [backend.submit(handle, "load", folder, i, shards) for i, handle in enumerate(found._shards)]
        try:
            found._size = sum(found._results(tickets))
        except RetrievalError:
            found.close()
            raise
        return found

    def close(self) -> None:
        """End the shards."""
        for handle in self._shards:
            self._backend.kill(handle)

    def _gone(self, counts: Sequence[int]) -> int:
        self._size -= sum(counts)
        return sum(counts)

    def _all(self, method: str, *args: Any) -> list[Any]:
        """What each shard answers."""
        return self._results([self._backend.submit(handle, "call", method, *args) for handle in self._shards])

    def _results(self, tickets: Sequence[Ticket]) -> list[Any]:
        """Wait for a call of every shard."""
        found = []
        for i, ticket in enumerate(tickets):
            try:
                found.append(self._backend.result(ticket, timeout=self._timeout_s))
            except RoleDied as death:
                self.close()
                raise ShardDied(
                    f"shard {i} of {len(tickets)} of a memory index is gone: {last_line(str(death))}; "
                    f"load the saved index, or build it again\n{death}"
                ) from None
        return found


def _numbers(vectors: Any) -> NDArray[np.float32]:
    """Vectors as they are sent; an index treats them the same."""
    rows: NDArray[np.float32] = torch.as_tensor(vectors).detach().to("cpu", torch.float32).numpy()
    return rows
