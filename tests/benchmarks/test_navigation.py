"""navigation: both sides know the same points, a wrong answer is seen, rows are fixed."""

import numpy as np
import pytest

from benchmarks import navigation
from benchmarks.measure import DifferentOutputs, Options
from benchmarks.navigation import BATCH, Match, draw, run

SIZE = 500


def test_points_are_the_same_each_time_and_clusters_are_clusters():
    assert (draw("uniform", 300, 1) == draw("uniform", 300, 1)).all()
    assert (draw("uniform", 300, 1) != draw("uniform", 300, 2)).any()
    cells = {kind: len(np.unique(draw(kind, 2000, 1) // 30, axis=0)) for kind in ("clustered", "uniform")}
    assert cells["clustered"] < 100 < cells["uniform"]


@pytest.mark.parametrize("kind", ["uniform", "clustered"])
def test_every_tree_is_of_all_generations_that_ours_knows(kind, monkeypatch):
    monkeypatch.setattr(navigation, "GENERATIONS", 3)
    match = Match(kind, SIZE)
    for _ in range(2):
        assert match.play_ours() > 0
        assert match.play_kdtree() > 0
        assert match.play_ckdtree() > 0
    assert len(match.everything) == SIZE + 3 * 3 * BATCH
    match.everything = match.everything[:-1]
    with pytest.raises(DifferentOutputs, match="novelty: of point"):
        match.play_kdtree()


def test_the_rows_are_those_that_the_page_names(monkeypatch):
    monkeypatch.setattr(navigation, "CASES", ("generation", "uniform_1e5", "clustered_1e6"))
    monkeypatch.setattr(navigation, "Match", lambda kind, points: Match(kind, SIZE))
    monkeypatch.setattr(navigation, "GENERATIONS", 2)
    monkeypatch.setattr(Match, "play_pyribs", lambda self: 1.0)
    monkeypatch.setattr(navigation.Generations, "play_stock", lambda self: 1.0)
    report = run(Options(rounds=1, quick=False))
    assert {row.id: row.headline for row in report.rows} == {
        "navigation/generation/evaluations/stock": True,
        "navigation/uniform_1e5/insert_query/kdtree_rebuild": True,
        "navigation/uniform_1e5/insert_query/ckdtree_rebuild": False,
        "navigation/uniform_1e5/insert_query/pyribs": True,
        "navigation/clustered_1e6/insert_query/kdtree_rebuild": True,
        "navigation/clustered_1e6/insert_query/ckdtree_rebuild": False,
        "navigation/clustered_1e6/insert_query/ours_at_1e4": False,
    }


def test_the_stock_loop_plays_and_compares_as_ours_does(tmp_path, monkeypatch):
    monkeypatch.setattr(navigation.Generations, "each", 1)
    generations = navigation.Generations(tmp_path)
    generations.weights, kept = generations.weights[:2], generations.played.descriptor
    with pytest.raises(ValueError, match="broadcast"):
        generations.play_stock()  # two robots are not fifty
    generations.weights = np.repeat(generations.weights[:1], 50, 0)
    generations.played.descriptor[:] = kept[0]
    assert generations.play_stock() > 0
    generations.played.descriptor[:] += 1.0
    with pytest.raises(DifferentOutputs, match="only 0 of 50 robots"):
        generations.play_stock()
