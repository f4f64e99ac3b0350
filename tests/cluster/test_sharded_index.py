"""An index in shards finds what one index finds, bit by bit, in one process and in four; a shard that dies is told."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.roles import local as local_module
from cluster.roles.backend import Inline
from cluster.roles.local import Local, actor_id
from cluster.roles.sharded_index import ShardDied, ShardedIndex
from learner.files import Attempt, Superseded
from learner.store.entry_files import RetrievalError
from learner.store.retrieval import MemoryIndex
from tests.learner.vectors import KINDS, about, built, drawn, rows_of, same


def assert_equal_answers(sharded, one, kind, seed):
    """Of everything that can be asked."""
    assert len(sharded) == len(one)
    queries, random = drawn(kind, 8, 6, seed), np.random.default_rng(seed)
    owner, own, uniform = random.integers(-1, 8, 8), random.integers(-1, 20, 8), random.random(8)
    for options in ({}, {"owner": owner, "not_episode": own}, {"not_episode": own, "at_most": 0.9}):
        same(sharded.search(queries, 9, **options), one.search(queries, 9, **options))
    same(sharded.draw(queries, owner, uniform, own), one.draw(queries, owner, uniform, own))


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    shards=st.sampled_from([1, 2, 4, 7]),
    again=st.integers(1, 5),
    seed=st.integers(0, 2**31),
)
def test_shards_are_one_index_whatever_happens_to_them(tmp_path_factory, kind, sizes, shards, again, seed):
    """Entries come, go, and are saved and loaded into other numbers of shards; then more come."""
    folder, random, total = tmp_path_factory.mktemp("at"), np.random.default_rng(seed), sum(sizes)
    keys, columns = drawn(kind, total, 6, seed), about(total, 8, seed)
    sharded, one = ShardedIndex(Inline(), 6, shards), MemoryIndex(6)
    for rows in np.split(np.arange(total), np.cumsum(sizes)):
        ids = [index.append(keys[rows], rows_of(columns, rows)) for index in (sharded, one)]
        np.testing.assert_array_equal(*ids)
        assert_equal_answers(sharded, one, kind, seed + 1)
    gone = random.integers(0, total + 1, total // 4)
    assert sharded.evict(gone) == one.evict(gone)
    assert sharded.deduplicate(0.9) == one.deduplicate(0.9)
    assert_equal_answers(sharded, one, kind, seed + 2)
    sharded.save(folder / "sharded")
    one.save(folder / "one")
    for saved in ("sharded", "one"):
        found = ShardedIndex.load(Inline(), folder / saved, again)
        assert_equal_answers(found, one, kind, seed + 3)
        np.testing.assert_array_equal(
            found.append(keys[:3], rows_of(columns, slice(3))), one.next_id + np.arange(3)[:total]
        )
    whole = MemoryIndex.load(folder / "sharded")
    whole.save(folder / "again")
    assert (folder / "again/retrieval.json").read_bytes() == (folder / "one/retrieval.json").read_bytes()


def test_what_one_index_refuses_shards_refuse_and_nothing_has_changed():
    sharded, one = ShardedIndex(Inline(), 3, 2), MemoryIndex(3)
    columns, queries = about(4, 2, 0), np.ones((2, 3))
    half_zero = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])
    for refused in (
        lambda index: index.append(half_zero, columns),
        lambda index: index.append(np.ones((4, 3)), {**columns, "owner": np.array([0, 1, 0, -1])}),
        lambda index: index.search(queries, 0),
        lambda index: index.search(np.ones((2, 4)), 1),
        lambda index: index.search(queries, 1, owner=np.zeros(3, int)),
        lambda index: index.draw(queries, np.zeros(2, int), np.ones(2)),
    ):
        said = []
        for index in (sharded, one):
            with pytest.raises(ValueError, match=r".") as error:
                refused(index)
            said.append(str(error.value))
        assert said[0] == said[1]
    assert len(sharded) == 0
    assert sharded.append(np.ones((4, 3)), columns).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="at least 1 shard, not 0"):
        ShardedIndex(Inline(), 3, 0)


def test_a_save_is_complete_or_absent_whoever_else_saves(tmp_path):
    older, newer = Attempt.begin(tmp_path), Attempt.begin(tmp_path)
    keys, columns, folder = drawn("normal", 40, 6, 0), about(40, 8, 0), tmp_path / "index"
    sharded = ShardedIndex(Inline(), 6, 4)
    sharded.append(keys, columns)
    sharded.save(folder, newer)
    saved = {path.name for path in folder.iterdir()}
    assert len(saved) == 5
    sharded.evict(np.arange(10))
    with pytest.raises(Superseded):
        sharded.save(folder, older)
    assert_equal_answers(ShardedIndex.load(Inline(), folder, 3), built(keys, columns), "normal", 1)
    sharded.save(folder, newer)
    assert len(list(folder.iterdir())) == 5
    path = next(folder.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RetrievalError, match="is damaged: its hash"):
        ShardedIndex.load(Inline(), folder, 4)


def test_a_shard_that_dies_is_named_and_what_was_saved_goes_on(tmp_path):
    keys, columns, backend = drawn("normal", 40, 6, 0), about(40, 8, 0), Inline()
    sharded = ShardedIndex(backend, 6, 4)
    sharded.append(keys, columns)
    sharded.save(tmp_path / "index")
    backend.kill(sharded._shards[2])
    with pytest.raises(ShardDied, match=r"shard 2 of 4 of a memory index is gone: .*; load the saved index"):
        sharded.search(keys, 3)
    with pytest.raises(ShardDied):  # the others have ended too: nothing is found in a part
        sharded.append(keys[:1], rows_of(columns, slice(1)))
    assert_equal_answers(ShardedIndex.load(backend, tmp_path / "index", 4), built(keys, columns), "normal", 1)


def test_the_examples_of_the_page_run():
    root = Path(__file__).resolve().parents[2]
    page = "".join(re.findall(r"^```python\n(.*?)^```$", (root / "docs/retrieval.md").read_text(), re.M | re.S))
    shapes = (
        "print(best.found['episode'].shape, best.score.shape, sharded.search(random.normal(size=(3, 64)), 5).id.shape)"
    )
    done = subprocess.run([sys.executable, "-c", page + shapes], cwd=root, capture_output=True, text=True)
    assert done.stdout == "(3, 1) (3, 1) (3, 5)\n", done.stderr


@pytest.mark.slow
def test_four_processes_are_one_index_and_one_that_is_killed_is_named(tmp_path):
    keys, columns = drawn("clusters", 400, 6, 0), about(400, 8, 0)
    backend, one = Local(8, tmp_path / "token", dashboard=False), MemoryIndex(6)
    try:
        sharded = ShardedIndex(backend, 6, 4)
        for rows in np.array_split(np.arange(400), 3):
            np.testing.assert_array_equal(
                sharded.append(keys[rows], rows_of(columns, rows)), one.append(keys[rows], rows_of(columns, rows))
            )
        assert_equal_answers(sharded, one, "clusters", 1)
        assert sharded.evict(np.arange(0, 400, 3)) == one.evict(np.arange(0, 400, 3))
        assert_equal_answers(sharded, one, "clusters", 2)
        sharded.save(tmp_path / "index")
        pid = local_module.state.actor_table(actor_id(sharded._shards[1]))["Pid"]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ShardDied, match=r"shard 1 of 4 of a memory index is gone: index-1 in call: "):
            sharded.search(keys, 3)
        loaded = ShardedIndex.load(backend, tmp_path / "index", 4)
        assert_equal_answers(loaded, one, "clusters", 3)
        (tmp_path / "index/retrieval.json").unlink()
        with pytest.raises(RetrievalError, match="no memory index"):
            ShardedIndex.load(backend, tmp_path / "index", 4)
    finally:
        backend.shutdown()
