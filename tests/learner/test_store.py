"""A store of episodes gives back what was written, whoever wrote it and whatever happened to them."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.api import Episodes, Field
from envs.text import text_hash
from learner.files import Attempt, Superseded
from learner.store.episodes import (
    EpisodeStore,
    EpisodeWriter,
    Layout,
    Steps,
    StoreError,
    digest,
    forget_unfinished,
    shards,
)

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {
    "image": Field("grid", (3, 2, 3)),
    "position": Field("category", size=300),
    "mission": Field("text"),
    "told": Field("text", (2,)),
    "speed": Field("vector", (4,)),
}
LAYOUT = Layout(FIELDS, ("left", "right", "stay"))
WORDS = [f"text {i}" for i in range(40)]
TEXTS = {text_hash(word): word for word in WORDS}
HASHES = np.array(list(TEXTS))


def made(seed, lengths, layout=LAYOUT):
    """Episodes of these lengths, their steps and all texts, drawn."""
    random, n, total = np.random.default_rng(seed), len(lengths), int(sum(lengths))
    episodes = Episodes(
        env=np.arange(n, dtype=np.int32),
        episode=np.zeros(n, np.int64),
        seed=random.integers(0, 2**40, n),
        length=np.array(lengths, np.int32),
        total=random.random(n, np.float32),
        success=random.random(n) < 0.5,
        kind=random.integers(0, 5, n).astype(np.int16),
        away=np.zeros(n, np.int32),
    )
    obs = {}
    for name, field in layout.fields.items():
        if field.kind == "text":
            obs[name] = random.choice(HASHES, (total, *field.shape))
        elif field.kind == "vector":
            obs[name] = random.random((total, *field.shape), np.float32)
        else:
            obs[name] = random.integers(0, 200, (total, *field.shape)).astype(field.dtype)
    shape = (total, *layout.action_shape)
    action = random.integers(0, 3, total) if layout.actions else random.random(shape, np.float32)
    return episodes, Steps(obs, action, random.random(total, np.float32)), TEXTS


def write(folder, parts, layout=LAYOUT):
    writer = EpisodeWriter(folder, layout, {"env": "made"})
    for name, part in parts.items():
        writer.write(name, *part)
    return EpisodeStore(folder)


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


# ---- other processes ------------------------------------------------------------------------------------------------


def endless(folder, writer):
    """Write shards until killed."""
    into = EpisodeWriter(Path(folder), LAYOUT, {"env": "made"})
    i = 0
    while True:
        into.write(f"{writer}-{i:05d}", *made([writer, i], [3, 1, 4]))
        i += 1
        print(i, flush=True)


def start(folder, writer):
    code = f"from tests.learner.test_store import endless; endless({str(folder)!r}, {writer})"
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


def both(folder, count=2):
    """Attempts at one run, and a writer of each."""
    attempts = [Attempt.begin(folder.parent / "run" / "checkpoints") for _ in range(count)]
    return attempts, [EpisodeWriter(folder, LAYOUT, {"env": "made"}, attempt) for attempt in attempts]


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
