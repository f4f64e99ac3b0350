"""A run's behaviours as a table, as data frames read it."""

import json

import numpy as np
import pyarrow as pa
import pytest
import safetensors.numpy
from pyarrow import csv, feather, parquet

from cluster.cli import behaviour_table
from cluster.runs.folder import RunError
from envs import navigation
from learner.behaviours.table import PARTS, Behaviours
from learner.search.descriptors import descriptor
from learner.search.qualities import quality
from learner.search.rollout import play
from learner.store.archive import Archive
from tests.report.behaviour_run import STEPS, write_behaviours

NAMES = ["id", "archive", "end_x", "end_y", "quality", "effort", "texts", "part"]
NAMES += ["start_x", "start_y", "start_heading", "weights"]


@pytest.fixture
def run(tmp_path):
    return write_behaviours(tmp_path / "found", stages=("search", "merge", "describe", "split"))


def test_a_row_is_a_behaviour_of_the_run(run, tmp_path):
    table = parquet.read_table(behaviour_table.write(run, tmp_path / "out" / "b.parquet"))
    assert table.column_names == NAMES
    merged = Behaviours.load(run / "stages/merge")
    part = safetensors.numpy.load_file(run / "stages/split/parts.safetensors")["part"]
    assert table["id"].to_pylist() == merged.id.tolist()
    assert set(table["archive"].to_pylist()) == {0}
    assert np.stack([table["end_x"], table["end_y"]], 1).tolist() == merged.descriptor.tolist()
    assert table["effort"].to_pylist() == (-np.array(table["quality"])).tolist() == merged.effort.tolist()
    assert table["part"].to_pylist() == [PARTS[k] for k in part]
    assert np.stack([table[f"start_{k}"] for k in ("x", "y", "heading")], 1).tolist() == merged.start.tolist()
    assert np.array(table["weights"].to_pylist(), np.float32).tobytes() == merged.weights.tobytes()
    lines = [json.loads(line) for line in (run / "stages/describe/texts.jsonl").read_text().splitlines()]
    true = {line["id"]: [line["text"]] for line in lines if line["true"]}
    assert table["texts"].to_pylist() == [true.get(i, []) for i in merged.id.tolist()]
    assert len(true) > 20
    pose = navigation.rollout(navigation.load(), merged.start, np.array(table["weights"].to_pylist()), STEPS)["pose"]
    np.testing.assert_allclose(pose[:, -1, 0], table["end_x"])


def test_every_kind_of_file_holds_the_same(run, tmp_path):
    wanted = behaviour_table.behaviours(behaviour_table.load(run))
    found = feather.read_table(behaviour_table.write(run, tmp_path / "b.arrow"))
    assert found.equals(wanted)
    plain = csv.read_csv(behaviour_table.write(run, tmp_path / "b.csv"))
    assert plain.column_names == NAMES
    for name in ("id", "part"):
        assert plain[name].to_pylist() == wanted[name].to_pylist()
    for name in ("end_x", "quality", "start_heading"):
        np.testing.assert_allclose(plain[name].to_numpy(), wanted[name].to_numpy(), rtol=1e-6)
    for name in ("texts", "weights"):
        assert [json.loads(value) for value in plain[name].to_pylist()] == wanted[name].to_pylist()


def test_pandas_reads_it(run, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(behaviour_table.write(run, tmp_path / "b.parquet"))
    assert list(frame.columns) == NAMES
    assert len(frame["weights"][0]) == 302


def test_of_a_search_alone_its_archives_are_exported(tmp_path):
    run = write_behaviours(tmp_path / "found", stages=("search",))
    table = parquet.read_table(behaviour_table.write(run, tmp_path / "b.parquet"))
    archive = Archive.read(run / "stages/search/archive-0")
    assert table["id"].to_pylist() == archive.ids.tolist()
    assert set(table["archive"].to_pylist()) == {"archive-0"}
    assert set(table["part"].to_pylist()) == {None}
    assert table["end_y"].to_pylist() == archive.descriptors[:, 1].tolist()
    assert table["weights"].type == pa.list_(pa.float32(), 302)


def test_what_files_do_not_hold_is_replayed(run, tmp_path):
    """Another descriptor and another quality, of each behaviour from its own start."""
    index = run / "stages/search/archive-0/archive.json"
    says = json.loads(index.read_text())
    says["about"] = {"search": {"descriptor": "halfway", "quality": "straight"}}
    index.write_text(json.dumps(says))
    table = behaviour_table.behaviours(behaviour_table.load(run))
    merged = Behaviours.load(run / "stages/merge")
    rollout = play(navigation.load(), merged.weights, STEPS, merged.start)
    assert table["halfway_x"].to_pylist() == descriptor("halfway").describe(rollout)[:, 0].tolist()
    assert table["quality"].to_pylist() == quality("straight").of(rollout).tolist()


def test_what_cannot_be_exported_is_a_sentence(run, tmp_path):
    path = tmp_path / "b.csv"
    path.write_text("mine")
    with pytest.raises(RunError, match="exists: name a new file"):
        behaviour_table.write(run, path)
    assert path.read_text() == "mine"
    bare = write_behaviours(tmp_path / "bare", stages=())
    with pytest.raises(RunError, match="'bare' has no behaviours: name a run that has searched"):
        behaviour_table.write(bare, tmp_path / "c.csv")
    assert not (tmp_path / "c.csv").exists()
