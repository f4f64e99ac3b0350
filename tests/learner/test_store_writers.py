"""Who writes a store, killed or overtaken, leaves whole shards, and touches no shard of a newer attempt."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from learner.files import Superseded
from learner.store.episodes import EpisodeStore, EpisodeWriter, StoreError, close, digest, forget_unfinished, shards
from learner.store.pieces import COLUMNS, Pieces
from tests.learner.episodes import LAYOUT, TEXTS, both, in_pieces, made, write

ROOT = Path(__file__).resolve().parents[2]


def endless(folder, writer):
    """Write shards until killed."""
    into = EpisodeWriter(Path(folder), LAYOUT, {"env": "made"})
    i = 0
    while True:
        into.write(f"{writer}-{i:05d}", *made([writer, i], [3, 1, 4]))
        i += 1
        print(i, flush=True)


def start(folder, writer):
    code = f"from tests.learner.test_store_writers import endless; endless({str(folder)!r}, {writer})"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_writers_that_are_killed_leave_whole_shards_only(tmp_path):
    """Three at once, each killed somewhere in its work, again and again."""
    folder = tmp_path / "store"
    processes = [start(folder, writer) for writer in range(3)]
    told = [0, 0, 0]
    for i, process in enumerate(processes):
        for _ in range(5 + 3 * i):
            told[i] = int(process.stdout.readline())
        time.sleep(0.003 * i)
        process.send_signal(signal.SIGKILL)
        process.wait()
    store = EpisodeStore(folder)
    names = list(shards(folder))
    assert names == sorted(names)
    for writer in range(3):
        own = [name for name in names if name.startswith(f"{writer}-")]
        assert own == [f"{writer}-{i:05d}" for i in range(len(own))]
        assert len(own) >= told[writer]  # what was reported is there
    expected = np.concatenate([made([int(n[0]), int(n[2:])], [3, 1, 4])[1].reward for n in names])
    np.testing.assert_array_equal(store.rows(np.arange(store.steps)).reward, expected)
    (folder / ".3-00000.arrow.77").write_bytes(b"half")
    (folder / "3-00000.arrow").write_bytes(b"without an entry")
    forget_unfinished(folder)
    listed = {file for entry in shards(folder).values() for file in entry["sha256"]}
    assert {path.name for path in folder.glob("*.arrow")} == listed
    assert not list(folder.glob(".*"))
    assert EpisodeStore(folder).steps == store.steps


def test_a_closed_store_does_not_grow(tmp_path):
    folder = tmp_path / "store"
    write(folder, {"0": made(0, [2, 3])})
    close(folder)
    before = digest(folder)
    EpisodeWriter(folder, LAYOUT, {"env": "made"}).write("1", *made(1, [2]))
    assert digest(folder) == before
    assert (len(EpisodeStore(folder)), list(shards(folder))) == (2, ["0"])
    forget_unfinished(folder)
    assert not list(folder.glob("1*"))
    assert len(EpisodeStore(folder)) == 2
    (folder / "closed.json").write_text("{")
    with pytest.raises(StoreError, match=r"closed\.json is damaged"):
        EpisodeStore(folder)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_rewards(folder, *seeds):
    expected = np.concatenate([made(seed, [2, 3])[1].reward for seed in seeds])
    np.testing.assert_array_equal(EpisodeStore(folder).rows(np.arange(len(expected))).reward, expected)


def test_an_older_attempt_touches_no_shard_of_a_newer_one(tmp_path):
    folder = tmp_path / "store"
    (first, second), (stale, newer) = both(folder)
    stale.write("0", *made(0, [2, 3]))
    newer.write("1", *made(1, [2, 3]))
    newer.write("2", *made(2, [2, 3]))
    (folder / ".3-a0002.arrow.77").write_bytes(b"the newer one is at it just now")
    (folder / "3-a0002.arrow").write_bytes(b"the newer one is at it just now")
    before, digested = files(folder), digest(folder)
    with pytest.raises(Superseded, match="attempt 1 at 'run' ends without saving, because attempt 2 has begun"):
        forget_unfinished(folder, first)
    stale.write("1", *made(7, [2, 3]))  # an actor that cannot know
    assert {name: files(folder)[name] for name in before} == before
    assert_rewards(folder, 0, 1, 2)
    assert digest(folder) == digested
    stale.write("0", *made(8, [2, 3]))  # what the newer one counts on stays as it is
    assert {name: files(folder)[name] for name in before} == before
    (folder / "4-a0001.arrow").write_bytes(b"half")
    assert list(forget_unfinished(folder, second)) == ["0", "1", "2"]
    assert sorted(files(folder)) == sorted([*(set(before) - {".3-a0002.arrow.77", "3-a0002.arrow"})])
    assert_rewards(folder, 0, 1, 2)


def test_of_the_writers_of_a_shard_in_one_attempt_the_last_counts_whoever_writes_last(tmp_path):
    folder = tmp_path / "store"
    (first, second), _ = both(folder.with_name("other"))
    EpisodeWriter(folder, LAYOUT, {}, pieces=True)
    for attempt, lives, seed in (
        (first, (7, 7), 0),
        (second, (0, 10), 1),
        (second, (1, 0), 3),
        (second, (0, 9), 2),
        (second, (0, 11), 4),
    ):
        rows, steps, _ = in_pieces(seed, [3], [])
        columns = {name: np.array([row[name] for row in rows]).astype(dtype) for name, dtype in COLUMNS.items()}
        EpisodeWriter.join(folder, attempt, lives).write("0", Pieces(**columns), steps, TEXTS)
    np.testing.assert_array_equal(EpisodeStore(folder).rows(np.arange(3)).reward, made(3, [3])[1].reward)
    forget_unfinished(folder, second, lambda name: name == "0")
    assert len(list(folder.glob("0*"))) == 3
    forget_unfinished(folder, second, lambda name: False)
    assert [path.name for path in folder.iterdir()] == ["store.json"]


def test_who_wrote_a_shard_does_not_show_in_the_digest(tmp_path):
    plain = write(tmp_path / "plain", {"0": made(0, [2, 3]), "1": made(1, [2, 3])}).folder
    folder = tmp_path / "store"
    _, (one, two) = both(folder)
    one.write("0", *made(0, [2, 3]))
    two.write("1", *made(1, [2, 3]))
    assert digest(folder) == digest(plain)
    names = [sorted(entry["sha256"].items()) for entry in shards(plain).values()]
    assert digest(plain) == hashlib.sha256(json.dumps(names).encode()).hexdigest()  # as manifests of before have it


def test_a_store_from_before_attempts_is_continued(tmp_path):
    folder = tmp_path / "store"
    write(folder, {"0": made(0, [2, 3]), "1": made(1, [2, 3])})
    (attempt,), (writer,) = both(folder, 1)
    assert list(forget_unfinished(folder, attempt)) == ["0", "1"]
    writer.write("1", *made(5, [2, 3]))
    writer.write("2", *made(6, [2, 3]))
    assert_rewards(folder, 0, 5, 6)
    forget_unfinished(folder, attempt)
    assert sorted(path.name for path in folder.glob("*.json")) == [
        "0.json",
        "1-a0001.json",
        "2-a0001.json",
        "store.json",
    ]
