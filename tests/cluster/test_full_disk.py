"""A full disk ends a run in one sentence, and its status says so. It costs what came after the last checkpoint."""

import errno
import json
import os

import pytest

from cluster import run as controller
from cluster.cli.terminal import guard
from cluster.config.tree import compose
from cluster.roles.backend import DiskFull, Handle, Inline
from cluster.runs.folder import RunFolder, is_running
from cluster.runs.run_data import load
from learner import checkpoint

SENTENCE = "the disk that {} writes to is full: free some space, then resume; what was saved is intact"


class Disk:
    """Waits for its content as a disk does. After the first checkpoint it has no room for files that `part` is in the
    path of, but for what is written in the place of what was there."""

    def __init__(self, run, part):
        self.run, self.part, self.refused, self.fsync = run, part, 0, os.fsync

    def __call__(self, handle):
        path = os.readlink(f"/proc/self/fd/{handle}")
        if self.part in path and path != str(self.run / "status.json") and any(self.run.glob("checkpoints/v*")):
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.fsync(handle)


@pytest.mark.parametrize(
    ("part", "who"), [("", "learner-0"), ("metrics.jsonl", "run 'a'"), ("checkpoints/.v", "learner-0")]
)
def test_a_run_says_it_ends_and_goes_on_once_there_is_room(tmp_path, monkeypatch, part, who):
    words = ["env=toy/Line", "cluster=inline", "policy.hidden=16", "actors.envs=4", "actors.steps=8"]
    words += ["learner.env_steps=512", "run.checkpoint_every_s=0.001", "evaluate.episodes=4"]
    run = tmp_path / "a"
    disk = Disk(run, part)
    monkeypatch.setattr(os, "fsync", disk)
    with pytest.raises(DiskFull) as ended:
        controller.run(compose([*words, f"run.folder={tmp_path}", "run.name=a"]))
    monkeypatch.undo()
    assert disk.refused
    assert str(ended.value) == SENTENCE.format(who)
    assert ended.value.exit_code == 5
    status = RunFolder(run).read_status()
    assert (status["state"], status["reason"]) == ("stopped", SENTENCE.format(who))
    assert not is_running(status)
    assert not [path.name for path in run.rglob(".*")]  # half a file takes room
    assert load(run).status == status
    saved = checkpoint.latest(run / "checkpoints").record["counters"]["env_steps"]
    assert 0 < saved < 512
    assert controller.resume(run, [], False) == 0
    assert RunFolder(run).read_status()["state"] == "done"
    versions = [row["version"] for row in load(run).train]
    assert versions == sorted(set(versions))


def test_the_last_status_is_told_in_the_room_that_there_is(tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path / "a")
    folder.write_status(state="running", heartbeats={"actor-0": "x" * 1000}, env_steps=7)
    before = (folder.path / "status.json").stat()

    def refuse(handle):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fsync", refuse)
    folder.write_last_status(state="stopped", reason="the disk is full")
    after = (folder.path / "status.json").stat()
    assert (after.st_ino, after.st_blocks) == (before.st_ino, before.st_blocks)
    told = json.loads((folder.path / "status.json").read_text())
    assert (told["state"], told["reason"], told["env_steps"]) == ("stopped", "the disk is full", 7)
    assert not [path.name for path in folder.path.glob(".*")]


def test_another_error_of_a_disk_is_none_of_room(tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path / "a")
    folder.write_status(state="running")

    def refuse(handle):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        folder.write_last_status(state="stopped")


class Writer:
    def write(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_role_that_finds_its_disk_full_is_named_and_not_started_again():
    backend = Inline()
    with pytest.raises(DiskFull, match="the disk that actor-3 writes to is full"):
        backend.result(backend.submit(Handle("actor-3", Writer()), "write"))


def test_a_run_that_cannot_even_begin_ends_in_the_same_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        guard(Writer().write, tmp_path / "a")
    assert ended.value.code == 5
    assert capsys.readouterr().err == f"error: {SENTENCE.format('run ' + repr('a'))}\n"
    assert list(tmp_path.iterdir()) == []
