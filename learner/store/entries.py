"""Entries of a memory index: keys of length 1, the position of their chunks, and their owners; in memory and on disk.

    append ──normalised──> keys [owners, room, width], ids and columns [owners, room] ──> files (`entry_files`)

The keys of an owner are contiguous, in the order of ids; an address is owner * room + index in the owner's row.

Limit: room grows by half, which copies all entries once; reserved room takes no memory until it is filled. Every owner
reserves as much as the largest. `save` holds up to three further copies of all entries while it writes: in order, as
bytes of each column, and as the file's content.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.files import Attempt
from learner.store import entry_files
from learner.store.ranking import COLUMNS, Integers


def normalised(vectors: Any, width: int, device: torch.device | str = "cpu") -> Tensor:
    """Normalised vectors [N, width], float32. Each row depends only on itself.

    Raises:
        ValueError: they have another shape, or one is zero or not finite.
    """
    rows = torch.as_tensor(vectors).detach().to(device=device, dtype=torch.float32)
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"vectors of shape {tuple(rows.shape)} are not [number, {width}]")
    length = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    good = torch.isfinite(length) & (length.float() > 0) & torch.isfinite(length.float())
    if not bool(good.all()):
        raise ValueError(f"vector {int(torch.argmin(good.int()))} of {len(rows)} is zero or not finite: leave it out")
    made: Tensor = rows / length.float()[:, None]
    return made


def one_each(name: str, values: Any, kind: str, count: int, of: str = "entries") -> NDArray[Any]:
    """A value for each of `count` entries or queries, [count] of type `kind`.

    Raises:
        ValueError: their number or type is wrong, or one is not finite.
    """
    given = np.asarray(values)
    if given.shape != (count,):
        raise ValueError(f"{name} of {count} {of} has shape {given.shape}, not {(count,)}")
    if count and not np.can_cast(given.dtype, kind, "same_kind"):  # NumPy makes an empty list float64
        raise ValueError(f"{name} of {count} {of} is of type {given.dtype}, not {kind}")
    with np.errstate(over="ignore"):
        made = given.astype(kind)
    if not (finite := np.isfinite(made)).all():
        raise ValueError(f"{name} {np.argmin(finite)} of {count} {of} is not finite as {kind}: leave it out")
    return made


class Entries:
    """Keys of one width, with their columns. There is one writer.

    Args:
        width: of a key.
        device: where keys are stored and multiplied. A GPU must multiply in full float32: leave
            `torch.backends.cuda.matmul.allow_tf32` at its default, False.

    Raises:
        ValueError: the width is below 1.
    """

    def __init__(self, width: int, device: torch.device | str = "cpu") -> None:
        if width < 1:
            raise ValueError(f"keys have a width of 1 or more, not {width}")
        self.width, self.device = width, torch.device(device)
        self.next_id = 0
        self.sizes: Integers = np.zeros(0, np.int64)  # entries of each owner
        self._keys = torch.empty((0, 0, width), device=self.device)
        self._ids: Integers = np.empty((0, 0), np.int64)  # [owners, room], ascending along a row
        self._columns: dict[str, NDArray[Any]] = {name: np.empty((0, 0), kind) for name, kind in COLUMNS.items()}

    def __len__(self) -> int:
        return int(self.sizes.sum())

    @property
    def ids(self) -> Integers:
        """Ids of all entries, ascending, int64 [N]."""
        return np.sort(self._ids.reshape(-1)[self._places()])

    # ---- writing -----------------------------------------------------------------------------------------------------

    def append(self, keys: Any, columns: Mapping[str, Any], ids: Integers | None = None) -> Integers:
        """Add M entries. Returns their ids, int64 [M].

        keys: [M, width], of any length except zero.
        columns: [M] by name, all of `COLUMNS`; without `owner` it is the task. Owners are 0 or more.
        ids: int64 [M], ascending and above all earlier ones, for one of several shards; by default the next ones.

        Raises:
            ValueError: a column is missing, unknown, of another length or type or not finite, or ids or owners are
                invalid.
        """
        made, given, values = self.checked(keys, columns, ids)
        self._put(made, given, values)
        return given

    def checked(
        self, keys: Any, columns: Mapping[str, Any], ids: Integers | None = None
    ) -> tuple[Tensor, Integers, dict[str, NDArray[Any]]]:
        """Normalised keys, ids and all columns of the entries that `append` would add; adds nothing.

        Raises:
            ValueError: as `append`.
        """
        if "task" in columns:
            columns = {"task": columns["task"], "owner": columns["task"], **columns}
        if columns.keys() != COLUMNS.keys():
            raise ValueError(f"an entry has the columns {', '.join(COLUMNS)}, not {', '.join(columns) or 'none'}")
        made = normalised(keys, self.width, self.device)
        values = {name: one_each(name, value, COLUMNS[name], len(made)) for name, value in columns.items()}
        given = np.arange(self.next_id, self.next_id + len(made))
        if ids is not None:
            given = one_each("id", ids, "int64", len(made))
        if len(made) and (given[0] < self.next_id or (np.diff(given) <= 0).any()):
            raise ValueError(f"ids of new entries ascend from {self.next_id} on: {given[:4].tolist()} do not")
        if (values["owner"] < 0).any():
            raise ValueError(f"owner {values['owner'].min()} is below 0: number owners from 0 on")
        return made, given, values

    def reserve(self, owners: int, room: int) -> None:
        """Reserve room for this many owners and entries of each, so that nothing is copied until it is full."""
        old_owners, old_room = self._ids.shape
        if owners <= old_owners and room <= old_room:
            return
        owners, room = max(owners, old_owners), max(room, old_room)
        self._keys = _filled(torch.empty((owners, room, self.width), device=self.device), self._keys, self.sizes)
        self._ids = _filled(np.empty((owners, room), np.int64), self._ids, self.sizes)
        for name, column in self._columns.items():
            self._columns[name] = _filled(np.empty((owners, room), column.dtype), column, self.sizes)
        self.sizes = np.concatenate([self.sizes, np.zeros(owners - len(self.sizes), np.int64)])

    def _put(self, keys: Tensor, ids: Integers, columns: Mapping[str, NDArray[Any]]) -> None:
        """Add entries with normalised keys and ascending ids, each after its owner's entries."""
        if not len(ids):
            return
        owner = columns["owner"]
        new = np.bincount(owner, minlength=len(self.sizes))
        sizes = np.concatenate([self.sizes, np.zeros(len(new) - len(self.sizes), np.int64)])
        owners, room = self._ids.shape
        self.reserve(_enough(len(new), owners), _enough(int((sizes + new).max()), room))
        order = np.argsort(owner, kind="stable")
        place = np.empty(len(ids), np.int64)  # in its owner's row
        place[order] = np.arange(len(ids)) - np.repeat(np.cumsum(new) - new, new)
        address = owner * self._ids.shape[1] + self.sizes[owner] + place
        self._flat_keys[torch.from_numpy(address).to(self.device)] = keys
        self._ids.reshape(-1)[address] = ids
        for name, column in self._columns.items():
            column.reshape(-1)[address] = columns[name]
        self.sizes[: len(new)] += new
        self.next_id = int(ids[-1]) + 1

    def evict(self, ids: Any) -> int:
        """Remove the entries with these ids. Returns how many were removed."""
        before = len(self)
        for owner in np.flatnonzero(self.sizes):
            here = slice(0, int(self.sizes[owner]))
            kept = np.flatnonzero(~np.isin(self._ids[owner, here], ids))
            if len(kept) == self.sizes[owner]:
                continue
            self._keys[owner, : len(kept)] = self._keys[owner][torch.from_numpy(kept).to(self.device)]
            for column in (self._ids, *self._columns.values()):
                column[owner, : len(kept)] = column[owner, kept]
            self.sizes[owner] = len(kept)
        return before - len(self)

    def keep_newest(self, most: int, each_owner: bool = False) -> int:
        """Evict the oldest entries, by id, above a limit in total or per owner. Returns how many were evicted."""
        if most < 0:
            raise ValueError(f"an index cannot keep {most} entries: 0 or more")
        if not each_owner:
            ids = self.ids
            return self.evict(ids[: max(0, len(ids) - most)])
        old = [row[: max(0, size - most)] for row, size in zip(self._ids, self.sizes, strict=True)]
        return self.evict(np.concatenate([np.empty(0, np.int64), *old]))

    # ---- on disk -----------------------------------------------------------------------------------------------------

    def save(self, folder: Path, attempt: Attempt | None = None) -> None:
        """Write all entries into a folder, replacing its content; its parent must exist.

        attempt: the attempt that writes, where several may write.

        Raises:
            Superseded: a newer attempt has begun; the folder is unchanged.
        """
        before = entry_files.begin(folder, attempt)
        name, digest = self.write(folder, attempt)
        entry_files.publish(folder, self.width, self.next_id, {name: digest}, before, attempt)

    def write(self, folder: Path, attempt: Attempt | None = None) -> tuple[str, str]:
        """Write all entries of one shard into a file that does not count yet. Returns its name and hash.

        Raises:
            Superseded: a newer attempt has begun.
        """
        places = self._places()
        places = places[np.argsort(self._ids.reshape(-1)[places])]
        arrays = {name: column.reshape(-1)[places] for name, column in self._columns.items()}
        arrays["id"] = self._ids.reshape(-1)[places]
        arrays["key"] = self._flat_keys[torch.from_numpy(places).to(self.device)].cpu().numpy()
        return entry_files.write(folder, arrays, attempt)

    @classmethod
    def load(cls, folder: Path, device: torch.device | str = "cpu", shard: int = 0, of: int = 1) -> Self:
        """Read the result of `save`, bit for bit; only owners that are `shard` modulo `of`.

        Raises:
            RetrievalError: there is no index, or it is damaged.
        """
        width, next_id, parts = entry_files.read(folder, shard, of)
        found = cls(width, device)
        for arrays in parts:
            found._put(torch.from_numpy(arrays["key"]).to(found.device), arrays["id"], arrays)
        found.next_id = next_id
        return found

    @property
    def _flat_keys(self) -> Tensor:
        return self._keys.view(-1, self.width)

    def _places(self) -> Integers:
        """Addresses of all entries, owner * room + index in its row; int64 [N]."""
        room = self._ids.shape[1]
        return np.concatenate([np.empty(0, np.int64), *(i * room + np.arange(n) for i, n in enumerate(self.sizes))])


def _enough(needed: int, there: int) -> int:
    """New room: at least half more than before, so that growth is rare."""
    return there if needed <= there else max(needed, there * 3 // 2)


def _filled(new: Any, old: Any, sizes: Integers) -> Any:
    """A larger array with the old entries. Unfilled room is not copied, because it would then take memory."""
    for owner, size in enumerate(sizes.tolist()):
        new[owner, :size] = old[owner, :size]
    return new
