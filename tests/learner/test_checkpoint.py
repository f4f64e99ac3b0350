"""A checkpoint is complete or absent, whatever happens to it."""

import json

import numpy as np
import pytest

from learner import checkpoint

ARRAYS = {"model": {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, "actors": {"0/log": np.zeros((2, 0), np.int16)}}


def test_round_trip_keeps_every_bit(tmp_path):
    checkpoint.write(tmp_path, 3, ARRAYS, {"counters": {"version": 3}})
    found = checkpoint.latest(tmp_path)
    assert found.record == {"counters": {"version": 3}}
    for stem, group in ARRAYS.items():
        for name, value in group.items():
            assert found.arrays[stem][name].dtype == value.dtype
            np.testing.assert_array_equal(found.arrays[stem][name], value)


def test_only_the_newest_are_kept(tmp_path):
    for version in range(5):
        checkpoint.write(tmp_path, version, ARRAYS, {}, keep=2)
    assert sorted(p.name for p in tmp_path.glob("v*")) == ["v00000003", "v00000004"]
    assert (tmp_path / "LATEST").read_text() == "v00000004"


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "manifest"])
def test_damage_falls_back_to_the_one_before_and_says_so(tmp_path, damage):
    checkpoint.write(tmp_path, 1, ARRAYS, {"n": 1})
    path = checkpoint.write(tmp_path, 2, ARRAYS, {"n": 2})
    target = path / ("manifest.json" if damage == "manifest" else "model.safetensors")
    content = target.read_bytes()
    if damage == "remove":
        target.unlink()
    elif damage == "cut":
        target.write_bytes(content[: len(content) // 2])
    else:
        target.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    found = checkpoint.latest(tmp_path)
    assert found.record == {"n": 1}
    assert len(found.skipped) == 1
    assert "damaged" in found.skipped[0]


@pytest.mark.parametrize(
    "manifest", ["[]", "null", "7", "{}", '{"format": 2, "sha256": {}}', '{"format": 2, "sha256": []}']
)
def test_a_manifest_of_another_form_falls_back_to_the_one_before(tmp_path, manifest):
    checkpoint.write(tmp_path, 1, ARRAYS, {"n": 1})
    path = checkpoint.write(tmp_path, 2, ARRAYS, {"n": 2})
    (path / "manifest.json").write_text(manifest)
    found = checkpoint.latest(tmp_path)
    assert found.record == {"n": 1}
    assert "damaged" in found.skipped[0]


def test_none_good_is_an_error_and_none_written_is_not(tmp_path):
    assert checkpoint.latest(tmp_path) is None
    path = checkpoint.write(tmp_path, 1, ARRAYS, {})
    (path / "record.json").write_text('{"n": 7}')
    with pytest.raises(checkpoint.CheckpointError, match="no good checkpoint"):
        checkpoint.latest(tmp_path)


def test_another_format_is_named(tmp_path):
    path = checkpoint.write(tmp_path, 1, ARRAYS, {})
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(checkpoint.CheckpointError, match="format 99"):
        checkpoint.read(path)
