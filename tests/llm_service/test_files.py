"""A file is complete or absent, and a write that fails leaves nothing beside it."""

import errno
import os

import pytest

from llm_service.files import replacing
from llm_service.lines import open_alone, put_in_place
from tests.llm_service.echo import Running


def full_disk(descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_takes_its_place_when_it_is_whole(tmp_path):
    path = tmp_path / "kept"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"kept": "new"}


@pytest.mark.parametrize("failure", [OSError, ValueError, KeyboardInterrupt])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, failure):
    path = tmp_path / "kept"
    path.write_text("old")

    def write():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise failure

    with pytest.raises(failure):
        write()
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"kept": "old"}


def test_an_address_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "address").mkdir()
    with pytest.raises(IsADirectoryError):
        Running(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["address", "token"]


def test_lines_that_cannot_be_written_leave_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"1\n2\n")
    (tmp_path / ".journal.jsonl.0123").write_text("of a process that was killed")
    file = open_alone(path)
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        put_in_place(path, file, [b"1\n"])
    os.close(file)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"journal.jsonl": b"1\n2\n"}
