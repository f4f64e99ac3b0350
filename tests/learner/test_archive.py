"""An archive keeps each behaviour once, whatever happens to its writer; a grid keeps the best of each cell."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner import files as files_module
from learner.files import Attempt, Superseded
from learner.store import archive as module
from learner.store.archive import ABOUT, Archive, ArchiveError
from learner.store.owned import own
from tests.learner.fault_points import interrupted

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {
    "weights": ("float32", (5,)),
    "positions": ("float32", (4, 2)),
    "novelty": ("float64", ()),
    "parent": ("int64", ()),
    "solved": ("bool", ()),
}
SAYS = {"map": "abc", "config": "def", "seed": 3}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Shards are full with 8 behaviours, so that merging happens often."""
    monkeypatch.setattr(module, "FULL", 8)
    monkeypatch.setattr(module, "GROUP", 3)


def behaviours(ids):
    """Descriptors and payload that follow from the ids."""
    made = [np.random.default_rng([7, int(entry)]) for entry in ids]
    descriptors = np.array([random.random(2) * 600 for random in made]).reshape(len(ids), 2)
    payload = {
        name: np.array([random.random(shape) * 9 for random in made]).reshape(len(ids), *shape).astype(kind)
        for name, (kind, shape) in COLUMNS.items()
    }
    return descriptors, payload


def opened(folder, **more):
    return Archive(folder, 2, COLUMNS, SAYS, **more)


def append(archive, ids):
    return archive.append(np.array(ids, np.int64), *behaviours(ids))


def assert_holds(archive, ids):
    descriptors, payload = behaviours(ids)
    assert archive.ids.tolist() == list(ids)
    assert len(archive) == len(ids)
    np.testing.assert_array_equal(archive.descriptors, descriptors)
    assert archive.index(ids).tolist() == list(range(len(ids)))
    assert archive.index([10**9]).tolist() == [-1]
    order = np.random.default_rng(0).integers(0, max(1, len(ids)), 30 if len(ids) else 0)
    for name, column in archive.rows(order).items():
        assert column.dtype == COLUMNS[name][0]
        np.testing.assert_array_equal(column, payload[name][order])
    assert len(archive.neighbours) == len(ids)
    if len(ids):
        assert archive.ids[archive.neighbours.nearest(descriptors, 1)[1][:, 0]].tolist() == list(ids)


def shard_files(folder):
    return sorted(path.name for path in folder.glob("*.parquet"))


# ---- what is kept ---------------------------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(st.integers(0, 80), max_size=12)),
    st.tuples(st.just("flush"), st.none()),
    st.tuples(st.just("kill"), st.none()),
    st.tuples(st.just("rewind"), st.floats(0, 1)),
    st.tuples(st.just("index"), st.none()),
)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEPS, max_size=14))
def test_it_is_a_list_without_doubles_that_outlives_its_writer(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("at") / "archive"
    archive, held, last = opened(folder), [], 0  # `last`: how many are sure to be on the disk
    for what, argument in steps:
        if what == "append":
            new = append(archive, argument)
            expected = [entry not in held + argument[:i] for i, entry in enumerate(argument)]
            assert new.tolist() == expected
            held += [entry for entry, is_new in zip(argument, expected, strict=True) if is_new]
        elif what == "flush":
            archive.flush()
            last = len(held)
        elif what == "rewind":
            held = held[: int(argument * len(held))]
            archive.rewind(len(held))
            last = len(held)
        elif what == "kill":
            archive = opened(folder)
            assert last <= len(archive) <= len(held)
            held = held[: len(archive)]
        else:
            assert len(archive.neighbours) == len(held)
        assert len(archive) == len(held)
    assert_holds(archive, held)
    archive.flush()
    archive.verify()
    assert_holds(opened(folder), held)
    assert_holds(Archive.read(folder), held)
    assert len(shard_files(folder)) <= len(held) // 8 + 8


def test_a_full_disk_leaves_no_half_written_shard(tmp_path, monkeypatch):
    archive = opened(tmp_path / "archive")
    append(archive, [1, 2])
    archive.flush()
    before = sorted(os.listdir(archive.folder))

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        append(archive, [3])
        with pytest.raises(OSError, match="No space"):
            archive.flush()
    assert sorted(os.listdir(archive.folder)) == before
    archive.flush()
    assert_holds(opened(archive.folder), [1, 2, 3])


def test_a_copy_that_fails_is_no_shard(tmp_path, monkeypatch):
    (tmp_path / "000000000-0008.parquet").write_bytes(b"whole")

    def no_links(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def full(source, target):
        Path(target).write_bytes(b"ha")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space"):
        own(tmp_path / "000000000-0008.parquet", "-a0002")
    assert os.listdir(tmp_path) == ["000000000-0008.parquet"]


def test_appending_twice_changes_nothing(tmp_path):
    archive = opened(tmp_path / "archive")
    assert append(archive, [5, 3, 5]).tolist() == [True, True, False]
    assert append(archive, [3]).tolist() == [False]
    archive.flush()
    digest, files = archive.digest(), {n: (tmp_path / "archive" / n).read_bytes() for n in os.listdir(archive.folder)}
    again = opened(tmp_path / "archive")
    assert append(again, [5, 3]).tolist() == [False, False]
    again.flush()
    assert again.digest() == digest
    assert {n: (tmp_path / "archive" / n).read_bytes() for n in os.listdir(archive.folder)} == files


def test_small_shards_become_one_and_large_ones_are_left(tmp_path):
    folder = tmp_path / "archive"
    archive = opened(folder)
    for entry in range(7):
        append(archive, [entry])
        archive.flush()
    assert len(shard_files(folder)) == 7
    append(archive, [7])
    archive.flush()
    assert shard_files(folder) == ["000000000-0008.parquet"]
    append(archive, range(8, 30))
    assert shard_files(folder) == ["000000000-0008.parquet", "000000008-0022.parquet"]
    assert_holds(archive, range(30))


def test_a_search_goes_back_and_finds_the_same_again(tmp_path):
    """Rewinding to any count and appending what came after gives the digest of a search that was never interrupted."""
    whole = opened(tmp_path / "whole")
    append(whole, range(40))
    for count in (0, 1, 8, 19, 39, 40):
        folder = tmp_path / str(count)
        archive = opened(folder)
        for first in range(0, 40, 5):
            append(archive, range(first, first + 5))
            archive.flush()
        archive.rewind(count)
        assert_holds(archive, range(count))
        assert_holds(opened(folder), range(count))
        append(archive, range(count, 40))
        assert archive.digest() == whole.digest()
        assert_holds(archive, range(40))
    with pytest.raises(ArchiveError, match="holds 40 behaviours, but its search's checkpoint counts 41"):
        archive.rewind(41)


def test_any_reader_of_parquet_understands_it(tmp_path):
    archive = opened(tmp_path / "archive")
    append(archive, range(10))
    archive.flush()
    table = pq.read_table(tmp_path / "archive" / shard_files(tmp_path / "archive")[0])
    descriptors, payload = behaviours(range(10))
    assert table.column("id").to_pylist() == list(range(10))
    assert table.column("descriptor").to_pylist() == descriptors.tolist()
    assert table.column("weights").to_pylist() == payload["weights"].tolist()
    assert table.column("positions").to_pylist() == payload["positions"].reshape(10, 8).tolist()
    assert json.loads(table.schema.field("positions").metadata[b"shape"]) == [4, 2]
    assert json.loads((tmp_path / "archive" / ABOUT).read_bytes())["about"] == SAYS


def test_columns_that_are_not_asked_for_are_not_read(tmp_path):
    archive = opened(tmp_path / "archive")
    append(archive, range(20))
    archive.flush()
    _, payload = behaviours(range(20))
    rows = archive.rows(np.array([19, 0, 19, 7]), ["novelty"])
    assert rows.keys() == {"novelty"}
    np.testing.assert_array_equal(rows["novelty"], payload["novelty"][[19, 0, 19, 7]])
    assert archive.rows(np.empty(0, np.int64), ["weights"])["weights"].shape == (0, 5)
    for wrong in (-1, 20):
        with pytest.raises(IndexError, match="of an archive of 20"):
            archive.rows(np.array([0, wrong]))


def test_what_was_appended_is_copied(tmp_path):
    archive = opened(tmp_path / "archive")
    descriptors, payload = behaviours([1, 2])
    archive.append(np.array([1, 2]), descriptors, payload)
    descriptors[:] = 0
    payload["weights"][:] = 0
    assert_holds(archive, [1, 2])


# ---- other processes ------------------------------------------------------------------------------------------------


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_stale_attempt_takes_nothing_from_the_newer_one(tmp_path):
    """It lives on behind a cut network, with fewer behaviours in memory than the newer one has found since."""
    folder = tmp_path / "archive"
    first = Attempt.begin(tmp_path / "run" / "checkpoints")
    stale = opened(folder, attempt=first)
    append(stale, range(5))
    stale.flush()
    second = Attempt.begin(tmp_path / "run" / "checkpoints")
    newer = opened(folder, attempt=second)
    newer.rewind(5, first.number)
    append(newer, range(5, 30))
    newer.flush()
    before = files(folder)
    append(stale, [5])
    for change in (stale.flush, lambda: stale.rewind(2), stale.forget_older, lambda: opened(folder, attempt=first)):
        with pytest.raises(Superseded, match="attempt 1 at 'run' ends without saving, because attempt 2 has begun"):
            change()
    assert files(folder) == before
    assert_holds(newer, range(30))
    newer.verify()
    third = opened(folder, attempt=Attempt.begin(tmp_path / "run" / "checkpoints"))
    third.rewind(30, second.number)
    assert_holds(third, range(30))


def test_an_older_attempt_that_is_told_late_does_no_harm(tmp_path, monkeypatch):
    """Its view of the folder of attempts is a cached one. It merges shards that the newer one goes on with."""
    folder = tmp_path / "archive"
    first = Attempt.begin(tmp_path / "run" / "checkpoints")
    stale = opened(folder, attempt=first)
    for entry in range(7):
        append(stale, [entry])
        stale.flush()
    second = Attempt.begin(tmp_path / "run" / "checkpoints")
    with monkeypatch.context() as patch:
        patch.setattr(files_module, "newest_attempt", lambda _: first.number)
        newer = opened(folder, attempt=Attempt(tmp_path / "elsewhere", second.number))  # it has looked already
        append(stale, [7])
        stale.flush()
        assert shard_files(folder).count("000000000-0008-a0001.parquet") == 1
        assert_holds(newer, range(7))
        newer.verify()
        newer.rewind(8, first.number)  # the older one saved a checkpoint before this one looked for it
        append(newer, range(8, 20))
        newer.flush()
        before = files(folder)
        append(stale, [8])
        with pytest.raises(Superseded, match="is written by attempt 2 of its run"):
            stale.flush()
        stale.forget_older()
        assert files(folder) == before
    assert_holds(Archive.read(folder), range(20))


@pytest.mark.parametrize("links", [True, False])
def test_a_resume_reads_the_index_that_its_checkpoint_counts(tmp_path, monkeypatch, links):
    """The second attempt ends before it saves a checkpoint: what the first one counted is still there."""

    def nothing(*_):
        raise OSError(95, "no links on this file system")

    if not links:
        monkeypatch.setattr(os, "link", nothing)
    folder, checkpoints = tmp_path / "archive", tmp_path / "run" / "checkpoints"
    one = opened(folder, attempt=Attempt.begin(checkpoints))
    append(one, range(20))
    one.flush()
    two = opened(folder, attempt=Attempt.begin(checkpoints))
    two.rewind(3, 1)  # from a checkpoint before the last, which it found damaged
    append(two, range(3, 9))
    two.flush()
    three = opened(folder, attempt=Attempt.begin(checkpoints))
    three.rewind(20, 1)
    assert_holds(three, range(20))
    append(three, range(20, 23))
    three.flush()
    assert {name[-12:-8] for name in shard_files(folder)} == {"0001", "0002", "0003"}
    three.forget_older()  # its own checkpoint is there
    assert {name[-12:-8] for name in shard_files(folder)} == {"0003"}
    assert sorted(path.name for path in folder.glob("*.json")) == ["archive-a0003.json"]
    assert_holds(Archive.read(folder), range(23))
    with pytest.raises(ArchiveError, match="holds 23 behaviours, but its search's checkpoint counts 24"):
        three.rewind(24, 3)


def test_an_archive_from_before_attempts_is_read_and_continued(tmp_path):
    folder = tmp_path / "archive"
    before = opened(folder)
    append(before, range(12))
    before.flush()
    after = opened(folder, attempt=Attempt.begin(tmp_path / "run" / "checkpoints"))
    after.rewind(10, 7)  # an attempt that had no index of its own
    append(after, range(10, 30))
    after.flush()
    after.forget_older()
    assert_holds(Archive.read(folder), range(30))
    assert not (folder / ABOUT).exists()
    append(before, [12])
    with pytest.raises(Superseded, match="is written by attempt 1 of its run: nothing else may add to it"):
        before.flush()


def test_a_newer_attempt_may_begin_before_every_change_of_an_older_ones_commit(tmp_path):
    """What the newer one reads is whole, and what it writes stays; the older one is told, unless it was through."""
    told = 0
    for n in range(100):
        folder, checkpoints = tmp_path / str(n) / "archive", tmp_path / str(n) / "checkpoints"
        folder.parent.mkdir()
        older = opened(folder, attempt=Attempt.begin(checkpoints))
        append(older, range(7))
        older.flush()
        append(older, [7, 8])  # the nine become one shard
        newer = []

        def step_in(_, folder=folder, checkpoints=checkpoints, newer=newer):
            newer.append(opened(folder, attempt=Attempt.begin(checkpoints)))
            newer[0].rewind(7, 1)
            append(newer[0], range(7, 12))
            newer[0].flush()
            newer[0].forget_older()

        superseded = False
        with interrupted(folder, n, step_in) as changes:
            try:
                older.flush()
            except Superseded:
                superseded = True
        if len(changes) <= n:
            break
        told += superseded
        newer[0].verify()
        assert_holds(newer[0], range(12))
        assert_holds(Archive.read(folder), range(12))
    else:
        pytest.fail("the commit never came to its end")
    assert told > 5


def search(folder, generations):
    """A search that checkpoints now and then; it begins where its last checkpoint was. Killed at any time."""
    module.FULL, module.GROUP = 8, 3
    archive, checkpoint = opened(Path(folder)), Path(folder).with_suffix(".checkpoint")
    generation, count = json.loads(checkpoint.read_text()) if checkpoint.exists() else (0, 0)
    archive.rewind(count)
    while generation < generations:
        append(archive, range(3 * generation, 3 * generation + 3))
        generation += 1
        if generation % 4 == 0:
            archive.flush()
            module.replace_file(checkpoint, json.dumps([generation, len(archive)]).encode())
            print(generation, flush=True)


def test_a_search_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path):
    folder, killed = tmp_path / "archive", 0
    code = f"from tests.learner.test_archive import search; search({str(folder)!r}, 100)"
    while True:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        if killed == 2:
            assert process.wait(100) == 0
            break
        for _ in range(3 + 15 * killed):
            process.stdout.readline()
        time.sleep(0.004 * killed)
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed += 1
    archive = opened(folder)
    assert_holds(archive, range(300))
    archive.verify()
    assert set(os.listdir(folder)) == {ABOUT, *(shard["file"] for shard in archive._shards)}


def test_what_killed_writers_left_is_removed_and_other_files_are_not(tmp_path):
    folder = tmp_path / "archive"
    append(opened(folder), [1])  # not flushed
    left = [".000000000-0001.parquet.77", "000000009-0003.parquet", f".{ABOUT}.78"]
    foreign = ["manifest.json", "mine.parquet", ".hidden"]
    for name in left + foreign:
        (folder / name).write_bytes(b"half")
    archive = opened(folder)
    append(archive, [1, 2])
    archive.flush()
    assert set(os.listdir(folder)) == {ABOUT, "000000000-0002.parquet", *foreign}


def test_a_reader_that_meets_a_merge_reads_again(tmp_path, monkeypatch):
    folder = tmp_path / "archive"
    archive = opened(folder)
    for entry in range(7):
        append(archive, [entry])
        archive.flush()
    before = json.loads((folder / ABOUT).read_bytes())
    append(archive, [7])
    archive.flush()  # the eight are in one shard now
    answers = [before, before, before]
    now = module._about
    monkeypatch.setattr(module, "_about", lambda folder: answers.pop() if answers else now(folder))
    assert_holds(Archive.read(folder), range(8))
    assert not answers


# ---- what is refused ------------------------------------------------------------------------------------------------


def flip(path, where):
    """Change a bit of a column's numbers, or of the file's last bytes."""
    groups = pq.ParquetFile(path).metadata.row_group(0)
    columns = {groups.column(i).path_in_schema.split(".")[0]: groups.column(i) for i in range(groups.num_columns)}
    content = bytearray(path.read_bytes())
    at = -5 if where == "end" else columns[where].data_page_offset + columns[where].total_compressed_size - 3
    content[at] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "cut": (lambda f: os.truncate(f / "000000008-0008.parquet", 100), r"0008\.parquet is damaged, it has 100 bytes"),
    "lost": (lambda f: (f / "000000008-0008.parquet").unlink(), r"0008\.parquet is damaged, it has 0 bytes"),
    "id": (lambda f: flip(f / "000000008-0008.parquet", "id"), r"000000008-0008\.parquet is damaged"),
    "descriptor": (lambda f: flip(f / "000000008-0008.parquet", "descriptor"), r"000000008-0008\.parquet is damaged"),
    "end": (lambda f: flip(f / "000000008-0008.parquet", "end"), r"000000008-0008\.parquet is damaged"),
    "about": (lambda f: (f / ABOUT).write_text("{"), r"archive\.json is damaged"),
    "part of about": (lambda f: (f / ABOUT).write_text('{"format": 1}'), r"archive\.json is damaged"),
    "list for about": (lambda f: (f / ABOUT).write_text("[]"), r"archive\.json is damaged"),
    "no archive": (lambda f: (f / ABOUT).unlink(), r"is no archive: it holds no archive\.json"),
    "format": (
        lambda f: (f / ABOUT).write_text((f / ABOUT).read_text().replace('"format": 1', '"format": 9')),
        "has format 9, this version reads 1",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_sentence(tmp_path, damage):
    folder = tmp_path / "archive"
    archive = opened(folder)
    append(archive, range(8))  # enough to be written at once
    append(archive, range(8, 16))
    hurt, sentence = DAMAGES[damage]
    hurt(folder)
    with pytest.raises(ArchiveError, match=sentence) as raised:
        Archive.read(folder)
    assert "\n" not in str(raised.value)


def test_damage_of_the_payload_is_told_when_it_is_read(tmp_path):
    folder = tmp_path / "archive"
    archive = opened(folder)
    append(archive, range(8))
    path = folder / shard_files(folder)[0]
    flip(path, "weights")
    archive = Archive.read(folder)
    archive.rows(np.arange(8), ["novelty"])
    with pytest.raises(ArchiveError, match=f"{path.name} is damaged"):
        archive.rows(np.arange(8), ["weights"])
    with pytest.raises(ArchiveError, match="its hash differs"):
        archive.verify()
    path.unlink()
    with pytest.raises(ArchiveError, match="its hash differs"):
        archive.verify()


def test_another_search_is_refused(tmp_path):
    folder = tmp_path / "archive"
    append(opened(folder), [1])
    others = [(3, COLUMNS, SAYS), (2, {**COLUMNS, "weights": ("float32", (6,))}, SAYS), (2, COLUMNS, {"seed": 4})]
    for other in others:
        with pytest.raises(ArchiveError, match="holds behaviours of another search"):
            Archive(folder, *other)
    with pytest.raises(ArchiveError, match="every archive has a column 'id'"):
        Archive(tmp_path / "new", 2, {"id": ("int64", ())}, SAYS)
    shutil.rmtree(folder)
    with pytest.raises(ArchiveError, match="is no archive"):
        Archive.read(folder)
    assert not folder.exists()


def test_behaviours_of_another_kind_are_refused_and_change_nothing(tmp_path):
    archive = opened(tmp_path / "archive")
    descriptors, payload = behaviours([1, 2])
    ids = np.array([1, 2])
    with pytest.raises(ValueError, match="the payload has the columns"):
        archive.append(ids, descriptors, {"weights": payload["weights"]})
    with pytest.raises(ValueError, match=r"weights of 2 behaviours has shape \(1, 5\), not \(2, 5\)"):
        archive.append(ids, descriptors, {**payload, "weights": payload["weights"][:1]})
    with pytest.raises(ValueError, match="descriptor of 2 behaviours has shape"):
        archive.append(ids, descriptors[:, :1], payload)
    with pytest.raises(ValueError, match="a descriptor is not finite"):
        archive.append(ids, descriptors * np.nan, payload)
    with pytest.raises(TypeError, match="Cannot cast"):
        archive.append(ids, descriptors, {**payload, "parent": np.array([0.5, 1.5])})
    assert_holds(archive, [])
