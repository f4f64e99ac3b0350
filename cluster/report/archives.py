"""What a search found, for the report and for tables: its archives and grids, what was said of their behaviours, and
which of them are learned from.

    stages/search/archive-*, grid-*   ──> Collection: descriptors, qualities, generations
    stages/merge, describe, split     ──> Told: of each behaviour its id there, its true texts, its part

A stage lies in the run's folder, or in that of the run which `from` names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from cluster.report.deployed import find_stage
from cluster.runs.run_data import Run
from envs import navigation
from learner.behaviours.gather import ARCHIVE, COPY
from learner.behaviours.table import PARTS, Behaviours
from learner.search import descriptors, qualities
from learner.search.descriptors import Descriptor
from learner.search.qualities import Quality
from learner.search.quality_diversity import Tally
from learner.search.rollout import play
from learner.store.archive import Archive
from learner.store.episodes import EpisodeStore
from learner.store.owned import index_of
from llm_service.errors import UsageError

BLOCK = 1024  # behaviours that are played at once


@dataclass(frozen=True)
class Space:
    """What a search looked for."""

    descriptor_name: str = descriptors.DEFAULT
    quality_name: str = qualities.DEFAULT

    @property
    def descriptor(self) -> Descriptor:
        return descriptors.descriptor(self.descriptor_name)

    @property
    def quality(self) -> Quality:
        return qualities.quality(self.quality_name)

    def tally(self, house: navigation.Map) -> Tally:
        """An empty one."""
        chosen = self.descriptor
        return Tally(chosen.cells, chosen.bounds(house), chosen.reachable(house), self.quality.lowest)

    def measured(
        self, house: navigation.Map, table: Behaviours, length: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """Descriptors [E, D] and qualities [E] of E behaviours, each from its own start. Those that a table does not
        hold are computed from replays, at some 7,000 a second."""
        if (self.descriptor_name, self.quality_name) == (descriptors.DEFAULT, qualities.DEFAULT):
            return table.descriptor.astype(np.float64), -table.effort
        found, value = [], []
        for begin in range(0, len(table), BLOCK):
            rows = slice(begin, begin + BLOCK)
            rollout = play(house, table.weights[rows], length, table.start[rows])
            found.append(self.descriptor.describe(rollout))
            value.append(self.quality.of(rollout))
        return np.concatenate(found), np.concatenate(value)


@dataclass(frozen=True)
class Collection:
    """An archive or a grid of N behaviours."""

    name: str  # of its folder
    archive: Archive
    space: Space
    quality: NDArray[np.float32]  # [N]
    effort: NDArray[np.float32]  # [N]
    generation: NDArray[np.int32]  # [N]

    @property
    def is_grid(self) -> bool:
        return self.name.startswith("grid-")

    @property
    def label(self) -> str:
        """What tells it from the others."""
        return f"{'grid, ' if self.is_grid else ''}threshold {self.archive.about.get('threshold', '?')}"


@dataclass(frozen=True)
class Told:
    """What later stages made of the behaviours of a collection, by their ids in its archive; empty without stages."""

    merged: Mapping[int, int]  # the id there
    texts: Mapping[int, list[str]]  # true ones only
    part: Mapping[int, str]  # one of PARTS


def read(run: Run) -> list[Collection]:
    """The archives, then the grids, of a run's search; those without behaviours are left out.

    Raises:
        UsageError: one is damaged, or of a descriptor or a quality that is not here.
    """
    folder = find_stage(run, "search")
    places = sorted(folder.iterdir(), key=lambda p: (len(p.name), p.name)) if folder else []
    return [
        collection
        for kind in ("archive-", "grid-")
        for place in places
        if place.name.startswith(kind) and index_of(place) and len((collection := _collection(place)).archive)
    ]


def _collection(place: Path) -> Collection:
    archive = Archive.read(place)
    chosen = archive.about.get("search", {})
    space = Space(chosen.get("descriptor", descriptors.DEFAULT), chosen.get("quality", qualities.DEFAULT))
    for what, name, known in (
        ("descriptor", space.descriptor_name, descriptors.names()),
        ("quality", space.quality_name, qualities.names()),
    ):
        if name not in known:
            raise UsageError(f"{place} was searched with the {what} {name!r}, whose module is not here: put it back")
    own = [name for name in ("quality", "effort", "generation") if name in archive.columns]
    rows = archive.rows(np.arange(len(archive)), own)
    quality = rows.get("quality", -rows["effort"])
    return Collection(place.name, archive, space, quality, rows["effort"], rows["generation"])


def learned(run: Run) -> tuple[Path, Behaviours, NDArray[np.str_] | None] | None:
    """The folder of the stage merge, its behaviours, and the part that each belongs to, None if they are not split;
    None without that stage.

    Raises:
        UsageError: a file is damaged.
    """
    folder, split = find_stage(run, "merge"), find_stage(run, "split")
    if folder is None:
        return None
    table = Behaviours.load(folder)
    if split is None:
        return folder, table, None
    path = split / "parts.safetensors"
    try:
        part = safetensors.numpy.load_file(path)["part"]
    except (OSError, KeyError, SafetensorError) as error:
        raise UsageError(f"{path} cannot be read: {error}; run the stage split again") from None
    if len(part) != len(table):
        raise UsageError(f"{path} is not of the {len(table):,} behaviours of {folder}: run the stage split again")
    return folder, table, np.array(PARTS)[part]


def true_texts(run: Run) -> dict[int, list[str]]:
    """By the id of a merged behaviour; empty without descriptions.

    Raises:
        UsageError: the file is damaged.
    """
    folder = find_stage(run, "describe")
    if folder is None:
        return {}
    path, found = folder / "texts.jsonl", dict[int, list[str]]()
    try:
        for line in _lines(path):
            if line["true"]:
                found.setdefault(line["id"], []).append(line["text"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} cannot be read: {error}; run the stage describe again") from None
    return found


def told(run: Run, collection: Collection) -> Told:
    """What is told of a collection's behaviours, each from the map's start.

    Raises:
        UsageError: a file is damaged.
    """
    found = learned(run)
    if found is None:
        return Told({}, {}, {})
    folder, table, part = found
    digests = EpisodeStore(folder).about.get("archives", [])
    digest = collection.archive.digest()
    if digest not in digests:
        return Told({}, {}, {})
    first = digests.index(digest) * ARCHIVE
    rows = np.flatnonzero((table.id >= first) & (table.id < first + COPY))  # no copies
    texts = true_texts(run)
    merged = dict(zip((table.id[rows] - first).tolist(), table.id[rows].tolist(), strict=True))
    return Told(
        merged=merged,
        texts={own: texts[there] for own, there in merged.items() if there in texts},
        part={} if part is None else dict(zip(merged, part[rows].tolist(), strict=True)),
    )


def _lines(path: Path) -> Iterator[Any]:
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
