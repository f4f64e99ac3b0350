"""Entries stay what they were, whatever comes and goes, and on disk they are complete or absent."""

import json
import resource
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.files import Attempt, Superseded
from learner.store import entry_files, retrieval
from learner.store.entry_files import RetrievalError
from learner.store.ranking import COLUMNS
from learner.store.retrieval import MemoryIndex
from tests.learner.vectors import about, built, cosines, drawn, expected, rows_of, same


def test_evicted_entries_are_not_found_and_the_others_keep_their_ids():
    keys, columns = drawn("normal", 300, 10, 0), about(300, 4, 0)
    index, queries = built(keys, columns), drawn("normal", 20, 10, 1)
    random = np.random.default_rng(0)
    stays = np.ones(300, bool)
    stays[random.choice(300, 120, replace=False)] = False
    assert index.evict(np.flatnonzero(~stays)) == 120
    assert index.evict(np.flatnonzero(~stays)) == 0
    np.testing.assert_array_equal(index.ids, np.flatnonzero(stays))
    for owner in (None, random.integers(0, 4, 20)):
        allowed = stays if owner is None else stays & (columns["task"] == owner[:, None])
        ids, best = expected(queries, keys, np.arange(300), allowed, 30)
        found = index.search(queries, 30, owner)
        np.testing.assert_array_equal(found.id, ids)
        np.testing.assert_array_equal(found.similarity, best)
    assert index.append(keys[:2], rows_of(columns, [0, 1])).tolist() == [300, 301]


def test_more_room_is_made_without_touching_what_is_not_filled():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    keys, columns = drawn("normal", 6, 64, 0), about(6, 2, 0)
    index = built(keys, columns)
    index.reserve(2, 2**20)  # 512 MB of keys
    before = resident()
    index.reserve(3, 2**20)
    assert resident() - before < 2**27
    index.append(keys, columns)
    np.testing.assert_array_equal(index.ids, np.arange(12))
    found = index.search(keys, 12)
    ids, best = expected(keys, np.tile(keys, (2, 1)), np.arange(12), np.ones((6, 12), bool), 12)
    np.testing.assert_array_equal(found.id, ids)
    np.testing.assert_array_equal(found.similarity, best)


def test_the_oldest_go_first():
    keys, columns = drawn("normal", 60, 4, 0), about(60, 4, 0)
    index = built(keys, columns)
    assert index.keep_newest(100) == 0
    assert index.keep_newest(25) == 35
    np.testing.assert_array_equal(index.ids, np.arange(35, 60))
    index = built(keys, columns)
    gone = index.keep_newest(5, each_owner=True)
    newest = np.concatenate([np.flatnonzero(columns["task"] == task)[-5:] for task in range(4)])
    np.testing.assert_array_equal(index.ids, np.sort(newest))
    assert gone == 60 - len(newest)


@pytest.mark.parametrize("cells", [8, 2**26])
def test_of_near_copies_the_first_stays(monkeypatch, cells):
    monkeypatch.setattr(retrieval, "CELLS", cells)
    keys, columns = drawn("clusters", 240, 6, 3), about(240, 3, 3)
    keys[200:] = drawn("normal", 40, 6, 4)
    similarity, stays = cosines(keys, keys), []
    for i in range(240):
        if not any(columns["task"][j] == columns["task"][i] and similarity[j, i] > np.float32(0.98) for j in stays):
            stays.append(i)
    index = built(keys, columns)
    assert index.deduplicate(0.98) == 240 - len(stays) > 100
    assert index.ids.tolist() == stays
    assert index.deduplicate(0.98) == 0
    mixed = built(keys, {**columns, "owner": np.zeros(240, int)})  # one owner, whose tasks still do not mix
    mixed.deduplicate(0.98)
    assert mixed.ids.tolist() == stays


def test_saved_and_read_again_it_is_the_same(tmp_path):
    keys, columns = drawn("clusters", 200, 12, 0), about(200, 4, 0)
    index, queries = built(keys, columns), drawn("clusters", 10, 12, 1)
    index.evict(np.arange(20, 60))
    index.evict([199])
    index.save(tmp_path / "index")
    read = MemoryIndex.load(tmp_path / "index")
    for change in (lambda one: None, lambda one: one.append(keys[:9], rows_of(columns, np.arange(9)))):
        assert len(read) == len(index)
        change(index), change(read)
        for owner in (None, np.arange(10) % 4):
            same(index.search(queries, 25, owner), read.search(queries, 25, owner))
    assert index.ids[-1] == read.ids[-1] == 208  # no id is given out twice
    read.save(tmp_path / "index")
    assert len(list((tmp_path / "index").iterdir())) == 2
    same(index.search(queries, 25), MemoryIndex.load(tmp_path / "index").search(queries, 25))
    MemoryIndex(5).save(tmp_path / "empty")
    assert len(MemoryIndex.load(tmp_path / "empty")) == 0


@settings(max_examples=30, deadline=None)
@given(
    parts=st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["evict", "newest", "each", "copies"])), max_size=5),
    stops=st.sets(st.integers(0, 4)),
    seed=st.integers(0, 2**31),
)
def test_stopped_and_resumed_anywhere_it_is_the_index_that_went_on(tmp_path_factory, parts, stops, seed):
    """To the bytes on disk, and so in all that it will ever find."""
    folder, random = tmp_path_factory.mktemp("at"), np.random.default_rng(seed)
    went_on, resumed = MemoryIndex(6), MemoryIndex(6)
    for i, (size, change) in enumerate(parts):
        keys, columns = drawn("clusters", size, 6, seed + i), about(size, 3, seed + i)
        gone = random.integers(0, went_on.next_id + size + 1, 8)
        for index in (went_on, resumed):
            index.append(keys, columns)
            if change == "copies":
                index.deduplicate(0.99999)
            elif change == "evict":
                index.evict(gone)
            else:
                index.keep_newest(12, each_owner=change == "each")
        if i in stops:
            resumed.save(folder / "resumed")
            resumed = MemoryIndex.load(folder / "resumed")
    went_on.save(folder / "went_on")
    resumed.save(folder / "resumed")
    assert (folder / "went_on/retrieval.json").read_bytes() == (folder / "resumed/retrieval.json").read_bytes()


def test_equal_content_is_saved_as_equal_bytes(tmp_path):
    keys, columns = drawn("normal", 90, 5, 0), about(90, 4, 0)
    at_once, in_parts = built(keys, columns), MemoryIndex(5)
    in_parts.reserve(9, 64)
    for rows in np.array_split(np.arange(90), 7):
        in_parts.append(keys[rows], rows_of(columns, rows))
    for index, name in ((at_once, "a"), (in_parts, "b")):
        index.save(tmp_path / name)
    assert (tmp_path / "a/retrieval.json").read_bytes() == (tmp_path / "b/retrieval.json").read_bytes()


def test_a_damaged_index_is_one_sentence(tmp_path):
    index = built(drawn("normal", 9, 4, 0), about(9, 2, 0))
    with pytest.raises(RetrievalError, match=r"no memory index: it holds no retrieval\.json"):
        MemoryIndex.load(tmp_path)
    index.save(tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(RetrievalError, match="is damaged: its hash"):
        MemoryIndex.load(tmp_path)
    file.unlink()
    with pytest.raises(RetrievalError, match="is damaged"):
        MemoryIndex.load(tmp_path)
    says = json.loads((tmp_path / "retrieval.json").read_bytes())
    for wrong in ({"sha256": "x"}, {"sha256": {}}, {"next_id": "x"}, {"width": None}):
        (tmp_path / "retrieval.json").write_text(json.dumps({**says, **wrong}))
        with pytest.raises(RetrievalError, match="is damaged"):
            MemoryIndex.load(tmp_path)
    (tmp_path / "retrieval.json").write_text(json.dumps({**says, "format": 9}))
    with pytest.raises(RetrievalError, match="has format 9, this version reads 2"):
        MemoryIndex.load(tmp_path)


@pytest.mark.parametrize("saves", [1, 2])
def test_who_loads_while_another_saves_reads_what_is_newer(saves, tmp_path, monkeypatch):
    """As often as it happens."""
    built(drawn("normal", 9, 4, 0), about(9, 2, 0)).save(tmp_path)
    read, later = entry_files.sha256, [built(drawn("normal", n, 4, 0), about(n, 2, 0)) for n in range(saves, 0, -1)]

    def sha256(path):
        if later:
            later.pop().save(tmp_path)
        return read(path)

    monkeypatch.setattr(entry_files, "sha256", sha256)
    assert len(MemoryIndex.load(tmp_path)) == saves


class Killed(BaseException):
    """What ends a process at once; no clause is for it."""


def test_what_a_killed_save_has_begun_goes_with_the_next(tmp_path):
    index, folder = built(drawn("normal", 9, 4, 0), about(9, 2, 0)), tmp_path / "index"

    def killed(attempt=None):
        def stop(*_, **__):  # nothing is tidied up either: who is killed does nothing more
            raise Killed

        before = set(folder.glob("*"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "rename", stop)
            patch.setattr(Path, "unlink", stop)
            with pytest.raises(Killed):
                index.save(folder, attempt)
        (left,) = set(folder.glob("*")) - before
        return left

    killed(), killed()
    index.save(folder)
    assert len(list(folder.iterdir())) == 2
    older, own, newer = killed(Attempt.begin(tmp_path)), Attempt.begin(tmp_path), killed(Attempt(tmp_path, 3))
    index.save(folder, own)
    assert not older.exists()
    assert newer.exists()  # by one that this host does not know of yet
    assert len(list(folder.iterdir())) == 3
    assert len(MemoryIndex.load(folder)) == 9


def test_the_name_of_a_new_folder_is_on_the_disk_before_what_it_holds(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(entry_files, "sync_folder", synced.append)
    built(drawn("normal", 9, 4, 0), about(9, 2, 0)).save(tmp_path / "index")
    assert synced[0] == tmp_path
    assert set(synced[1:]) == {tmp_path / "index"}


def test_an_older_attempt_does_not_save(tmp_path):
    older, newer = Attempt.begin(tmp_path), Attempt.begin(tmp_path)
    first, second = built(drawn("normal", 9, 4, 0), about(9, 2, 0)), built(drawn("normal", 5, 4, 0), about(5, 2, 0))
    second.save(tmp_path / "index", newer)
    with pytest.raises(Superseded):
        first.save(tmp_path / "index", older)
    assert len(MemoryIndex.load(tmp_path / "index")) == 5
    second.save(tmp_path / "index", Attempt.begin(tmp_path))
    assert len(list((tmp_path / "index").iterdir())) == 2  # nothing of the others is left
    assert len(MemoryIndex.load(tmp_path / "index")) == 5


def test_entries_are_pointers(tmp_path):
    index = built(drawn("normal", 9, 4, 0), about(9, 2, 0))
    index.save(tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    arrays = safetensors.numpy.load_file(file)
    assert {name: (str(value.dtype), value.shape) for name, value in arrays.items()} == {
        "key": ("float32", (9, 4)),
        "id": ("int64", (9,)),
        **{name: (kind, (9,)) for name, kind in COLUMNS.items()},
    }


def test_nothing_may_be_given_as_empty_lists():
    index = MemoryIndex(3)
    assert index.append(np.empty((0, 3)), {name: [] for name in COLUMNS}, ids=[]).shape == (0,)
    assert len(index) == 0


def test_refusals_are_one_sentence():
    index, columns = built(drawn("normal", 4, 3, 0), about(4, 2, 0)), about(1, 1, 0)
    for wrong in (np.ones((1, 4)), np.ones(3)):
        with pytest.raises(ValueError, match=r"are not \[number, 3\]"):
            index.search(wrong, 1)
    for bad in (0.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="vector 1 of 2 is zero or not finite"):
            index.append(np.array([[1.0, 0, 0], [bad, 0, 0]]), about(2, 1, 0))
    with pytest.raises(ValueError, match="1 entry or more, not 0"):
        index.search(np.ones((1, 3)), 0)
    with pytest.raises(ValueError, match=r"ids of new entries ascend from 4 on: \[3\]"):
        index.append(np.ones((1, 3)), columns, ids=np.array([3]))
    with pytest.raises(ValueError, match="an entry has the columns owner, task"):
        index.append(np.ones((1, 3)), {"task": columns["task"]})
    with pytest.raises(ValueError, match=r"start of 1 entries has shape \(2,\)"):
        index.append(np.ones((1, 3)), {**columns, "start": np.zeros(2, int)})
    for wrong, says in (
        ({"task": [0.5]}, "task of 1 entries is of type float64, not int64"),
        ({"task": ["one"]}, "task of 1 entries is of type <U3, not int64"),
        ({"return": [np.nan]}, "return 0 of 1 entries is not finite as float32"),
        ({"return": [1e300]}, "return 0 of 1 entries is not finite as float32"),
    ):
        with pytest.raises(ValueError, match=says):
            index.append(np.ones((1, 3)), {**columns, **wrong})
    with pytest.raises(ValueError, match="id of 1 entries is of type float64"):
        index.append(np.ones((1, 3)), columns, ids=[4.5])
    with pytest.raises(ValueError, match="owner -1 is below 0"):
        index.append(np.ones((1, 3)), {**columns, "owner": np.array([-1])})
    with pytest.raises(ValueError, match="width of 1 or more, not 0"):
        MemoryIndex(0)
    with pytest.raises(ValueError, match="cannot keep -1"):
        index.keep_newest(-1)
    assert len(index) == 4
    assert index.next_id == 4
