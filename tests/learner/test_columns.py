"""Files of a replay: what a checkpoint refers to is there, whole and its own, or one sentence says what to do."""

import errno
import json
import os
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.api import Field
from envs.text import TextTable
from learner.store import columns as module
from learner.store.columns import Columns, ReplayError
from llm_service.errors import UsageError
from tests.learner.lives import FIELDS, Lives
from tests.learner.test_replay import assert_lived, drawn, replay_of

LAYOUT = {"a": ("uint8", (2,)), "b": ("float32", ())}


def texts_of(*texts):
    table = TextTable()
    for text in texts:
        table.intern(text)
    return table


def opened(folder, layout=LAYOUT, lanes=2, rows=5):
    columns = Columns(lanes, rows, folder)
    columns.open(layout)
    return columns


# ---- names ----------------------------------------------------------------------------------------------------------

HARD = ["a/b", "../up", "..", "con", "CON", "View", "x" * 300, "x" * 301, "é", "e", "", ".", "reached", "texts.jsonl"]


@given(st.lists(st.one_of(st.sampled_from(HARD), st.text(max_size=50)), unique=True, max_size=120))
def test_every_column_has_a_safe_file_of_its_own(names):
    files = Columns(1, 1, None)._files(dict.fromkeys(names, ("uint8", ())))
    assert len({file.lower() for file in files}) == len(names) + 1  # also where upper and lower case are one
    for file in files:
        assert set(file) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
        assert len(file) < 60
        assert not file.startswith(".")


def test_fields_of_any_name_are_kept_apart(tmp_path):
    fields = FIELDS | {name: Field("category", size=9 + k) for k, name in enumerate(HARD)}
    life = Lives(2, fields=fields)
    replay = replay_of([life], 60, folder=tmp_path / "in" / "here")
    for _ in range(4):
        replay.insert(life.some(8))
    state = replay.state()
    again = replay_of([life], 60, folder=tmp_path / "in" / "here")
    again.restore(state)
    sample = drawn(again)
    assert_lived(again, sample, [life], 3)
    for k, name in enumerate(HARD):
        np.testing.assert_array_equal(sample.obs[name], sample.obs["number"][:, 0].astype(int) % (9 + k))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


# ---- space ----------------------------------------------------------------------------------------------------------


def test_space_is_taken_when_the_files_are_made(tmp_path):
    opened(tmp_path / "replay", {"a": ("uint8", (1000,))}, 2, 500)
    file = (tmp_path / "replay" / "00-a.raw").stat()
    assert file.st_size == 1_000_000
    assert file.st_blocks * 512 >= 1_000_000  # a file of zeros with holes would have none


def test_a_file_system_that_cannot_promise_space_is_used_all_the_same(tmp_path, monkeypatch):
    def cannot(descriptor, start, size):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", cannot)
    columns = opened(tmp_path / "replay")
    columns["a"][:] = 3
    assert (tmp_path / "replay" / "00-a.raw").read_bytes() == b"\3" * 20


@pytest.mark.parametrize("told", ["before", "while"])
def test_a_disk_that_is_too_small_is_told_with_sizes_and_left_empty(tmp_path, told, monkeypatch):
    def full(descriptor, start, size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    rows = 10**16 if told == "before" else 10**9
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**13, 0, 10**13))
    if told == "while":  # what is free is not ours, or another takes it
        monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(
        UsageError, match=r"GB in .*, where 10,000\.0 GB are free \(No space.*lower learner\.dqn\.capacity"
    ):
        opened(tmp_path / "replay", {"a": ("uint8", (6,))}, 1, rows)
    assert list(tmp_path.iterdir()) == []


# ---- texts ----------------------------------------------------------------------------------------------------------


def kept(folder, *texts):
    """Columns with these texts, as a process left them."""
    columns = opened(folder)
    columns.flush(texts_of(*texts))
    return columns


def again(folder, texts, generation=1):
    columns = Columns(2, 5, folder)
    found = columns.find(generation, texts)
    return found and columns.reopen(found, generation, texts)


@pytest.mark.parametrize("tail", [b"", b'"three"\n', b'"thr', b'"three"', b"\xff\0\n"])
def test_texts_beyond_the_checkpoint_are_forgotten_whole_or_cut_off(tmp_path, tail):
    kept(tmp_path / "replay", "one", "two\n\r\u2028")
    with open(tmp_path / "replay" / "texts.jsonl", "ab") as file:
        file.write(tail)
    columns = Columns(2, 5, tmp_path / "replay")
    assert columns.reopen(columns.find(1, 2), 1, 2) == ["one", "two\n\r\u2028"]
    columns.flush(texts_of("one", "two\n\r\u2028", "four"))
    assert again(tmp_path / "replay", 3) == ["one", "two\n\r\u2028", "four"]


@pytest.mark.parametrize(
    "content", [b"", b'"one"\n', b'"one"\n"two"', b'"one"\n"tw', b'"one"\n"one"\n', b'"one"\ntwo\n', None]
)
def test_texts_that_the_checkpoint_names_and_are_not_there_are_told(tmp_path, content):
    kept(tmp_path / "replay", "one", "two")
    file = tmp_path / "replay" / "texts.jsonl"
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(ReplayError, match=r"damaged, texts\.jsonl does not .* 2 texts .*or delete .*replay to go on"):
        again(tmp_path / "replay", 2)
    assert content is None or file.read_bytes() == content


def test_a_part_that_a_failed_flush_left_is_overwritten(tmp_path, monkeypatch):
    columns = kept(tmp_path / "replay", "one")
    texts = texts_of("one", "two", "three")

    def fail(descriptor):
        raise OSError(errno.EIO, "the disk is ill")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="ill"):
            columns.flush(texts)
    columns.flush(texts)
    assert again(tmp_path / "replay", 3) == ["one", "two", "three"]


# ---- order ----------------------------------------------------------------------------------------------------------


def test_rows_and_texts_are_on_the_disk_before_there_is_a_state(tmp_path, monkeypatch):
    """Every file by its own fsync or msync, and every new name by one of its folder."""
    synced = set()
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.add(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    flush = np.memmap.flush
    monkeypatch.setattr(np.memmap, "flush", lambda array: (synced.add(str(array.filename)), flush(array)))
    life, folder = Lives(2), tmp_path / "run" / "replay" / "rank-0"
    replay = replay_of([life], 100, folder=folder)
    replay.insert(life.some(8))
    assert {str(folder), str(folder.parent), str(folder.parent.parent)} <= synced
    assert any(".schema.json" in name for name in synced)
    synced.clear()
    replay.state()
    assert synced == {str(path) for path in folder.iterdir() if path.name != "schema.json"}


def test_that_rows_go_is_on_the_disk_before_rows_are_overwritten_that_a_checkpoint_may_draw(tmp_path, monkeypatch):
    """After a crash of the machine the pages of a file come back in any order; up to the slack it does not matter."""
    life = Lives(1)
    replay = replay_of([life], 200, folder=tmp_path / "replay")
    quiet = np.zeros((5, 1), bool)
    for _ in range(60):
        replay.insert(life.chunk(quiet, quiet))
    replay.state()
    events = []
    flush, write = np.memmap.flush, replay._write
    monkeypatch.setattr(np.memmap, "flush", lambda array: (events.append(int(array[0])), flush(array)))
    monkeypatch.setattr(replay, "_write", lambda *args: (events.append("rows"), write(*args)))
    for _ in range(6):
        replay.insert(life.chunk(quiet, quiet))
    assert events == ["rows"] * 4 + [325, "rows", 330, "rows"]


# ---- which rows -----------------------------------------------------------------------------------------------------


def test_rows_of_another_beginning_are_not_taken_for_those_of_the_checkpoint(tmp_path):
    """The folder is lost, the replay fills anew, and the learner dies before its next checkpoint."""
    life, folder = Lives(2), tmp_path / "replay"
    replay = replay_of([life], 100, folder=folder)
    for _ in range(4):
        replay.insert(life.some(5, ends=0.0))
    state = replay.state()
    shutil.rmtree(folder)
    second = replay_of([life], 100, folder=folder)
    second.restore(state)
    assert (second.rows, second.lost) == (0, 34)
    chunks = [life.some(5, ends=0.0) for _ in range(8)]
    for chunk in chunks:  # more rows than the checkpoint knew
        second.insert(chunk)
    third = replay_of([life], 100, folder=folder)
    third.restore(state)
    assert (third.rows, third.lost) == (0, 34)
    for chunk in chunks:
        third.insert(chunk)
    state = third.state()
    fourth = replay_of([life], 100, folder=folder)
    fourth.restore(state)
    assert (fourth.rows, fourth.lost) == (2 * 37, 0)
    assert_lived(fourth, drawn(fourth), [life], 3)


def test_rows_that_were_kept_in_memory_for_a_while_are_lost_and_old_files_are_not_used(tmp_path):
    life, folder = Lives(2), tmp_path / "replay"
    state = None
    for kept_in in (folder, None, folder):
        replay = replay_of([life], 100, folder=kept_in)
        if state:
            replay.restore(state)
            assert replay.rows == 0
        for _ in range(4):
            replay.insert(life.some(5))
        state = replay.state()
    assert_lived(replay, drawn(replay), [life], 3)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: os.truncate(folder / "04-reward.goal.raw", 10), r"04-reward\.goal\.raw has 10 bytes, not 800"),
        (lambda folder: (folder / "reached.raw").unlink(), r"reached\.raw has 0 bytes, not 16"),
        (lambda folder: (folder / "schema.json").write_text('{"format": 2'), r"schema\.json is not whole"),
        (lambda folder: (folder / "schema.json").write_text("[]"), r"schema\.json is not whole"),
        (lambda folder: (folder / "schema.json").write_text('{"format": 1}'), "another version of this code"),
    ],
)
def test_a_folder_that_is_not_whole_is_told_and_left_as_it_is(tmp_path, spoil, told):
    life, folder = Lives(2), tmp_path / "replay"
    replay = replay_of([life], 100, folder=folder)
    replay.insert(life.some(5))
    state = replay.state()
    spoil(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ReplayError, match=f"{told}.*or delete {folder} to go on with an empty replay"):
        replay_of([life], 100, folder=folder).restore(state)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_does_not_fit_the_run_is_told_with_what_to_do(tmp_path):
    life, folder = Lives(2), tmp_path / "replay"
    replay = replay_of([life], 100, folder=folder)
    replay.insert(life.some(5))
    state = replay.state()
    with pytest.raises(ReplayError, match=r"2 envs, not 4: resume with the actors\.n, actors\.envs and learner\.n"):
        replay_of([life, Lives(2, actor=1)], 100, folder=folder).find(state)
    with pytest.raises(ReplayError, match=r"2 envs of 100 rows each, not 2 of 120: .*dqn\.capacity .*or delete"):
        replay_of([life], 120, folder=folder).find(state)
    other = Lives(2, fields=FIELDS | {"kind": Field("category", size=9), "new": Field("text")})
    with pytest.raises(ReplayError, match=r"\(obs\.kind, obs\.new differ\): resume with the env, goals.* or delete"):
        replay_of([other], 100, folder=folder).find(state)
    assert replay_of([life], 100, folder=folder).find(state)
    shutil.rmtree(folder)
    assert replay_of([life], 120, folder=folder).find(state) is None


def test_the_schema_says_what_each_file_is(tmp_path):
    columns = opened(tmp_path / "replay", {"a/b": ("uint16", (3,)), "A.b": ("bool", ())}, 2, 5)
    columns["a/b"][:] = np.arange(30).reshape(10, 3)
    schema = json.loads((tmp_path / "replay" / "schema.json").read_text())
    assert schema == {
        "format": module.FORMAT, "generation": 1, "lanes": 2, "rows": 5,
        "columns": [["a/b", "uint16", [3]], ["A.b", "bool", []]],
    }  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "replay").iterdir()) == [
        "00-a_b.raw", "01-a.b.raw", "reached.raw", "schema.json", "texts.jsonl",
    ]  # fmt: skip
    np.testing.assert_array_equal(np.fromfile(tmp_path / "replay" / "00-a_b.raw", np.uint16), np.arange(30))
