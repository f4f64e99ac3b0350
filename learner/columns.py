"""Columns of rows in a folder: raw arrays mapped from files, what they are in JSON, and the texts they name.

    schema.json   lanes, rows of each, and of every column its name, type and shape
    <name>.raw    a column, [lanes * rows, *shape] in C order
    reached.raw   int64 [lanes], how many rows of each lane were ever written, or begun to be
    texts.jsonl   line i is the text with id i

Files are mapped, so what was written survives the process at once; `flush` makes it survive the machine. Nothing is
read before `reopen`, and `open` begins anew: what an earlier learner left is used only by one that has its checkpoint.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.text import TextTable

Layout = dict[str, tuple[str, tuple[int, ...]]]  # column -> type, shape of one row

FORMAT = 1


class Columns:
    """Arrays [lanes * rows, ...] by name, in a folder or (None) in memory."""

    def __init__(self, lanes: int, rows: int, folder: Path | None) -> None:
        self.lanes, self.length, self.folder = lanes, rows, folder
        self.reached: NDArray[np.int64] = np.zeros(lanes, np.int64)
        self._arrays: dict[str, NDArray[Any]] = {}
        self._maps: list[np.memmap[Any, Any]] = []
        self._layout: Layout = {}
        self._texts_written = 0

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    @property
    def names(self) -> list[str]:
        return list(self._arrays)

    def open(self, layout: Layout) -> None:
        """Make the columns, empty; nothing if they are there.

        Raises:
            ValueError: they are there, and are others.
        """
        if not self._arrays:
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                (self.folder / "texts.jsonl").write_bytes(b"")
                (self.folder / "schema.json").write_text(json.dumps(self._schema(layout), indent=1))
            self._map(layout, "w+")
        elif layout != self._layout:
            differ = sorted(name for name in layout.keys() | self._layout if layout.get(name) != self._layout.get(name))
            raise ValueError(f"the replay keeps other columns than this chunk has: {', '.join(differ[:3])} differ")

    def reopen(self) -> bool:
        """Use the columns that the folder holds; False if there are none.

        Raises:
            ValueError: they are of other lanes, or of another length.
        """
        if self.folder is None or not (self.folder / "schema.json").exists():
            return False
        schema = json.loads((self.folder / "schema.json").read_text())
        layout = {name: (kind, tuple(shape)) for name, kind, shape in schema["columns"]}
        if schema != self._schema(layout):
            raise ValueError(
                f"{self.folder} keeps {schema['lanes']} lanes of {schema['rows']} rows, not {self.lanes} of "
                f"{self.length}: the capacity of a replay cannot change within a run"
            )
        self._map(layout, "r+")
        return True

    def _schema(self, layout: Layout) -> dict[str, Any]:
        columns = [[name, kind, list(shape)] for name, (kind, shape) in layout.items()]
        return {"format": FORMAT, "lanes": self.lanes, "rows": self.length, "columns": columns}

    def _map(self, layout: Layout, mode: str) -> None:
        self._layout, self._maps = layout, []
        shapes = {name: (kind, (self.lanes * self.length, *shape)) for name, (kind, shape) in layout.items()}
        self._arrays = {name: self._array(name, *what, mode) for name, what in shapes.items()}
        self.reached = self._array("reached", "int64", (self.lanes,), mode)

    def _array(self, name: str, kind: str, shape: tuple[int, ...], mode: str) -> NDArray[Any]:
        if self.folder is None:
            return np.zeros(shape, kind)
        mapped: np.memmap[Any, Any] = np.memmap(self.folder / f"{name}.raw", kind, mode, shape=shape)  # type: ignore[call-overload]
        self._maps.append(mapped)
        return np.asarray(mapped)

    def reach(self, lane: NDArray[np.integer], count: NDArray[np.int64]) -> None:
        """Rows of these lanes up to number `count` [n] are about to be written."""
        self.reached[lane] = np.maximum(self.reached[lane], count)

    def flush(self, texts: TextTable) -> None:
        """Write what is not on disk yet, texts too, and wait for the disk."""
        if self.folder is None or not self._arrays:
            return
        with open(self.folder / "texts.jsonl", "a", encoding="utf-8") as file:
            new = range(self._texts_written, len(texts))
            file.writelines(json.dumps(text) + "\n" for text in texts.texts(new))
            file.flush()
            os.fsync(file.fileno())
        self._texts_written = len(texts)
        for mapped in self._maps:
            mapped.flush()

    def restore_texts(self, count: int) -> list[str]:
        """The first `count` texts; later ones are forgotten, so that ids will be given as they were the first time."""
        assert self.folder is not None
        path = self.folder / "texts.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)[:count]
        with open(path, "r+b") as file:
            file.truncate(sum(map(len, lines)))
        self._texts_written = len(lines)
        return [json.loads(line) for line in lines]
