"""Finished episodes on disk: appended by many writers, read where they lie, complete or absent.

    store/
      store.json           what all of it is: format, columns, and what its maker says of it; written first
      00007.arrow          episodes, one row each: seed, length, total, success, kind, and a list a column of its steps
      00007.texts.arrow    the texts that they name: hash, text
      00007.json           counts, and the sha256 of both files; written last: with it, the shard is there

A shard has one writer, and its name is the writer's own, so writers need not know of each other; shards are read in
order of their names. Where several attempts at one run may write the store (`learner.files`), files also carry the
attempt's number, 00007-a0002.arrow: no attempt touches another's, and of each shard the newest attempt's is read.

The files are of Arrow's IPC format (arrow.apache.org/docs/format), which every Arrow library reads. A step's array is
flattened into its list; its shape is in the column's metadata. Step s of an episode holds what was observed before the
action, the action, and the reward for it. Readers map shards into memory and copy the steps that are asked for: a store
may be larger than memory, but for some 30 bytes an episode and a text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from envs.api import EnvSpec, Episodes, Field, Observation
from learner.files import Attempt, read_about, replace_file, sha256, sync_folder
from llm_service.errors import UsageError

FORMAT = 1
ABOUT = "store.json"
MANIFEST = "manifest.json"  # of the stage whose artifact it is
OBSERVED = "obs."  # before the name of an observation field

_EPISODE: dict[str, np.dtype[Any]] = {
    "seed": np.dtype(np.int64),
    "length": np.dtype(np.int32),
    "total": np.dtype(np.float32),
    "success": np.dtype(np.bool_),
    "kind": np.dtype(np.int16),
}
_FILE = re.compile(r"\.?(?P<name>.+?)(-a(?P<attempt>\d+))?(?P<kind>(\.texts)?\.arrow|\.json)(\.[0-9a-f]+)?")
_TEXTS = pa.schema([("hash", pa.int64()), ("text", pa.string())])


class StoreError(UsageError):
    """A store cannot be read or written as asked. The message is one sentence that says what to do."""


@dataclass(frozen=True)
class Layout:
    """What a step consists of."""

    fields: Mapping[str, Field]  # of an observation
    actions: tuple[str, ...]  # their names; empty for vectors
    action_shape: tuple[int, ...] = ()

    @staticmethod
    def of(spec: EnvSpec, fields: Mapping[str, Field]) -> Layout:
        """Steps in a world of which `fields` are observed."""
        return Layout(dict(fields), spec.action_names, spec.action_shape)

    @property
    def columns(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Type and shape of a step's entry in each column. A text is its hash."""
        action = np.dtype(np.int16 if self.actions else np.float32)
        columns = {"action": (action, self.action_shape), "reward": (np.dtype(np.float32), ())}
        for name, field in self.fields.items():
            columns[OBSERVED + name] = (np.dtype(np.int64) if field.kind == "text" else field.dtype, field.shape)
        return columns

    @property
    def schema(self) -> pa.Schema:
        """Of a shard's episodes."""
        entries = [pa.field(name, pa.from_numpy_dtype(dtype)) for name, dtype in _EPISODE.items()]
        for name, (dtype, shape) in self.columns.items():
            values = pa.large_list(pa.from_numpy_dtype(dtype))
            entries.append(pa.field(name, values, metadata={"shape": json.dumps(shape)}))
        return pa.schema(entries)

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        fields = {n: {"kind": f.kind, "shape": list(f.shape), "size": f.size} for n, f in self.fields.items()}
        return {"fields": fields, "actions": list(self.actions), "action_shape": list(self.action_shape)}

    @staticmethod
    def load(tree: Mapping[str, Any]) -> Layout:
        """What `dump` gave."""
        fields = {n: Field(f["kind"], tuple(f["shape"]), f["size"]) for n, f in tree["fields"].items()}
        return Layout(fields, tuple(tree["actions"]), tuple(tree["action_shape"]))


@dataclass
class Steps:
    """S steps; of E whole episodes, one after the other, where a shard is made of them."""

    obs: Observation  # [S, ...]; a text is its 64-bit hash
    action: NDArray[Any]  # [S, ...]
    reward: NDArray[np.float32]  # [S]


class EpisodeWriter:
    """Adds shards to a store, which it makes if there is none.

    Args:
        folder: of the store; its parent exists.
        layout: what a step consists of.
        about: what else is to be known of all episodes: the world, who played. JSON.
        attempt: in whose name, where several may write the store.

    Raises:
        StoreError: the folder holds a store of other episodes.
    """

    def __init__(self, folder: Path, layout: Layout, about: Mapping[str, Any], attempt: Attempt | None = None) -> None:
        self.folder, self.layout, self.attempt = folder, layout, attempt
        says = {"format": FORMAT, **layout.dump(), "about": dict(about)}
        folder.mkdir(exist_ok=True)
        if (folder / ABOUT).exists():
            if _about(folder) != json.loads(json.dumps(says)):
                raise StoreError(f"{folder} holds other episodes than those that shall be added: choose another place")
            return
        replace_file(folder / ABOUT, json.dumps(says, indent=1).encode())

    def write(
        self, name: str, episodes: Episodes, steps: Steps, texts: Mapping[int, str], **more: int
    ) -> dict[str, Any]:
        """Write shard `name`, in place of one of that name: all of it or none. Returns its entry.

        An attempt writes a shard once: a newer one may count on it already. If it is there, that is all.

        episodes: E finished ones.
        steps: of them, sum(length) in all.
        texts: by hash, all that the steps name.
        more: kept in the entry.
        """
        stem = name + (self.attempt.suffix if self.attempt else "")
        if self.attempt and (self.folder / f"{stem}.json").exists():
            return _entry(self.folder / f"{stem}.json")
        first = np.concatenate([[0], np.cumsum(episodes.length, dtype=np.int64)])
        columns: list[pa.Array] = [pa.array(getattr(episodes, n).astype(t, copy=False)) for n, t in _EPISODE.items()]
        values = {"action": steps.action, "reward": steps.reward}
        values |= {OBSERVED + field: steps.obs[field] for field in self.layout.fields}
        for column, (dtype, shape) in self.layout.columns.items():
            entries = np.ascontiguousarray(values[column], dtype)
            assert entries.shape == (first[-1], *shape), (column, entries.shape, first[-1], shape)
            offsets = pa.array(first * int(np.prod(shape, dtype=np.int64)))
            columns.append(pa.LargeListArray.from_arrays(offsets, pa.array(entries.ravel())))
        hashes = sorted(texts)
        told = [pa.array(hashes, pa.int64()), pa.array([texts[key] for key in hashes], pa.string())]
        schema = self.layout.schema
        parts = {
            f"{stem}.texts.arrow": pa.record_batch(told, schema=_TEXTS),
            f"{stem}.arrow": pa.record_batch(columns, schema=schema),
        }
        (self.folder / f"{stem}.json").unlink(missing_ok=True)
        for file, part in parts.items():
            _write(self.folder / file, part)
        sync_folder(self.folder)
        entry: dict[str, Any] = {"episodes": len(episodes), "steps": int(first[-1]), **more}
        entry["sha256"] = {file: sha256(self.folder / file) for file in parts}
        replace_file(self.folder / f"{stem}.json", json.dumps(entry, indent=1).encode())
        sync_folder(self.folder)
        return entry


class EpisodeStore:
    """The episodes of a folder, for reading: those whose shards are there now.

    Attributes:
        layout, about: as their writers said.
        seed, length, total, success, kind: [E], of each episode.
        first: int64 [E + 1], the number of each episode's first step, and that of all steps.

    Raises:
        StoreError: there is no store, or a part of it is damaged or of another kind.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        says = _about(self.folder)
        self.layout, self.about = Layout.load(says), says["about"]
        entries = shards(self.folder)
        self._shards = [_Shard(self.folder, name, entry, self.layout) for name, entry in entries.items()]
        self._begins = np.cumsum([0, *(shard.steps for shard in self._shards)])
        for name, dtype in _EPISODE.items():
            column = np.concatenate([np.zeros(0, dtype), *(shard.episodes[name] for shard in self._shards)])
            setattr(self, name, column)
        self.first = np.concatenate([[0], np.cumsum(self.length, dtype=np.int64)])
        hashes = [np.zeros(0, np.int64), *(shard.hashes for shard in self._shards)]
        self._hashes, at = np.unique(np.concatenate(hashes), return_index=True)
        starts = np.cumsum([0, *(len(part) for part in hashes[1:])])
        self._told_by = np.searchsorted(starts, at, side="right") - 1
        self._told_at = at - starts[self._told_by]

    seed: NDArray[np.int64]
    length: NDArray[np.int32]
    total: NDArray[np.float32]
    success: NDArray[np.bool_]
    kind: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.seed)

    @property
    def steps(self) -> int:
        """Of all episodes."""
        return int(self.first[-1])

    def rows(self, index: NDArray[np.int64]) -> Steps:
        """Copies of the steps `index` [B], numbered through all episodes as `first` says."""
        holder = np.searchsorted(self._begins, index, side="right") - 1
        columns = {n: np.empty((len(index), *shape), dtype) for n, (dtype, shape) in self.layout.columns.items()}
        for shard in np.unique(holder).tolist():
            at = np.flatnonzero(holder == shard)
            for name, column in columns.items():
                column[at] = self._shards[shard].columns[name][index[at] - self._begins[shard]]
        action, reward = columns.pop("action"), columns.pop("reward")
        obs = {name.removeprefix(OBSERVED): column for name, column in columns.items()}
        return Steps(obs, action.astype(np.int64) if self.layout.actions else action, reward)

    def texts(self, hashes: NDArray[np.int64]) -> list[str]:
        """The texts with these hashes [U].

        Raises:
            StoreError: one is not there.
        """
        found = np.searchsorted(self._hashes, hashes).clip(max=max(0, len(self._hashes) - 1))
        if len(hashes) and (not len(self._hashes) or (self._hashes[found] != hashes).any()):
            raise StoreError(f"{self.folder} is damaged: it names texts that it does not hold; make it anew")
        told = zip(self._told_by[found].tolist(), self._told_at[found].tolist(), strict=True)
        return [self._shards[shard].texts[row].as_py() for shard, row in told]


class _Shard:
    """One shard, mapped and verified. `columns` are views [steps, ...] of the file."""

    def __init__(self, folder: Path, name: str, entry: Mapping[str, Any], layout: Layout) -> None:
        place = folder / name
        try:
            stem = next((file for file in entry["sha256"] if file.endswith(".texts.arrow")), name)
            stem = stem.removesuffix(".texts.arrow")
            for file, expected in entry["sha256"].items():
                if sha256(folder / file) != expected:
                    raise StoreError(f"{folder / file} is damaged: its hash differs from that in {stem}.json")
            episodes, told = _map(folder / f"{stem}.arrow"), _map(folder / f"{stem}.texts.arrow")
            self.steps = int(entry["steps"])
        except (OSError, KeyError, TypeError, pa.ArrowException) as error:
            raise StoreError(f"shard {place} is damaged: {error}; make it anew") from None
        if not episodes.schema.equals(layout.schema, check_metadata=True) or not told.schema.equals(_TEXTS):
            raise StoreError(f"shard {place} has other columns than {ABOUT} says: it is of another store")
        self.episodes = {n: np.asarray(episodes.column(n).to_numpy(zero_copy_only=False)) for n in _EPISODE}
        if self.episodes["length"].sum() != self.steps:
            raise StoreError(f"shard {place} is damaged: its episodes have not {self.steps} steps; make it anew")
        self.columns = {
            column: episodes.column(column).values.to_numpy(zero_copy_only=True).reshape(self.steps, *shape)
            for column, (_, shape) in layout.columns.items()
        }
        self.hashes, self.texts = told.column("hash").to_numpy(), told.column("text")


def _about(folder: Path) -> dict[str, Any]:
    return read_about(folder / ABOUT, "store of episodes", FORMAT, (), StoreError)


def shards(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries of all shards that are there, in order of their names: `episodes`, `steps`, `sha256`, and `more`."""
    return {name: _entry(path) for name, path in _entries(folder).items()}


def digest(folder: Path) -> str:
    """Hash of what a store holds: equal contents in equal shards, equal hashes, whichever attempts wrote them."""
    hashes = [
        sorted((_parts(file)[0] + _parts(file)[2], sha256) for file, sha256 in entry["sha256"].items())
        for entry in shards(folder).values()
    ]
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


def forget_unfinished(folder: Path, attempt: Attempt | None = None) -> dict[str, dict[str, Any]]:
    """Remove what killed writers left, and what older attempts wrote in vain. Returns what `shards` then would.

    Only older attempts may be writing; a shard that one of them ends just now does not count.

    attempt: of whoever removes; what is of a newer one stays.

    Raises:
        Superseded: a newer one has begun.
    """
    if attempt:
        attempt.assert_newest()
    paths = _entries(folder)
    entries = {name: _entry(path) for name, path in paths.items()}
    kept = {ABOUT, MANIFEST} | {path.name for path in paths.values()}
    kept |= {file for entry in entries.values() for file in entry["sha256"]}
    for path in [*folder.glob("*.arrow"), *folder.glob(".*"), *folder.glob("*.json")]:
        if path.name not in kept and (attempt is None or _parts(path.name)[1] <= attempt.number):
            path.unlink(missing_ok=True)
    return entries


def _entries(folder: Path) -> dict[str, Path]:
    """The file of each shard's entry, of the newest attempt that wrote the shard, in order of the shards' names."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: _parts(path.name)[:2]):
        if path.name not in (ABOUT, MANIFEST) and not path.name.startswith("."):
            found[_parts(path.name)[0]] = path
    return found


def _entry(path: Path) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = json.loads(path.read_bytes())
        entry["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged: {error}; make it anew") from None
    return entry


def _parts(file: str) -> tuple[str, int, str]:
    """What a file's name says: the shard, the number of the attempt or 0, and the kind, as in `.texts.arrow`."""
    found = _FILE.fullmatch(file)
    return (found["name"], int(found["attempt"] or 0), found["kind"]) if found else (file, 0, "")


def _map(path: Path) -> pa.RecordBatch:
    """The rows of a file, where they lie. The mapping lives as long as they do; no file stays open."""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).get_batch(0)


def _write(path: Path, rows: pa.RecordBatch) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        with pa.ipc.new_file(file, rows.schema) as sink:
            sink.write_batch(rows)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
