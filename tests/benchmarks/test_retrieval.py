"""retrieval: both sides have the same vectors, a wrong answer is seen, rows are fixed."""

import json
import sys
import types

import numpy as np
import pytest

from benchmarks import retrieval
from benchmarks.measure import DifferentOutputs, Options
from benchmarks.peers import faiss_flat
from benchmarks.retrieval import NEAREST, Match, check, draw, run

SMALL = (6, 60, 16, 40)


class Flat:
    """What the peer's script uses of faiss, in NumPy."""

    def __init__(self, width):
        assert width == SMALL[2]

    def add(self, keys):
        self.keys = keys

    def search(self, queries, count):
        products = queries @ self.keys.T
        order = np.argsort(-products, 1)[:, :count]
        return np.take_along_axis(products, order, 1), order


def normalise(vectors):
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)


def faiss_answer(monkeypatch, capsys, words):
    fake = types.SimpleNamespace(IndexFlatIP=Flat, normalize_L2=normalise, omp_set_num_threads=lambda count: None)
    monkeypatch.setitem(sys.modules, "faiss", fake)
    *sizes, nearest, asked, how = words
    faiss_flat.main(tuple(map(int, sizes)), int(nearest), int(asked), how)
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_vectors_are_the_same_each_time_and_queries_lie_near_their_task():
    first, again = draw(*SMALL), draw(*SMALL)
    assert all((one == other).all() for one, other in zip(first, again, strict=True))
    match = Match(*SMALL)
    match.play_restricted()
    match.choose()
    near = match.index.search(match.queries, 1)
    assert (near["task"][:, 0] == match.tasks).mean() > 0.5
    assert match.note.startswith("the same choice for ")


@pytest.mark.parametrize("batched", [False, True])
def test_the_peer_finds_the_same_and_a_wrong_answer_is_seen(batched, monkeypatch, capsys):
    monkeypatch.setattr(retrieval, "run_peer", lambda family, script, words, timeout: answered(words))

    def answered(words):
        return faiss_answer(monkeypatch, capsys, words)

    match = Match(*SMALL)
    assert match.play_all() > 0
    assert match.play_faiss(batched) > 0
    match.near.id[3, 0] += 1
    with pytest.raises(DifferentOutputs, match="nearest: of query 3"):
        match.play_faiss(batched)


def test_only_what_is_equally_near_may_differ():
    ours, cosines = np.array([[4, 7, 9]]), np.array([[0.9, 0.5, 0.5]], np.float32)
    check(ours, cosines, np.array([[4, 9, 8]]), np.array([[0.9, 0.5, 0.5]]))
    with pytest.raises(DifferentOutputs, match="of query 0 ours has 4 at 0"):
        check(ours, cosines, np.array([[5, 9, 7]]), np.array([[0.9, 0.5, 0.5]]))
    with pytest.raises(DifferentOutputs, match="ours has 9 at 2"):
        check(ours, cosines, np.array([[4, 7, 9]]), np.array([[0.9, 0.5, 0.4]]))
    with pytest.raises(DifferentOutputs, match="our shape"):
        check(ours, cosines, np.array([[4, 7]]), np.array([[0.9, 0.5]]))


def test_each_query_must_be_answered():
    ours, cosines = np.array([[4], [7]]), np.array([[0.9], [0.5]], np.float32)
    check(ours, cosines, ours, cosines)
    for ids, similarities in ((ours[:1], cosines[:1]), (ours, cosines[:1]), (ours[:0], cosines[:0])):
        with pytest.raises(DifferentOutputs, match="our shape"):
            check(ours, cosines, ids, similarities)


def test_the_rows_are_those_that_the_page_names(monkeypatch):
    monkeypatch.setattr(retrieval, "Match", lambda: Match(*SMALL))
    monkeypatch.setattr(Match, "play_faiss", lambda self, batched: 1.0)
    report = run(Options(rounds=1))
    assert {row.id: row.headline for row in report.rows} == {
        "retrieval/flat_320k/queries/faiss_one": True,
        "retrieval/flat_320k/queries/faiss_batched": True,
        "retrieval/restricted/queries/all_keys": True,
    }
    assert "the same choice for" in report.rows[-1].note
    assert SMALL[1] > NEAREST
