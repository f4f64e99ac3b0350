"""A store of episodes gives back what was written, in any order, and tells of damage in one sentence."""

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.text import text_hash
from learner.store.episodes import EpisodeStore, EpisodeWriter, Layout, StoreError
from tests.learner.episodes import FIELDS, LAYOUT, made, write


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(1, 7), max_size=5), min_size=1, max_size=5),
    fields=st.sets(st.sampled_from(sorted(FIELDS))),
    vectors=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_what_was_written_is_read_in_any_order(tmp_path_factory, lengths, fields, vectors, seed):
    chosen = {name: FIELDS[name] for name in sorted(fields)}
    layout = Layout(chosen, (), (2,)) if vectors else Layout(chosen, LAYOUT.actions)
    parts = {f"{i:03d}": made([seed, i], some, layout) for i, some in enumerate(lengths)}
    backwards = dict(reversed(parts.items()))  # the order of names counts, not that of writing
    store = write(tmp_path_factory.mktemp("at") / "store", backwards, layout)
    assert (store.layout, store.about) == (layout, {"env": "made"})
    for name in ("seed", "length", "total", "success", "kind"):
        expected = np.concatenate([getattr(part[0], name) for part in parts.values()])
        assert getattr(store, name).dtype == expected.dtype
        np.testing.assert_array_equal(getattr(store, name), expected)
    assert len(store) == sum(map(len, lengths))
    assert store.steps == sum(map(sum, lengths))
    np.testing.assert_array_equal(store.first, np.cumsum([0, *(n for some in lengths for n in some)]))
    index = np.random.default_rng(seed).integers(0, max(1, store.steps), 20 if store.steps else 0)
    rows = store.rows(index)
    wanted = {"action": rows.action, "reward": rows.reward, **rows.obs}
    for name, found in wanted.items():
        columns = [vars(p[1])[name] if name in ("action", "reward") else p[1].obs[name] for p in parts.values()]
        expected = np.concatenate(columns)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected[index], err_msg=name)
    for name in [n for n, field in chosen.items() if field.kind == "text"]:
        assert [text_hash(text) for text in store.texts(rows.obs[name].ravel())] == rows.obs[name].ravel().tolist()


def test_a_full_disk_leaves_no_half_written_shard(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write(tmp_path / "store", {"0": made(0, [2, 3])})
    before = sorted(os.listdir(tmp_path / "store"))
    writer = EpisodeWriter(tmp_path / "store", LAYOUT, {"env": "made"})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        writer.write("1", *made(1, [2]))
    assert sorted(os.listdir(tmp_path / "store")) == before


def test_a_text_that_nobody_wrote_is_one_sentence(tmp_path):
    store = write(tmp_path / "store", {"0": made(0, [2, 3])})
    with pytest.raises(StoreError, match="names texts that it does not hold"):
        store.texts(np.array([1, 2, 3]))


def test_any_arrow_reader_understands_it(tmp_path):
    steps = made(0, [2, 3])[1]
    write(tmp_path / "store", {"0": made(0, [2, 3])})
    table = pa.ipc.open_file(tmp_path / "store" / "0.arrow").read_all()
    assert table.column("length").to_pylist() == [2, 3]
    assert table.column("action").to_pylist() == [steps.action[:2].tolist(), steps.action[2:].tolist()]
    second = np.reshape(table.column("obs.image")[1].as_py(), (3, 3, 2, 3))
    np.testing.assert_array_equal(second, steps.obs["image"][2:])
    assert json.loads(table.schema.field("obs.image").metadata[b"shape"]) == [3, 2, 3]


def test_many_shards_keep_no_file_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    store = write(tmp_path / "store", {f"{i:03d}": made(i, [2]) for i in range(40)})
    assert len(os.listdir("/proc/self/fd")) == before
    assert store.steps == 80
    maps = Path("/proc/self/maps").read_text()
    assert all(f"{i:03d}.arrow" in maps for i in range(40))  # read where they lie


def test_a_shard_may_be_written_anew(tmp_path):
    write(tmp_path / "store", {"0": made(0, [2, 3])})
    store = write(tmp_path / "store", {"0": made(1, [4])})
    np.testing.assert_array_equal(store.rows(np.arange(4)).reward, made(1, [4])[1].reward)
    assert len(store) == 1


def test_other_episodes_are_refused(tmp_path):
    write(tmp_path / "store", {"0": made(0, [2])})
    for layout, about in ((Layout({}, LAYOUT.actions), {"env": "made"}), (LAYOUT, {"env": "another"})):
        with pytest.raises(StoreError, match="holds other episodes"):
            EpisodeWriter(tmp_path / "store", layout, about)


# ---- damage ---------------------------------------------------------------------------------------------------------


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "flipped": (lambda f: flip(f / "1.arrow"), "1.arrow is damaged: its hash differs"),
    "flipped text": (lambda f: flip(f / "1.texts.arrow"), "1.texts.arrow is damaged: its hash differs"),
    "cut": (lambda f: os.truncate(f / "1.arrow", 100), "1.arrow is damaged"),
    "lost": (lambda f: (f / "1.arrow").unlink(), "1 is damaged: .*No such file"),
    "entry": (lambda f: (f / "1.json").write_text("{"), "1.json is damaged"),
    "empty entry": (lambda f: (f / "1.json").write_text("{}"), "1.json is damaged"),
    "list for entry": (lambda f: (f / "1.json").write_text("[]"), "1.json is damaged"),
    "counts": (
        lambda f: (f / "1.json").write_text((f / "1.json").read_text().replace('"steps": 4', '"steps": 5')),
        "1 is damaged: its episodes have not 5 steps",
    ),
    "no store": (lambda f: (f / "store.json").unlink(), "is no store of episodes: it holds no store.json"),
    "about": (lambda f: (f / "store.json").write_text("nonsense"), "store.json is damaged"),
    "format": (
        lambda f: (f / "store.json").write_text((f / "store.json").read_text().replace('"format": 1', '"format": 9')),
        "has format 9, this version reads 1",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_sentence(tmp_path, damage):
    folder = tmp_path / "store"
    write(folder, {"0": made(0, [2]), "1": made(1, [1, 3])})
    hurt, sentence = DAMAGES[damage]
    hurt(folder)
    with pytest.raises(StoreError, match=sentence) as raised:
        EpisodeStore(folder)
    assert "\n" not in str(raised.value)


def test_a_shard_of_another_store_is_told(tmp_path):
    other = Layout({"image": FIELDS["image"]}, LAYOUT.actions)
    write(tmp_path / "other", {"9": made(0, [2], other)}, other)
    write(tmp_path / "store", {"0": made(0, [2])})
    for path in (tmp_path / "other").glob("9*"):
        shutil.copy(path, tmp_path / "store")
    with pytest.raises(StoreError, match=r"has other columns than store\.json says"):
        EpisodeStore(tmp_path / "store")
