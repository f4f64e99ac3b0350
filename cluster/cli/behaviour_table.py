"""Behaviours of a run as one table, a row each, for data frames: .parquet, .arrow or .csv.

    stages/merge ──> every distinct behaviour, also from nearby starts     (else the archives and grids of the search)
    describe, split ──> true texts, part

| column | |
|---|---|
| id | int64, as in the run's other files |
| archive | int32, place of its archive among those that were merged; of a search alone, the name of its archive |
| one for each number of the descriptor, such as end_x | float64 |
| quality, effort | float32 |
| texts | list of strings, the true ones |
| part | train, validation, test or margin; null where nothing was split |
| start_x, start_y, start_heading | float32, world units and radians |
| weights | list of float32, of the policy |

CSV has no lists: there, texts and weights are JSON. `pandas.read_parquet`, `pandas.read_feather`, `polars` and
`pyarrow` read the others. Qualities and descriptors that the files do not hold are computed from replays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv, feather, parquet

from cluster.report import archives
from cluster.report.archive_sections import length
from cluster.report.archives import Space
from cluster.report.deployed import read_house
from cluster.runs.folder import RunError
from cluster.runs.run_data import Run, load
from llm_service.files import replacing

KINDS = (".parquet", ".arrow", ".csv")


def write(run: Path, file: Path) -> Path:
    """Write the table of a run's behaviours, complete or not at all.

    Raises:
        RunError: the file exists, or the run has no behaviours.
        UsageError: one of the run's files is damaged.
    """
    if file.exists():
        raise RunError(f"{file} exists: name a new file, or remove it")
    table = behaviours(load(run))
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as temporary:
        if file.suffix == ".parquet":
            parquet.write_table(table, temporary)
        elif file.suffix == ".arrow":
            feather.write_feather(table, str(temporary))
        else:
            csv.write_csv(_without_lists(table), temporary)
    return file


def behaviours(run: Run) -> pa.Table:
    """The table.

    Raises:
        RunError: the run has no behaviours.
        UsageError: a file is damaged.
    """
    found, house = archives.read(run), read_house(run).house
    merged = archives.learned(run)
    if merged is None and not found:
        raise RunError(f"{run.name!r} has no behaviours: name a run that has searched, or from which one was merged")
    if merged is None:
        return pa.concat_tables(_of_collection(collection, house.start) for collection in found)
    _, table, part = merged
    space = found[0].space if found else Space()
    descriptor, quality = space.measured(house, table, length(run))
    texts = archives.true_texts(run)
    return _table(
        space, table.id, pa.array(table.archive), descriptor, quality, table.effort,
        [texts.get(number, []) for number in table.id.tolist()], None if part is None else part.tolist(), table.start,
        table.weights,
    )  # fmt: skip


def _of_collection(collection: archives.Collection, start: Sequence[float]) -> pa.Table:
    archive, count = collection.archive, len(collection.archive)
    return _table(
        collection.space, archive.ids, pa.array([collection.name] * count), archive.descriptors, collection.quality,
        collection.effort, [[]] * count, None, np.tile(np.array(start, np.float32), (count, 1)),
        archive.rows(np.arange(count), ["weights"])["weights"],
    )  # fmt: skip


def _table(
    space: Space,
    ids: NDArray[np.int64],
    archive: pa.Array,
    descriptor: NDArray[np.float64],
    quality: NDArray[np.float32],
    effort: NDArray[np.float32],
    texts: list[list[str]],
    part: list[str] | None,
    start: NDArray[np.float32],
    weights: NDArray[np.float32],
) -> pa.Table:
    flat = pa.array(np.ascontiguousarray(weights).ravel())
    columns: dict[str, Any] = {"id": ids, "archive": archive}
    columns |= {name: np.ascontiguousarray(descriptor[:, k]) for k, name in enumerate(space.descriptor.names)}
    columns |= {"quality": quality, "effort": effort}
    columns["texts"] = pa.array(texts, pa.list_(pa.string()))
    columns["part"] = pa.nulls(len(ids), pa.string()) if part is None else pa.array(part, pa.string())
    columns |= {f"start_{name}": np.ascontiguousarray(start[:, k]) for k, name in enumerate(("x", "y", "heading"))}
    columns["weights"] = pa.FixedSizeListArray.from_arrays(flat, weights.shape[1])
    return pa.table(columns)


def _without_lists(table: pa.Table) -> pa.Table:
    """Lists as JSON."""
    for number, field in enumerate(table.schema):
        if pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type):
            values = [json.dumps(value, ensure_ascii=False) for value in table.column(number).to_pylist()]
            table = table.set_column(number, field.name, pa.array(values, pa.string()))
    return table
