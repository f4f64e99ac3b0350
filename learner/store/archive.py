"""The behaviours that a search has found, in a folder: an append-only archive, each with the policy that produced it.

    archive/
      archive-a0002.json            format, columns, metadata, and its shards in order
      000000000-1026-a0002.parquet  behaviours 0 to 1025, one row each: id, descriptor, and the columns of the payload
      000001026-0060-a0002.parquet  the next ones; small shards are merged

    append(ids, descriptors, payload)    new ones wait in memory; flush() makes them durable
    neighbours                           an index of all descriptors, for novelty
    rows(index, columns)                 payload, read from disk

Ids and descriptors are kept in memory, about 200 bytes a behaviour; the payload (weights, trajectories) may be larger
than memory. Appending an id twice changes nothing. A search that returns to its checkpoint rewinds the archive, and
then finds the same behaviours again. A shard is written under a temporary name, synced and renamed. It counts once the
index, which is replaced atomically, names it. Shards are Parquet, which any table tool can read; their pages have
checksums, verified at every read.

Two attempts at one run (`learner.files`) may write one archive at once. File names carry the number of their attempt,
and the newest attempt's index counts; without an attempt, as in older archives, names have no number. An attempt
changes and removes only its own files, so an older attempt that notices late does no harm. A newer attempt first links
the shards that it continues from to names of its own (or copies them, where there are no links). It removes older
attempts' files once its own checkpoint refers to the archive (`forget_older`).

Limit: to append, the disk; to read a row, decoding the `GROUP` rows around it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from learner.files import Attempt, Superseded, read_about, replace_file, sha256, sync_folder
from learner.store.neighbours import Neighbours
from learner.store.owned import ABOUT, index_name, index_of, own, whose
from llm_service.errors import UsageError
from llm_service.files import replacing

FORMAT = 1
FULL = 1024  # behaviours: smaller shards are merged once they hold this many together
GROUP = 64  # rows that are read together; part of the format
ID, DESCRIPTOR = "id", "descriptor"

Columns = Mapping[str, tuple[str, tuple[int, ...]]]
"""A column's type and the shape of its rows, as in {"weights": ("float32", (302,)), "novelty": ("float64", ())}."""

_Part = dict[str, NDArray[Any]]  # column -> its rows, including ids and descriptors


class ArchiveError(UsageError):
    """An archive cannot be read or continued. The message is one sentence that says what to do."""


class Archive:
    """Behaviours in a folder. There is one writer; others may read flushed behaviours.

    Args:
        folder: folder of the archive, created if missing; its parent must exist.
        size: D, numbers in a descriptor.
        columns: of the payload.
        about: metadata of the archive, JSON: hashes of configuration and map, seed, threshold.
        k: largest number of neighbours that novelty needs.
        attempt: the attempt that writes, where several may write.

    Raises:
        ArchiveError: the folder holds another archive, or a damaged one.
        Superseded: a newer attempt has begun.
    """

    def __init__(
        self,
        folder: Path,
        size: int,
        columns: Columns,
        about: Mapping[str, Any],
        k: int = 15,
        attempt: Attempt | None = None,
    ) -> None:
        self.folder, self.size, self.k, self.attempt = Path(folder), size, k, attempt
        self._number, self._suffix = (attempt.number, attempt.suffix) if attempt else (0, "")
        self.columns = {name: (str(np.dtype(kind)), tuple(shape)) for name, (kind, shape) in columns.items()}
        if clash := self.columns.keys() & {ID, DESCRIPTOR}:
            raise ArchiveError(f"every archive has a column {min(clash)!r} of its own: give that of the payload a name")
        self._all = {ID: ("int64", ()), DESCRIPTOR: ("float64", (size,)), **self.columns}
        self.about = json.loads(json.dumps(dict(about)))
        self._shards: list[dict[str, Any]] = []
        self._begins = [0]  # first row of each shard, then of the unflushed rows
        self._waiting: list[_Part] = []
        self._row_of: dict[int, int] = {}
        self._ids, self._descriptors = np.empty(0, np.int64), np.empty((0, size))
        self._neighbours: Neighbours | None = None
        self.folder.mkdir(exist_ok=True)
        if attempt:
            attempt.assert_newest()
        there = index_of(self.folder)
        if there is None:
            self._commit([], [])
        elif {**_about(there), "shards": []} != self._says([]):
            raise ArchiveError(f"{folder} holds behaviours of another search: choose another place, or delete it")
        self._load()

    @staticmethod
    def read(folder: Path, k: int = 15) -> Archive:
        """Open the archive in a folder.

        Raises:
            ArchiveError: there is none, or it is damaged.
        """
        says = _about(index_of(folder) or Path(folder) / ABOUT)
        return Archive(folder, says["size"], says["columns"], says["about"], k)

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def ids(self) -> NDArray[np.int64]:
        """[N], in the order of appending."""
        return self._ids[: len(self)]

    @property
    def descriptors(self) -> NDArray[np.float64]:
        """[N, D]."""
        return self._descriptors[: len(self)]

    @property
    def neighbours(self) -> Neighbours:
        """Index of all descriptors, numbered in the order of appending. Created on first use, then kept up to date."""
        if self._neighbours is None:
            self._neighbours = Neighbours(self.size, self.k)
            self._neighbours.insert(self.descriptors)
        return self._neighbours

    def index(self, ids: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of these ids; -1 for ids that are missing."""
        return np.array([self._row_of.get(int(entry), -1) for entry in ids], np.int64)

    def digest(self) -> str:
        """Hash of all ids and descriptors in order: equal searches have equal hashes."""
        return hashlib.sha256(self.ids.tobytes() + self.descriptors.tobytes()).hexdigest()

    # ---- writing ------------------------------------------------------------------------------------------------

    def append(
        self, ids: NDArray[np.int64], descriptors: NDArray[Any], payload: Mapping[str, NDArray[Any]]
    ) -> NDArray[np.bool_]:
        """Add M behaviours, except those whose ids are already there. Returns which were new, [M].

        descriptors: [M, D], finite.
        payload: [M, ...] by column, all of them.

        Raises:
            ValueError: a column is missing, unknown or of another shape, or a descriptor is not finite.
            TypeError: a column's numbers would not fit the archive's type.
        """
        if payload.keys() != self.columns.keys():
            raise ValueError(f"the payload has the columns {sorted(payload)}, the archive {sorted(self.columns)}")
        values: _Part = {}
        for name, (kind, shape) in self._all.items():
            column = np.asarray({ID: ids, DESCRIPTOR: descriptors, **payload}[name])
            column = column.astype(kind, casting="same_kind", copy=False)
            if column.shape != (len(ids), *shape):
                raise ValueError(f"{name} of {len(ids)} behaviours has shape {column.shape}, not {(len(ids), *shape)}")
            values[name] = column
        if not np.isfinite(values[DESCRIPTOR]).all():
            raise ValueError("a descriptor is not finite: leave out behaviours that have none")
        _, first = np.unique(values[ID], return_index=True)
        new = np.zeros(len(ids), np.bool_)
        new[first] = self.index(values[ID][first]) < 0
        if new.any():
            part = {name: column[new] for name, column in values.items()}
            self._remember(part)
            self._waiting.append(part)
            if len(self) - self._begins[-1] >= FULL:
                self.flush()
        return new

    def flush(self) -> None:
        """Make all appended behaviours durable. Call this before each checkpoint of the search."""
        if len(self) == self._begins[-1]:
            return
        small = len(self._shards)
        while small and self._shards[small - 1]["entries"] < FULL:
            small -= 1
        if len(self) - self._begins[small] < FULL:
            small = len(self._shards)  # too few to merge
        self._commit(self._shards[:small], [self._read(shard) for shard in self._shards[small:]] + self._waiting)

    def rewind(self, count: int, attempt: int | None = None) -> None:
        """Forget all but the first `count` behaviours, for a search that returns to its checkpoint.

        attempt: number of the attempt that wrote the checkpoint; the count refers to that attempt's index.

        Raises:
            ArchiveError: the archive has fewer.
            Superseded: a newer attempt has begun.
        """
        if attempt is not None and (counted := self.folder / index_name(attempt)).exists():
            self._load(counted)
        if count > len(self):
            raise ArchiveError(
                f"{self.folder} holds {len(self):,} behaviours, but its search's checkpoint counts {count:,}: restore "
                "the folder from a copy, or begin the search anew"
            )
        self.flush()
        kept = int(np.searchsorted(self._begins, count, side="right")) - 1  # complete shards to keep
        rest = count - self._begins[kept]
        parts = [{name: column[:rest] for name, column in self._read(self._shards[kept]).items()}] if rest else []
        self._commit(self._shards[:kept], parts)
        self._load(self._index)

    def forget_older(self) -> None:
        """Remove older attempts' files. Call this when a checkpoint of this attempt refers to the flushed archive.

        Raises:
            Superseded: a newer attempt has begun.
        """
        if self.attempt:
            self.attempt.assert_newest()
        for name in os.listdir(self.folder):
            if (number := whose(name)) is not None and number < self._number:
                (self.folder / name).unlink(missing_ok=True)

    # ---- reading ------------------------------------------------------------------------------------------------

    def rows(self, index: NDArray[np.int64], columns: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """Payload [B, ...] of the behaviours in rows `index` [B]: these columns, or all.

        Raises:
            IndexError: there is no such row.
            ArchiveError: a shard is damaged.
        """
        names = list(self.columns if columns is None else columns)
        if len(index) and (index.min() < 0 or index.max() >= len(self)):
            raise IndexError(f"rows {index.min()} to {index.max()} of an archive of {len(self)}")
        found: _Part = {name: np.empty((len(index), *self._all[name][1]), self._all[name][0]) for name in names}
        holder = np.searchsorted(self._begins, index, side="right") - 1
        for number in np.unique(holder).tolist():
            at = np.flatnonzero(holder == number)
            row = index[at] - self._begins[number]
            if number == len(self._shards):
                part = {name: np.concatenate([some[name] for some in self._waiting]) for name in names}
            else:
                groups, of = np.unique(row // GROUP, return_inverse=True)
                part = self._read(self._shards[number], names, groups.tolist())
                row = of * GROUP + row % GROUP
            for name in names:
                found[name][at] = part[name][row]
        return found

    def verify(self) -> None:
        """Read and verify every byte.

        Raises:
            ArchiveError: a shard has changed since it was written.
        """
        for shard in self._shards:
            path = self.folder / shard["file"]
            if not path.exists() or sha256(path) != shard["sha256"]:
                raise _damaged(path, "its hash differs from that in the index")

    # ---- files --------------------------------------------------------------------------------------------------

    def _says(self, shards: list[dict[str, Any]]) -> dict[str, Any]:
        columns = {name: [kind, list(shape)] for name, (kind, shape) in self.columns.items()}
        return {"format": FORMAT, "size": self.size, "columns": columns, "about": self.about, "shards": shards}

    @property
    def _index(self) -> Path:
        return self.folder / index_name(self._number)

    def _commit(self, shards: list[dict[str, Any]], parts: list[_Part]) -> None:
        """Replace the archive's content by these shards and, in one more shard, these rows. Own files without an entry
        are removed."""
        if self.attempt:
            self.attempt.assert_newest()
        newest = index_of(self.folder)
        if newest and (number := whose(newest.name) or 0) > self._number:
            raise Superseded(f"{self.folder} is written by attempt {number} of its run: nothing else may add to it")
        try:
            if parts:
                shards = [*shards, self._write(sum(shard["entries"] for shard in shards), parts)]
            replace_file(self._index, json.dumps(self._says(shards), indent=1).encode(), self.attempt)
        except FileNotFoundError:
            if self.attempt:
                self.attempt.assert_newest()  # a newer attempt removes unfinished files
            raise
        sync_folder(self.folder)
        named = {self._index.name, *(shard["file"] for shard in shards)}
        for name in os.listdir(self.folder):
            if whose(name) == self._number and name not in named:
                (self.folder / name).unlink(missing_ok=True)
        self._take(shards)

    def _take(self, shards: list[dict[str, Any]]) -> None:
        self._shards, self._waiting = shards, []
        self._begins = np.cumsum([0, *(shard["entries"] for shard in shards)]).tolist()

    def _load(self, index: Path | None = None) -> None:
        """Load the state that an index describes; by default that of the newest attempt."""
        self._row_of, self._neighbours = {}, None
        path = index or index_of(self.folder) or self._index
        shards = _about(path)["shards"]
        try:
            self._take(self._own(shards))
            for shard in self._shards:
                file = self.folder / shard["file"]
                size = file.stat().st_size if file.exists() else 0
                if size != shard["bytes"]:
                    raise _damaged(file, f"it has {size:,} bytes, not {shard['bytes']:,}")
                self._remember(self._read(shard, [ID, DESCRIPTOR]))
        except ArchiveError:
            if _about(index or index_of(self.folder) or path)["shards"] == shards:
                raise
            self._load(index)  # its writer has merged shards in the meantime

    def _own(self, shards: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The same shards under names of this attempt; unchanged without an attempt."""
        if not self.attempt:
            return shards
        try:
            named = [shard | {"file": own(self.folder / shard["file"], self._suffix).name} for shard in shards]
        except FileNotFoundError as error:
            raise _damaged(Path(error.filename), "it is not there") from None
        sync_folder(self.folder)
        return named

    def _remember(self, part: _Part) -> None:
        count = len(self)
        self._ids = _extended(self._ids, count, part[ID])
        self._descriptors = _extended(self._descriptors, count, part[DESCRIPTOR])
        self._row_of.update(zip(part[ID].tolist(), range(count, count + len(part[ID])), strict=True))
        if self._neighbours is not None:
            self._neighbours.insert(part[DESCRIPTOR])

    def _write(self, first: int, parts: list[_Part]) -> dict[str, Any]:
        """Write a shard of these rows, which begin at the archive's row `first`. Returns its entry."""
        columns, fields = [], []
        for name, (_, shape) in self._all.items():
            values = np.concatenate([part[name] for part in parts])
            column = pa.array(values.ravel())
            if shape:
                column = pa.FixedSizeListArray.from_arrays(column, int(np.prod(shape)))
            columns.append(column)
            fields.append(pa.field(name, column.type, nullable=False, metadata={"shape": json.dumps(shape)}))
        path = self.folder / f"{first:09d}-{len(columns[0]):04d}{self._suffix}.parquet"
        table = pa.table(columns, schema=pa.schema(fields))
        how = {"row_group_size": GROUP, "compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
        with replacing(path) as temporary:
            with open(temporary, "wb") as file:
                pq.write_table(table, file, **how)
                file.flush()
                os.fsync(file.fileno())
            entry = {"file": path.name, "entries": len(table), "bytes": temporary.stat().st_size}
            entry["sha256"] = sha256(temporary)
        sync_folder(self.folder)
        return entry

    def _read(
        self, shard: Mapping[str, Any], names: Sequence[str] | None = None, groups: Sequence[int] | None = None
    ) -> _Part:
        """Columns of a shard: all rows, or those of some row groups."""
        path, names = self.folder / shard["file"], list(self._all if names is None else names)
        try:
            with pq.ParquetFile(path, memory_map=True, page_checksum_verification=True) as file:
                which = range(file.num_row_groups) if groups is None else groups
                table = file.read_row_groups(list(which), names, use_threads=False).combine_chunks()
            part = {}
            for name in names:
                kind, shape = self._all[name]
                column = table.column(name).combine_chunks()
                values = (column.flatten() if shape else column).to_numpy(zero_copy_only=False)
                part[name] = values.astype(kind, copy=False).reshape(len(table), *shape)
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            if self.attempt:
                self.attempt.assert_newest()  # a newer attempt has removed it
            raise _damaged(path, str(error).split("\n")[0]) from None
        return part


def _about(index: Path) -> dict[str, Any]:
    return read_about(index, "archive", (FORMAT,), ("size", "columns", "about", "shards"), ArchiveError)


def _damaged(path: Path, what: str) -> ArchiveError:
    return ArchiveError(f"{path} is damaged, {what}: restore it from a copy, or begin the search anew")


def _extended(array: NDArray[Any], count: int, new: NDArray[Any]) -> NDArray[Any]:
    """An array that begins with array[:count] and `new`: the same array if it has room."""
    if count + len(new) > len(array):
        grown = np.empty((max(2 * count, count + len(new)), *array.shape[1:]), array.dtype)
        grown[:count], array = array[:count], grown
    array[count : count + len(new)] = new
    return array
