"""Episodes that come in pieces are whole again in a store, also in one of an earlier version."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.files import Attempt
from learner.store.episodes import EpisodeStore, EpisodeWriter, Steps, StoreError, digest
from learner.store.pieces import COLUMNS, Pieces
from tests.learner.episodes import FIELDS, LAYOUT, TEXTS, in_pieces, made, write

ROOT = Path(__file__).resolve().parents[2]


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


def test_pieces_are_not_added_to_a_store_of_whole_episodes(tmp_path):
    write(tmp_path / "store", {"0": made(0, [2, 3])})
    with pytest.raises(StoreError, match="of another version, to which no pieces can be added"):
        EpisodeWriter.join(tmp_path / "store", Attempt.begin(tmp_path / "checkpoints"), (0, 0))
