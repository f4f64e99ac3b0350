"""Several attempts at one run: who may save, and what is found when one dies or is late at any point."""

import json
import os
import threading

import numpy as np
import pytest

from learner import checkpoint, files
from learner.files import Superseded, begin_attempt
from tests.learner.fault_points import interrupted, lose


def arrays(value):
    return {"model": {"w": np.full(4, value, np.float32)}, "optimiser": {"m": np.full(4, value, np.float32)}}


def save(folder, attempt, version, keep=3):
    """A checkpoint whose content says who wrote it."""
    record = {"attempt": attempt, "n": version}
    return checkpoint.write(folder, version, arrays(100 * attempt + version), record, keep)


def who(found):
    """(attempt, version) of a checkpoint, once its arrays agree with its record."""
    attempt, version = found.record["attempt"], found.record["n"]
    for group in ("model", "optimiser"):
        assert all((value == 100 * attempt + version).all() for value in found.arrays[group].values())
    return attempt, version


def everything(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_numbers_count_from_one_and_say_where(tmp_path):
    assert [begin_attempt(tmp_path / "checkpoints") for _ in range(3)] == [1, 2, 3]
    assert files.newest_attempt(tmp_path / "checkpoints") == 3
    says = json.loads((tmp_path / "checkpoints/attempts/00000002").read_text())
    assert says["host"] == os.uname().nodename
    assert says["pid"] == os.getpid()


def test_no_number_is_taken_twice(tmp_path):
    """Eight processes at once, and threads in each."""

    def take(into):
        taken = []

        def some():
            taken.extend([begin_attempt(tmp_path) for _ in range(10)])

        threads = [threading.Thread(target=some) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        into.write_text(json.dumps(taken))

    children = []
    for n in range(8):
        child = os.fork()
        if child == 0:
            take(tmp_path.parent / f"{tmp_path.name}-{n}.json")
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    lists = [json.loads((tmp_path.parent / f"{tmp_path.name}-{n}.json").read_text()) for n in range(8)]
    assert sorted(number for taken in lists for number in taken) == list(range(1, 161))


def test_an_older_attempt_cannot_save_and_changes_nothing(tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    first = begin_attempt(folder)
    save(folder, first, 1)
    second = begin_attempt(folder)
    before = everything(folder)
    for version in (1, 2):
        with pytest.raises(Superseded, match=r"^attempt 1 at 'run' ends without saving, because attempt 2 has begun"):
            save(folder, first, version)
    assert everything(folder) == before
    assert who(checkpoint.latest(folder)) == (1, 1)  # the second goes on from there
    save(folder, second, 2)
    assert who(checkpoint.latest(folder)) == (2, 2)


def test_a_writer_that_never_began_one_cannot_save_beside_those_who_did(tmp_path):
    checkpoint.write(tmp_path, 1, arrays(1), {})
    begin_attempt(tmp_path)
    with pytest.raises(Superseded, match="attempt 0"):
        checkpoint.write(tmp_path, 2, arrays(2), {})


def test_a_newer_attempt_comes_first_though_it_counts_less(tmp_path):
    """It fell back to an earlier checkpoint, or the older one saved once more after it had looked."""
    first = begin_attempt(tmp_path)
    for version in (90, 100, 120):
        save(tmp_path, first, version)
    second = begin_attempt(tmp_path)
    save(tmp_path, second, 95)
    assert who(checkpoint.latest(tmp_path)) == (2, 95)
    save(tmp_path, second, 96)
    save(tmp_path, second, 97)
    assert sorted(p.name for p in tmp_path.glob("v*")) == ["v00000095-a0002", "v00000096-a0002", "v00000097-a0002"]


def test_checkpoints_from_before_attempts_are_read_and_are_the_oldest(tmp_path):
    for version in (7, 8):
        checkpoint.write(tmp_path, version, arrays(version), {"attempt": 0, "n": version})
    assert sorted(p.name for p in tmp_path.glob("v*")) == ["v00000007", "v00000008"]
    assert who(checkpoint.latest(tmp_path)) == (0, 8)
    save(tmp_path, begin_attempt(tmp_path), 8)
    assert who(checkpoint.latest(tmp_path)) == (1, 8)


def test_one_version_may_be_saved_again_and_again(tmp_path):
    attempt = begin_attempt(tmp_path)
    names = [save(tmp_path, attempt, 5, keep=2).name for _ in range(5)]
    assert len(set(names)) == 5
    assert sorted(p.name for p in tmp_path.glob("v*")) == names[-2:]
    assert checkpoint.latest(tmp_path).path.name == names[-1]


@pytest.mark.parametrize("power", ["stays", "fails"])
def test_killed_before_every_change_a_good_checkpoint_loads(tmp_path, power):
    """A forked process dies before the n-th change that its attempt makes to the folder, for every n."""

    def die(unsynced):
        if power == "fails":
            lose(unsynced)
        os._exit(9)

    seen = []
    for n in range(200):
        folder = tmp_path / str(n)
        save(folder, begin_attempt(folder), 1, keep=1)
        child = os.fork()
        if child == 0:
            with interrupted(folder, n, die):
                save(folder, begin_attempt(folder), 2, keep=1)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 9)
        seen.append(who(checkpoint.latest(folder)))
        successor = begin_attempt(folder)  # whatever was left behind is not in its way
        save(folder, successor, 3, keep=1)
        assert who(checkpoint.latest(folder)) == (successor, 3)
        assert not list(folder.glob(".v*"))
        if code == 0:
            break
    assert code == 0
    assert n > 20  # every file, its sync, both renames, what is pruned
    assert seen == sorted(seen)  # once the new one is complete it stays
    assert set(seen) == {(1, 1), (2, 2)}


@pytest.mark.parametrize("saves", [False, True])
def test_a_newer_attempt_may_begin_before_every_change_of_an_older_ones_save(tmp_path, saves):
    """What the newer one has read or written stays; the older one is told, unless it was through."""
    with interrupted(tmp_path / "alone", 10**6, None) as changes:
        save(tmp_path / "alone", 0, 2)
    named = next(i for i, change in enumerate(changes) if change.startswith("os.rename"))
    told = 0
    for n in range(200):
        folder = tmp_path / str(n)
        first = begin_attempt(folder)
        save(folder, first, 1, keep=1)
        newer = {}

        def step_in(_, folder=folder, newer=newer):
            newer["attempt"] = begin_attempt(folder)
            newer["found"] = who(checkpoint.latest(folder))
            if saves:
                newer["path"] = save(folder, newer["attempt"], newer["found"][1] + 1, keep=1)
                newer["content"] = everything(newer["path"])

        superseded = False
        with interrupted(folder, n, step_in) as changes:
            try:
                save(folder, first, 2, keep=1)
            except Superseded:
                superseded = True
        if len(changes) <= n:
            break
        told += superseded
        assert newer["found"] in ((1, 1), (1, 2))
        if n < named and not saves:
            assert superseded
            assert sorted(p.name for p in folder.glob("*v*-a*")) == ["v00000001-a0001"]  # as it was
        if saves:
            assert everything(newer["path"]) == newer["content"]
            assert who(checkpoint.latest(folder)) == (2, newer["found"][1] + 1)
        else:
            assert who(checkpoint.latest(folder)) in ((1, 1), (1, 2))
        with pytest.raises(Superseded):
            save(folder, first, 3)
    else:
        pytest.fail("the save never came to its end")
    assert told > 10


def test_an_older_attempt_that_is_told_late_does_no_harm(tmp_path, monkeypatch):
    """Its view of the folder of attempts is a cached one."""
    first = begin_attempt(tmp_path)
    save(tmp_path, first, 100)
    second = begin_attempt(tmp_path)
    save(tmp_path, second, 101)
    (tmp_path / ".v00000102-a0002").mkdir()  # the newer one is at it just now
    with monkeypatch.context() as patch:
        patch.setattr(files, "newest_attempt", lambda _: first)
        for version in range(103, 109):
            save(tmp_path, first, version, keep=2)
    assert (tmp_path / ".v00000102-a0002").is_dir()
    assert who(checkpoint.latest(tmp_path)) == (2, 101)
    with pytest.raises(Superseded):
        save(tmp_path, first, 109)


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path):
    attempt = begin_attempt(tmp_path)
    with interrupted(tmp_path, 10**6, None) as changes:
        save(tmp_path, attempt, 1)
    temporary = f"{tmp_path}/.v00000001-a0001"
    renamed = changes.index(f"os.rename {temporary}")
    written = [change.removeprefix("open ") for change in changes[:renamed] if change.startswith("open")]
    assert len({*written}) == 4
    assert {f"os.fsync {path}" for path in (*written, temporary)} <= set(changes[:renamed])
    latest = next(i for i, change in enumerate(changes) if change.startswith(f"open {tmp_path}/.LATEST"))
    assert f"os.fsync {tmp_path}" in changes[renamed:latest]
    assert changes[-1].startswith(f"os.rename {tmp_path}/.LATEST")


def test_an_error_at_any_change_is_raised_and_the_next_save_succeeds(tmp_path):
    def fill(_):
        raise OSError(28, "the disk is full")

    for n in range(200):
        folder = tmp_path / str(n)
        attempt = begin_attempt(folder)
        save(folder, attempt, 1)
        failed = []
        with interrupted(folder, n, fill) as changes:
            try:
                save(folder, attempt, 2)
            except OSError as error:
                failed.append(str(error))
        if len(changes) <= n:
            break
        assert failed == ["[Errno 28] the disk is full"]
        assert who(checkpoint.latest(folder)) in ((1, 1), (1, 2))
        save(folder, attempt, 3)
        assert who(checkpoint.latest(folder)) == (1, 3)
    assert n > 14
