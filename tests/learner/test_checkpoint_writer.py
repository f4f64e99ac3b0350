"""Checkpoints beside the learning: learning goes on, one is written at a time, and none is torn or lost."""

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from cluster.config.tree import compose
from cluster.roles.learners import learner_setup
from learner import checkpoint
from learner.checkpoint import BESIDE, Writer, latest, spacing
from learner.files import begin_attempt, write_arrays
from learner.group import Learner

LARGE = {"model": {"w": np.arange(BESIDE // 4, dtype=np.float32)}}
SMALL = {"model": {"w": np.zeros(3, np.float32)}}


def record(n):
    return {"counters": {"version": n}}


@pytest.fixture
def held(monkeypatch):
    """An event without which no write gets to its end."""
    go, real = threading.Event(), checkpoint.sync_folder
    monkeypatch.setattr(checkpoint, "sync_folder", lambda path: (go.wait(60), real(path)))
    yield go
    go.set()


def test_a_large_one_is_written_beside_and_is_absent_until_it_is_complete(tmp_path, held):
    writer = Writer()
    assert writer.write(tmp_path, 1, LARGE, record(1), 3, wait=False) is None
    writer.check()
    assert latest(tmp_path) is None
    assert writer.seconds == 0.0
    held.set()
    writer.finish()
    assert latest(tmp_path).record == record(1)
    np.testing.assert_array_equal(latest(tmp_path).arrays["model"]["w"], LARGE["model"]["w"])
    assert writer.seconds > 0


@pytest.mark.parametrize(("arrays", "wait"), [(SMALL, False), (LARGE, True)])
def test_a_small_one_and_the_last_one_are_complete_at_once(tmp_path, arrays, wait):
    writer = Writer()
    path = writer.write(tmp_path, 1, arrays, record(1), 3, wait=wait)
    assert latest(tmp_path).path == path
    assert writer.seconds == 0, "it spaces out nothing"


def test_one_is_written_at_a_time(tmp_path, held):
    writer, second = Writer(), threading.Event()
    writer.write(tmp_path, 1, LARGE, record(1), 3, wait=False)

    def write():
        writer.write(tmp_path, 2, LARGE, record(2), 3, wait=True)
        second.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert not second.wait(0.3)
    assert not list(tmp_path.glob(".v00000002*")), "the second has not begun"
    held.set()
    thread.join(60)
    assert [path.name for path in sorted(tmp_path.glob("v*"))] == ["v00000001", "v00000002"]


@pytest.mark.parametrize("by", ["check", "finish", "write"])
def test_a_failure_is_raised_at_the_next_chance_and_leaves_the_one_before(tmp_path, by, monkeypatch):
    writer = Writer()
    writer.write(tmp_path, 1, SMALL, record(1), 3, wait=True)

    def full(path, arrays):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "write_arrays", full)
    writer.write(tmp_path, 2, LARGE, record(2), 3, wait=False)
    writer._thread.submit(int).result()  # the write has ended
    monkeypatch.undo()
    more = (tmp_path, 3, SMALL, record(3), 3, True)
    with pytest.raises(OSError, match="No space left"):
        writer.write(*more) if by == "write" else getattr(writer, by)()
    assert [path.name for path in tmp_path.glob("*v0*")] == ["v00000001"]
    writer.check()
    assert writer.write(*more), "it is told once"


def test_a_newer_attempt_ends_it(tmp_path, held):
    folder = tmp_path / "run" / "checkpoints"
    own, writer = begin_attempt(folder), Writer()
    writer.write(folder, 1, LARGE, record(1) | {"attempt": own}, 3, wait=False)
    begin_attempt(folder)
    held.set()
    with pytest.raises(checkpoint.Superseded):
        writer.finish()
    assert latest(folder) is None


SCRIPT = """
import sys, threading, time
from pathlib import Path
from tests.learner.test_checkpoint_writer import LARGE, record
from learner.checkpoint import Writer
folder, writer = Path(sys.argv[1]), Writer()
for n in range(1, 1000):
    LARGE["model"]["w"][:] = n
    writer.write(folder, n, {"model": {"w": LARGE["model"]["w"].copy()}}, record(n), 2, wait=False)
    print(n, flush=True)
"""


@pytest.mark.parametrize("after", [2, 4])
def test_a_process_that_is_killed_while_it_writes_leaves_a_whole_one(tmp_path, after):
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if int(line) == after:
            break
    time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    found = latest(tmp_path)
    assert found.record["counters"]["version"] in (after - 1, after)
    assert not found.skipped
    assert (found.arrays["model"]["w"] == found.record["counters"]["version"]).all()


def test_arrays_are_the_librarys_file_and_a_refusal_is_an_oserror(tmp_path):
    arrays = {"b": np.arange(6.0).reshape(2, 3).T, "a": np.zeros((0, 4), np.int16), "c": np.array(3)}
    write_arrays(tmp_path / "a.safetensors", arrays)
    whole = {name: np.ascontiguousarray(value).reshape(value.shape) for name, value in arrays.items()}
    assert (tmp_path / "a.safetensors").read_bytes() == safetensors.numpy.save(whole)
    (tmp_path / "other").touch()
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode, "who may read it"
    with pytest.raises(FileNotFoundError):
        write_arrays(tmp_path / "absent" / "a.safetensors", arrays)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            write_arrays(tmp_path / "b.safetensors", {"a": np.zeros(1000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.errno == errno.EFBIG


def test_they_take_a_tenth_of_the_time_at_most_unless_every_update_is_asked_for():
    assert spacing(60.0, 0.2) == 60.0
    assert spacing(1e-6, 0.0) == 1e-6
    assert spacing(60.0, 30.0) == 300.0
    assert spacing(0.0, 30.0) == 0.0


def test_a_learner_writes_what_it_had_and_goes_on(tmp_path, held):
    """The checkpoint is of the version at which it was asked for, though the policy has changed since."""
    config = compose(["experiment=toy", "policy.hidden=1600"])
    learner = Learner(learner_setup(config, config.spec, Path()))
    before = learner.ready()
    assert sum(value.nbytes for value in before.values()) * 3 > BESIDE
    learner.save_beside(tmp_path, 0, {}, record(0), 3)
    for value in learner.policy.payload().values():
        value.add_(1.0)
    held.set()
    learner.save(tmp_path, 1, {}, record(1), 3)
    first, second = (checkpoint.read(path).arrays["model"] for path in sorted(tmp_path.glob("v*")))
    for name, value in before.items():
        np.testing.assert_array_equal(first[name], value)
        np.testing.assert_array_equal(second[name], value + 1)
