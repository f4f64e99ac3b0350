"""Columns of rows in a folder: raw arrays mapped from files, their schema in JSON, and the texts that they name.

    schema.json         lanes, rows per lane, generation, and name, type and shape of every column, in order
    04-obs.view.raw     column 4 of these, [lanes * rows, *shape] in C order
    reached.raw         int64 [lanes], number of rows of each lane that were ever written, or begun
    texts.jsonl         line i is the text with id i

Files are mapped, so written rows survive the process at once; `flush` makes them survive the machine. Their space is
reserved on creation, because a mapped write on a full disk kills the process.

`open` starts over and counts its starts as generations. A checkpoint names the generation of its rows, so rows of
another one are never mistaken for them. `find` checks beforehand whether everything is there; it changes nothing.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.text import TextTable
from learner.files import replace_file, sync_folder
from llm_service.errors import UsageError

Layout = dict[str, tuple[str, tuple[int, ...]]]  # column -> type, shape of one row

FORMAT = 2
REACHED = "reached.raw"
TEXTS = "texts.jsonl"


class ReplayError(UsageError):
    """A replay cannot be stored or continued. The message is one sentence that says what to do."""


class Columns:
    """Arrays [lanes * rows, ...] by name, in a folder or (None) in memory."""

    def __init__(self, lanes: int, rows: int, folder: Path | None) -> None:
        self.lanes, self.length, self.folder = lanes, rows, folder
        self.generation = 0  # how often columns were created for the run; 0: never
        self.reached: NDArray[np.int64] = np.zeros(lanes, np.int64)
        self._arrays: dict[str, NDArray[Any]] = {}
        self._maps: list[np.memmap[Any, Any]] = []
        self.layout: Layout = {}
        self._texts = self._texts_end = 0  # number of texts in the file, and its bytes

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def open(self, layout: Layout) -> None:
        """Create the columns, empty, replacing those in the folder. Does nothing if they are open.

        Raises:
            ReplayError: other columns are open, or there is no room.
        """
        if self._arrays:
            return self.assert_alike(self.layout, layout)
        self.generation += 1
        if self.folder is not None:
            self._make(self.folder, layout)
        self._map(layout)

    def find(self, generation: int, texts: int) -> Layout | None:
        """The folder's columns of a generation, with at least `texts` texts; None if it has none of that generation.

        Raises:
            ReplayError: they have other lanes or another length, or a part is missing.
        """
        path = None if self.folder is None else self.folder / "schema.json"
        if path is None or not path.exists():
            return None
        try:
            schema = json.loads(path.read_bytes())
            if schema["format"] != FORMAT:
                raise ReplayError(f"{self.folder} is of another version of this code: use that one{self._or_afresh}")
            if schema["generation"] != generation:
                return None
            lanes, rows = schema["lanes"], schema["rows"]
            layout = {name: (kind, tuple(shape)) for name, kind, shape in schema["columns"]}
        except (ValueError, KeyError, TypeError):
            raise self._damaged("schema.json is not whole") from None
        if (lanes, rows) != (self.lanes, self.length):
            raise ReplayError(
                f"{self.folder} keeps {lanes} envs of {rows:,} rows each, not {self.lanes} of {self.length:,}: resume "
                f"with the learner.dqn.capacity that the run had{self._or_afresh}"
            )
        for name, size in self._files(layout).items():
            file = path.with_name(name)
            found = file.stat().st_size if file.exists() else 0
            if found != size:
                raise self._damaged(f"{name} has {found:,} bytes, not {size:,}")
        self._read_texts(texts)
        return layout

    def assert_alike(self, kept: Layout, coming: Layout) -> None:
        """
        Raises:
            ReplayError: the stored columns are not those that chunks will fill.
        """
        if differ := [name for name in kept | coming if kept.get(name) != coming.get(name)]:
            raise ReplayError(
                f"the replay keeps other columns than chunks now have ({', '.join(differ[:3])} differ): resume with "
                f"the env, goals, intrinsic and policy.reads that the run had{self._or_afresh}"
            )

    def reopen(self, layout: Layout, generation: int, texts: int) -> list[str]:
        """Use the columns that `find` returned. Returns the first `texts` texts.

        Later texts are removed, so that ids are assigned as they were the first time.
        """
        assert self.folder is not None
        self.generation = generation
        self._map(layout)
        found, self._texts_end = self._read_texts(texts)
        self._texts = texts
        os.truncate(self.folder / TEXTS, self._texts_end)
        return found

    def reach(self, lane: NDArray[np.integer], count: NDArray[np.int64], durable: bool) -> None:
        """Record that rows of these lanes up to number `count` [n] are about to be written.

        durable: wait until this record is on disk.
        """
        self.reached[lane] = np.maximum(self.reached[lane], count)
        if durable and self._maps:
            self._maps[-1].flush()

    def flush(self, texts: TextTable) -> None:
        """Write everything that is not on disk yet, including texts, and wait for the disk."""
        if self.folder is None or not self._arrays:
            return
        new = texts.texts(range(self._texts, len(texts)))
        content = "".join(json.dumps(text) + "\n" for text in new).encode()
        with open(self.folder / TEXTS, "r+b") as file:
            file.truncate(self._texts_end)  # an earlier attempt that failed leaves a part
            file.seek(self._texts_end)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self._texts, self._texts_end = len(texts), self._texts_end + len(content)
        for mapped in self._maps:
            mapped.flush()

    # ---- files --------------------------------------------------------------------------------------------------

    def _make(self, folder: Path, layout: Layout) -> None:
        """Create the files of these columns, and remove everything else in the folder; the schema is written last."""
        files = self._files(layout)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        needed, free = sum(files.values()), shutil.disk_usage(folder).free
        try:
            if needed > free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            for name, size in files.items():
                _reserve(folder / name, size)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise ReplayError(
                f"no room for a replay of {_size(needed)} in {folder}, where {_size(free)} are free ({error.strerror}):"
                " lower learner.dqn.capacity, choose another run.folder, or learner.dqn.keep=memory"
            ) from None
        (folder / TEXTS).touch()
        columns = [[name, kind, list(shape)] for name, (kind, shape) in layout.items()]
        schema = {"format": FORMAT, "generation": self.generation, "lanes": self.lanes, "rows": self.length}
        replace_file(folder / "schema.json", json.dumps(schema | {"columns": columns}, indent=1).encode())
        for made in (folder, *folder.parents[:2]):  # a file is durable only if its parent folders are
            sync_folder(made)

    def _map(self, layout: Layout) -> None:
        self.layout, self._maps = layout, []
        files = list(self._files(layout))
        for file, (name, (kind, shape)) in zip(files, layout.items(), strict=False):  # the last is `reached`
            self._arrays[name] = self._array(file, kind, (self.lanes * self.length, *shape))
        self.reached = self._array(REACHED, "int64", (self.lanes,))

    def _array(self, file: str, kind: str, shape: tuple[int, ...]) -> NDArray[Any]:
        if self.folder is None:
            return np.zeros(shape, kind)
        mapped: np.memmap[Any, Any] = np.memmap(self.folder / file, kind, "r+", shape=shape)
        self._maps.append(mapped)
        return np.asarray(mapped)

    def _files(self, layout: Layout) -> dict[str, int]:
        """Bytes by file name, in the order of the columns. The number makes names unique, the rest is for readers."""
        files: dict[str, int] = {}
        for number, (name, (kind, shape)) in enumerate(layout.items()):
            readable = re.sub(r"[^a-z0-9.]", "_", name.lower())[:40]
            count = self.lanes * self.length * int(np.prod(shape, dtype=np.int64))
            files[f"{number:02d}-{readable}.raw"] = count * np.dtype(kind).itemsize
        return files | {REACHED: 8 * self.lanes}

    def _read_texts(self, count: int) -> tuple[list[str], int]:
        """The first `count` texts of the file, and the position where they end.

        Raises:
            ReplayError: there are fewer, or two are equal.
        """
        assert self.folder is not None
        file = self.folder / TEXTS
        lines = (file.read_bytes() if file.exists() else b"").splitlines(keepends=True)[:count]
        try:
            texts = [json.loads(line) for line in lines if line.endswith(b"\n")]  # the last may be cut off
        except ValueError:
            texts = []
        if len(set(texts)) < count:
            raise self._damaged(f"{TEXTS} does not begin with the {count:,} texts that the checkpoint names")
        return texts, sum(map(len, lines))

    def _damaged(self, what: str) -> ReplayError:
        return ReplayError(f"the replay in {self.folder} is damaged, {what}: restore the folder{self._or_afresh}")

    @property
    def _or_afresh(self) -> str:
        """The end of a sentence that says what to do."""
        return "" if self.folder is None else f", or delete {self.folder} to go on with an empty replay"


def _reserve(path: Path, size: int) -> None:
    """Create a file of this many zeros, with reserved disk space wherever the file system supports it."""
    with open(path, "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            file.truncate(size)


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
