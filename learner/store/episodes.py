"""Finished episodes on disk: appended by many writers, memory-mapped by readers, complete or absent.

    store/
      store.json           format, columns and metadata; written first
      00007.arrow          episodes, one row each: seed, length, total, success, kind, and a list a column of its steps
      00007.texts.arrow    the texts that they name: hash, text
      00007.json           counts, and the sha256 of both files; written last: it makes the shard count

`learner.store.shards` describes file names, and which files count.

There are two formats. In format 1 a row is a whole episode. In format 2 it is a piece of one (`learner.store.pieces`),
with further columns (env, episode, first, ended, source, task): the reader joins an episode's pieces from all shards,
orders episodes by env and number, and leaves out incomplete ones.

The files are of Arrow's IPC format (arrow.apache.org/docs/format), which every Arrow library reads. A step's array is
flattened into its list; its shape is in the column's metadata. Step s of an episode holds the observation before the
action, the action, and its reward. Readers map shards into memory and copy only the requested steps, so a store may be
larger than memory; about 100 bytes a piece and 30 a text stay in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from envs.api import EnvSpec, Episodes, Field
from learner.files import Attempt, read_about, replace_file, sha256, sync_folder
from learner.store.pieces import COLUMNS, WHOLE, Pieces, Steps
from learner.store.shards import ABOUT, EPISODES, StoreError, close, digest, entry_of, forget_unfinished, shards
from llm_service.files import replacing

__all__ = [
    "ABOUT",
    "EPISODES",
    "EpisodeStore",
    "EpisodeWriter",
    "Layout",
    "Steps",
    "StoreError",
    "close",
    "digest",
    "forget_unfinished",
    "shards",
]

FORMAT, FORMAT_OF_PIECES = 1, 2
OBSERVED = "obs."  # prefix of the name of an observation field

_TEXTS = pa.schema([("hash", pa.int64()), ("text", pa.string())])


@dataclass(frozen=True)
class Layout:
    """The contents of a step."""

    fields: Mapping[str, Field]  # of an observation
    actions: tuple[str, ...]  # their names; empty for vectors
    action_shape: tuple[int, ...] = ()

    @staticmethod
    def of(spec: EnvSpec, fields: Mapping[str, Field]) -> Layout:
        """The layout of steps in a world with these observation fields."""
        return Layout(dict(fields), spec.action_names, spec.action_shape)

    @property
    def columns(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Type and shape of a step's entry in each column. Texts are stored as hashes."""
        action = np.dtype(np.int16 if self.actions else np.float32)
        columns = {"action": (action, self.action_shape), "reward": (np.dtype(np.float32), ())}
        for name, field in self.fields.items():
            columns[OBSERVED + name] = (np.dtype(np.int64) if field.kind == "text" else field.dtype, field.shape)
        return columns

    def schema(self, rows: Sequence[str]) -> pa.Schema:
        """The schema of a shard whose rows have these columns besides those of steps."""
        entries = [pa.field(name, pa.from_numpy_dtype(COLUMNS[name])) for name in rows]
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
        """Restore the result of `dump`."""
        fields = {n: Field(f["kind"], tuple(f["shape"]), f["size"]) for n, f in tree["fields"].items()}
        return Layout(fields, tuple(tree["actions"]), tuple(tree["action_shape"]))


class EpisodeWriter:
    """Adds shards to a store; creates it if there is none.

    Args:
        folder: folder of the store; its parent must exist.
        layout: what a step consists of.
        about: metadata of all episodes, JSON: the world, the player.
        attempt: the attempt that writes, where several may write.
        pieces: shards contain pieces of episodes instead of whole ones.

    Raises:
        StoreError: the folder holds a store of other episodes.
    """

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        about: Mapping[str, Any],
        attempt: Attempt | None = None,
        pieces: bool = False,
    ) -> None:
        self.folder, self.layout, self._rows = folder, layout, tuple(COLUMNS) if pieces else WHOLE
        self.about = dict(about)
        self._suffix = attempt.suffix if attempt else ""
        says: dict[str, Any] = {"format": FORMAT_OF_PIECES if pieces else FORMAT}
        says |= {"columns": self._rows} if pieces else {}
        says |= {**layout.dump(), "about": dict(about)}
        folder.mkdir(exist_ok=True)
        if (folder / ABOUT).exists():
            if _about(folder) != json.loads(json.dumps(says)):
                raise StoreError(f"{folder} holds other episodes than those that shall be added: choose another place")
            return
        replace_file(folder / ABOUT, json.dumps(says, indent=1).encode())

    @staticmethod
    def join(folder: Path, attempt: Attempt, lives: tuple[int, ...]) -> EpisodeWriter:
        """A writer that adds pieces to an existing store, whatever its metadata.

        lives: numbers that increase with each writer of the same shards in one attempt; they are compared from first to
            last. If two writers wrote a shard, readers use the later writer's, even if the earlier one wrote it last.

        Raises:
            StoreError: there is no store, or it has no pieces.
        """
        says = _about(folder)
        if says.get("columns") != list(COLUMNS):
            raise StoreError(
                f"{folder} is a store of another version, to which no pieces can be added: begin a new run"
            )
        writer = EpisodeWriter(folder, Layout.load(says), says["about"], attempt, pieces=True)
        writer._suffix = ".".join([attempt.suffix, *map(str, lives)])
        return writer

    def write(
        self, name: str, episodes: Episodes | Pieces, steps: Steps, texts: Mapping[int, str], **more: int
    ) -> dict[str, Any]:
        """Write shard `name`, completely or not at all; replaces one of that name. Returns its entry.

        A writer of an attempt writes a shard once, because a newer attempt may already refer to it. If it exists,
        nothing is written.

        episodes: E finished episodes, or pieces.
        steps: their steps, sum(length) in total.
        texts: by hash, all texts that the steps name.
        more: further values for the entry.
        """
        stem = name + self._suffix
        if self._suffix and (self.folder / f"{stem}.json").exists():
            return entry_of(self.folder / f"{stem}.json")
        first = np.concatenate([[0], np.cumsum(episodes.length, dtype=np.int64)])
        columns = [pa.array(getattr(episodes, row).astype(COLUMNS[row], copy=False)) for row in self._rows]
        values = {"action": steps.action, "reward": steps.reward}
        values |= {OBSERVED + field: steps.obs[field] for field in self.layout.fields}
        for column, (dtype, shape) in self.layout.columns.items():
            entries = np.ascontiguousarray(values[column], dtype)
            assert entries.shape == (first[-1], *shape), (column, entries.shape, first[-1], shape)
            offsets = pa.array(first * int(np.prod(shape, dtype=np.int64)))
            columns.append(pa.LargeListArray.from_arrays(offsets, pa.array(entries.ravel())))
        hashes = sorted(texts)
        told = [pa.array(hashes, pa.int64()), pa.array([texts[key] for key in hashes], pa.string())]
        schema = self.layout.schema(self._rows)
        parts = {
            f"{stem}.texts.arrow": pa.record_batch(told, schema=_TEXTS),
            f"{stem}.arrow": pa.record_batch(columns, schema=schema),
        }
        (self.folder / f"{stem}.json").unlink(missing_ok=True)
        for file, part in parts.items():
            _write(self.folder / file, part)
        sync_folder(self.folder)
        ended = int(episodes.ended.sum()) if isinstance(episodes, Pieces) else len(episodes)
        entry: dict[str, Any] = {"episodes": ended, "steps": int(first[-1]), **more}
        entry["sha256"] = {file: sha256(self.folder / file) for file in parts}
        replace_file(self.folder / f"{stem}.json", json.dumps(entry, indent=1).encode())
        sync_folder(self.folder)
        return entry


class EpisodeStore:
    """The complete episodes of a folder, for reading: those whose shards exist now.

    Attributes:
        layout, about: as written.
        seed, length, total, success, kind: [E], of each episode.
        env, episode: [E], env of the episode, and its number there; in stores of whole episodes, all are of env 0,
            numbered 0, 1, ...
        source: [E], the training step at which it ended; 0 if unknown. In learning histories: the number of steps that
            the learner of its task had taken by then.
        task: [E], its task in the world; 0 if unknown.
        first: int64 [E + 1], index of each episode's first step, and the total number of steps.
        unfinished: number of incomplete episodes, which are left out.

    Raises:
        StoreError: there is no store, or a part of it is damaged or has another format.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        says = _about(self.folder)
        self.layout, self.about, names = Layout.load(says), says["about"], says.get("columns", WHOLE)
        entries = shards(self.folder)
        self._shards = [_Shard(self.folder, name, entry, self.layout, names) for name, entry in entries.items()]
        found = {n: [np.zeros(0, COLUMNS[n]), *(shard.rows[n] for shard in self._shards)] for n in names}
        pieces = Pieces.of({name: np.concatenate(columns) for name, columns in found.items()})
        order, last, self.unfinished = pieces.joined()
        for name in ("seed", "total", "success", "kind", "env", "episode", "source", "task"):
            setattr(self, name, getattr(pieces, name)[last])
        self.length = pieces.first[last] + pieces.length[last]
        self.first = np.concatenate([[0], np.cumsum(self.length, dtype=np.int64)])
        self._find(pieces.length, order)
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
    env: NDArray[np.int32]
    episode: NDArray[np.int64]
    source: NDArray[np.int64]
    task: NDArray[np.int64]

    def _find(self, length: NDArray[np.int32], order: NDArray[np.intp]) -> None:
        """Record where the steps of pieces are, joined in this order, as runs of rows in one shard each."""
        counts = [len(shard.rows["length"]) for shard in self._shards]
        begins = np.concatenate([[0], np.cumsum(length, dtype=np.int64)])  # of pieces, over all shards
        of_shard = begins[np.cumsum([0, *counts])]
        shard = np.repeat(np.arange(len(counts)), counts)[order]
        row, length = (begins[:-1] - np.repeat(of_shard[:-1], counts))[order], length[order]
        new = np.ones(len(order), np.bool_)
        new[1:] = (shard[1:] != shard[:-1]) | (row[1:] != row[:-1] + length[:-1])
        self._holder, self._row = shard[new], row[new]
        self._begins = (np.cumsum(length, dtype=np.int64) - length)[new]

    def __len__(self) -> int:
        return len(self.seed)

    @property
    def steps(self) -> int:
        """Of all episodes."""
        return int(self.first[-1])

    def rows(self, index: NDArray[np.int64]) -> Steps:
        """Copies of the steps `index` [B], numbered over all episodes as in `first`.

        Raises:
            IndexError: there is no such step.
        """
        if len(index) and (index.min() < 0 or index.max() >= self.steps):
            raise IndexError(f"steps {index.min()} to {index.max()} of a store of {self.steps}")
        run = np.searchsorted(self._begins, index, side="right") - 1
        holder, row = self._holder[run], index - self._begins[run] + self._row[run]
        columns = {n: np.empty((len(index), *shape), dtype) for n, (dtype, shape) in self.layout.columns.items()}
        for shard in np.unique(holder).tolist():
            at = np.flatnonzero(holder == shard)
            for name, column in columns.items():
                column[at] = self._shards[shard].columns[name][row[at]]
        action, reward = columns.pop("action"), columns.pop("reward")
        obs = {name.removeprefix(OBSERVED): column for name, column in columns.items()}
        return Steps(obs, action.astype(np.int64) if self.layout.actions else action, reward)

    def texts(self, hashes: NDArray[np.int64]) -> list[str]:
        """The texts with these hashes [U].

        Raises:
            StoreError: one is missing.
        """
        found = np.searchsorted(self._hashes, hashes).clip(max=max(0, len(self._hashes) - 1))
        if len(hashes) and (not len(self._hashes) or (self._hashes[found] != hashes).any()):
            raise StoreError(f"{self.folder} is damaged: it names texts that it does not hold; make it anew")
        told = zip(self._told_by[found].tolist(), self._told_at[found].tolist(), strict=True)
        return [self._shards[shard].texts[row].as_py() for shard, row in told]


class _Shard:
    """One shard, mapped and verified: `rows` by the given names, and `columns`, views [steps, ...] of the file."""

    def __init__(self, folder: Path, name: str, entry: Mapping[str, Any], layout: Layout, names: Sequence[str]) -> None:
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
        if not episodes.schema.equals(layout.schema(names), check_metadata=True) or not told.schema.equals(_TEXTS):
            raise StoreError(f"shard {place} has other columns than {ABOUT} says: it is of another store")
        self.rows = {n: np.asarray(episodes.column(n).to_numpy(zero_copy_only=False)) for n in names}
        if self.rows["length"].sum() != self.steps:
            raise StoreError(f"shard {place} is damaged: its episodes have not {self.steps} steps; make it anew")
        self.columns = {
            column: episodes.column(column).values.to_numpy(zero_copy_only=True).reshape(self.steps, *shape)
            for column, (_, shape) in layout.columns.items()
        }
        self.hashes, self.texts = told.column("hash").to_numpy(), told.column("text")


def _about(folder: Path) -> dict[str, Any]:
    says = read_about(folder / ABOUT, "store of episodes", (FORMAT, FORMAT_OF_PIECES), ("fields", "about"), StoreError)
    if later := [name for name in says.get("columns", ()) if name not in COLUMNS]:
        raise StoreError(f"{folder} has a column {later[0]!r} that this version does not know: use a newer one")
    return says


def _map(path: Path) -> pa.RecordBatch:
    """The rows of a memory-mapped file. The mapping lives as long as they do; no file stays open."""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).get_batch(0)


def _write(path: Path, rows: pa.RecordBatch) -> None:
    with replacing(path) as temporary, open(temporary, "wb") as file:
        with pa.ipc.new_file(file, rows.schema) as sink:
            sink.write_batch(rows)
        file.flush()
        os.fsync(file.fileno())
