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
    close,
    digest,
    forget_unfinished,
    shards,
)
from learner.store.pieces import COLUMNS, Pieces

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


# ---- pieces ---------------------------------------------------------------------------------------------------------


def in_pieces(seed, lengths, cuts, layout=LAYOUT):
    """Episodes as `made` gives them, cut into pieces after the steps `cuts` of all; rows of pieces, and their steps."""
    episodes, steps, _ = made(seed, lengths, layout)
    ends = np.cumsum(lengths)
    stops = sorted({*ends.tolist(), *(cut for cut in cuts if 0 < cut < ends[-1])})
    rows = []
    for start, stop in zip([0, *stops], stops, strict=False):
        e = int(np.searchsorted(ends, start, side="right"))
        of = {name: getattr(episodes, name)[e] for name in ("seed", "total", "success", "kind")}
        over = stop == ends[e]
        row = {name: value if over else 0 for name, value in of.items()}
        place = {"env": e % 3, "episode": e // 3, "first": start - (ends[e] - lengths[e])}
        when = {"source": 7 * e if over else 0, "task": e % 4 if over else 0}
        rows.append(row | place | when | {"length": stop - start, "ended": over})
    return rows, steps, [slice(a, b) for a, b in zip([0, *stops], stops, strict=False)]


def write_pieces(folder, rows, steps, slices, holders):
    """Pieces, each into the shard that `holders` says."""
    writer = EpisodeWriter(folder, LAYOUT, {"env": "made"}, pieces=True)
    for holder in sorted(set(holders)):
        own = [i for i, of in enumerate(holders) if of == holder]
        index = np.concatenate([np.arange(slices[i].start, slices[i].stop) for i in own])
        columns = {name: np.array([rows[i][name] for i in own]).astype(dtype) for name, dtype in COLUMNS.items()}
        some = Steps({n: c[index] for n, c in steps.obs.items()}, steps.action[index], steps.reward[index])
        writer.write(f"{holder:03d}", Pieces(**columns), some, TEXTS)
    return EpisodeStore(folder)


def assert_same(one, two):
    assert len(one) == len(two)
    for name in ("seed", "length", "total", "success", "kind", "env", "episode", "source", "task", "first"):
        assert getattr(one, name).dtype == getattr(two, name).dtype
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    every = np.random.default_rng(0).permutation(one.steps)
    found, expected = one.rows(every), two.rows(every)
    np.testing.assert_array_equal(found.action, expected.action)
    np.testing.assert_array_equal(found.reward, expected.reward)
    for name in LAYOUT.fields:
        np.testing.assert_array_equal(found.obs[name], expected.obs[name], err_msg=name)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    cuts=st.sets(st.integers(1, 70)),
    holders=st.lists(st.integers(0, 4), min_size=80, max_size=80),
    order=st.randoms(use_true_random=False),
)
def test_any_cut_of_episodes_into_pieces_and_shards_is_the_same_store(tmp_path_factory, lengths, cuts, holders, order):
    folder = tmp_path_factory.mktemp("at")
    whole = write_pieces(folder / "whole", *in_pieces(1, lengths, []), [0] * len(lengths))
    rows, steps, slices = in_pieces(1, lengths, cuts)
    mixed = list(range(len(rows)))
    order.shuffle(mixed)
    rows, slices = [rows[i] for i in mixed], [slices[i] for i in mixed]
    cut = write_pieces(folder / "cut", rows, steps, slices, holders[: len(rows)])
    assert_same(cut, whole)
    assert (cut.unfinished, len(cut)) == (0, len(lengths))
    by_place = sorted(range(len(lengths)), key=lambda e: (e % 3, e // 3))
    np.testing.assert_array_equal(cut.seed, made(1, lengths)[0].seed[by_place])
    np.testing.assert_array_equal(cut.source, [7 * e for e in by_place])


@pytest.mark.parametrize(
    ("lost", "left"),
    [
        ([], [0, 1, 2]),
        ([0], [1, 2]),  # its beginning
        ([1], [1, 2]),  # its middle
        ([2], [1, 2]),  # its end: it is not over
        ([4], [0, 2]),
        ([0, 1, 2, 5], [1]),  # one of which nothing is there is not even unfinished
    ],
)
def test_episodes_that_are_not_whole_are_left_out(tmp_path, lost, left):
    lengths = [6, 4, 3]  # of envs 0, 1 and 2, in pieces 0 to 2, 3 and 4, and 5
    rows, steps, slices = in_pieces(2, lengths, [2, 4, 8])
    kept = [i for i in range(len(rows)) if i not in lost]
    some = [rows[i] for i in kept], steps, [slices[i] for i in kept], kept
    store = write_pieces(tmp_path / "store", *some)
    assert store.env.tolist() == left
    assert store.unfinished == len({rows[i]["env"] for i in kept}) - len(left)
    expected = np.concatenate([steps.reward[slice(*np.cumsum([0, *lengths])[e : e + 2])] for e in left])
    np.testing.assert_array_equal(store.rows(np.arange(store.steps)).reward, expected)
    with pytest.raises(IndexError):
        store.rows(np.array([store.steps]))


def test_a_piece_that_is_there_twice_makes_no_episode(tmp_path):
    rows, steps, slices = in_pieces(2, [4, 4], [2])
    store = write_pieces(tmp_path / "store", [*rows, rows[0]], steps, [*slices, slices[0]], [0] * (len(rows) + 1))
    assert (store.env.tolist(), store.unfinished) == ([1], 1)


def test_a_store_of_format_1_reads_as_it_did():
    """Written by the code that knew no other: `made(0, [2, 3])` and `made(1, [1, 0, 4])`."""
    folder = ROOT / "tests/learner/stores/format_1"
    assert digest(folder) == "005eafcceb7d279f5f7d962050bd20644c953cff88dfed6ffbd8b67fe9911953"
    store, parts = EpisodeStore(folder), (made(0, [2, 3]), made(1, [1, 0, 4]))
    for name in ("seed", "length", "total", "success", "kind"):
        np.testing.assert_array_equal(getattr(store, name), np.concatenate([getattr(p[0], name) for p in parts]))
    np.testing.assert_array_equal(store.first, [0, 2, 5, 6, 6, 10])
    assert store.source.tolist() == [0] * 5
    rows = store.rows(np.arange(10))
    np.testing.assert_array_equal(rows.reward, np.concatenate([p[1].reward for p in parts]))
    np.testing.assert_array_equal(rows.action, np.concatenate([p[1].action for p in parts]))
    for name in FIELDS:
        np.testing.assert_array_equal(rows.obs[name], np.concatenate([p[1].obs[name] for p in parts]))
    assert store.texts(rows.obs["mission"]) == [TEXTS[key] for key in rows.obs["mission"].tolist()]


def test_a_column_that_a_store_has_not_yet_is_read_as_0_and_one_of_later_versions_refused(tmp_path):
    write_pieces(tmp_path / "store", *in_pieces(2, [4, 4], [2]), [0, 0, 0])
    about = tmp_path / "store" / "store.json"
    says = json.loads(about.read_text())
    about.write_text(json.dumps(says | {"columns": [*says["columns"], "mood"]}))
    with pytest.raises(StoreError, match="column 'mood' that this version does not know"):
        EpisodeStore(tmp_path / "store")
    # A store of a version that had no columns `source` and `task`.
    earlier = [name for name in COLUMNS if name not in ("source", "task")]
    shutil.rmtree(tmp_path / "store")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("learner.store.episodes.COLUMNS", {name: COLUMNS[name] for name in earlier})
        write_pieces(tmp_path / "store", *in_pieces(2, [4, 4], [2]), [0, 0, 0])
    store = EpisodeStore(tmp_path / "store")
    assert (len(store), store.source.tolist(), store.task.tolist()) == (2, [0, 0], [0, 0])


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


def test_pieces_are_not_added_to_a_store_of_whole_episodes(tmp_path):
    write(tmp_path / "store", {"0": made(0, [2, 3])})
    with pytest.raises(StoreError, match="of another version, to which no pieces can be added"):
        EpisodeWriter.join(tmp_path / "store", Attempt.begin(tmp_path / "checkpoints"), (0, 0))


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
