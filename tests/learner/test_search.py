"""Novelty search by ask and tell: against a plain reference, in any order of telling, and after a resume."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.behaviours.novelty import EvaluatorSetup, NoveltyEvaluator
from envs import navigation
from envs.navigation import LAYERS, PARAMETERS
from learner.search.config import SearchConfig
from learner.search.elites import Elites, cell_of
from learner.search.novelty import Purpose, members, parents, polynomial_mutation, stream
from learner.search.novelty_search import NoveltySearch, Played, columns, first_weights
from learner.store.archive import Archive

STEPS = 3
SMALL = SearchConfig(generations=12, population=10, offspring=8, neighbours=4, members=3, thresholds=[5.0])


def play(weights):
    """A world that is cheap: where one ends is a smooth function of some weights."""
    descriptor = 300 + 290 * np.tanh(weights[:, :40].reshape(len(weights), 2, 20).sum(-1, dtype=np.float64))
    action = np.rint(weights[:, : 2 * STEPS] * 10).astype(np.int8).reshape(-1, STEPS, 2)
    effort = np.square(weights[:, 100:110]).mean(1)
    return Played(descriptor, descriptor[:, ::-1], action, effort, -effort)


def search(folder, config=SMALL, batch=8, seed=3):
    archive = Archive(folder, 2, columns(PARAMETERS, STEPS), {}, config.neighbours)
    return NoveltySearch(config, config.thresholds[0], archive, seed, batch, 600.0, LAYERS)


def run(found, order=None, until=None):
    """Play to the end, or until so many generations are closed; batches come back in an order drawn by chance."""
    generator = np.random.default_rng(order)
    under_way = []
    while not found.done and (until is None or found.closed < until):
        while (batch := found.ask()) is not None:
            under_way.append(batch)
        at = int(generator.integers(len(under_way))) if order is not None else 0
        batch = under_way.pop(at)
        found.tell(batch.ticket, play(batch.weights))
    return found


def contents(found):
    archive = found.archive
    rows = archive.rows(np.arange(len(archive)))
    return archive.ids.tolist(), archive.descriptors.tolist(), {name: value.tolist() for name, value in rows.items()}


def reference(config, seed):
    """The same search written as the paper tells it, with lists and all distances. Ids and novelties of its archive."""
    weights = polynomial_mutation(
        first_weights(LAYERS, config.population, stream(seed, 0, Purpose.PARENTS)), stream(seed, 0, Purpose.MUTATION)
    )
    people = [(i, w, play(w[None]).descriptor[0]) for i, w in enumerate(weights)]
    archive, count = {}, len(people)
    for generation in range(1, config.generations + 1):
        chosen = parents(len(people), config.offspring, stream(seed, generation, Purpose.PARENTS))
        young = polynomial_mutation(
            np.stack([people[i][1] for i in chosen]), stream(seed, generation, Purpose.MUTATION)
        )
        everybody = people + [(count + i, w, play(w[None]).descriptor[0]) for i, w in enumerate(young)]
        count += len(young)
        known = [place for place, _ in archive.values()] + [place for _, _, place in everybody]
        value = [
            np.sort([np.linalg.norm(place - other) for other in known])[1 : config.neighbours].mean()
            for _, _, place in everybody
        ]
        kept = sorted(range(len(everybody)), key=lambda i: -value[i])[: config.population]
        pool = np.array(sorted({*kept, *range(len(people), len(everybody))}))
        for i in members(pool, stream(seed, generation, Purpose.MEMBERS), config.members):
            if value[i] > config.thresholds[0] and everybody[i][0] not in archive:
                archive[everybody[i][0]] = (everybody[i][2], value[i])
        people = [everybody[i] for i in kept]
    return archive


def test_a_search_is_what_the_paper_says(tmp_path):
    found = run(search(tmp_path / "a"))
    expected = reference(SMALL, 3)
    assert len(expected) > 15
    assert found.archive.ids.tolist() == list(expected)
    np.testing.assert_allclose(found.archive.descriptors, [place for place, _ in expected.values()])
    rows = np.arange(len(expected))
    np.testing.assert_allclose(found.archive.rows(rows, ["novelty"])["novelty"], [v for _, v in expected.values()])
    assert found.evaluations == 10 + 12 * 8


@pytest.mark.parametrize("ahead", [1, 3])
def test_a_search_does_not_depend_on_who_plays_what_when(tmp_path, ahead):
    config = SMALL.model_copy(update={"ahead": ahead, "cells": 8})
    one = run(search(tmp_path / "one", config))
    for number, (batch, order) in enumerate([(8, 1), (3, 2), (1, 3)]):
        other = run(search(tmp_path / f"{number}", config, batch), order)
        assert contents(other) == contents(one)
        assert other.grid.id.tolist() == one.grid.id.tolist()


def test_ahead_draws_parents_from_older_populations(tmp_path):
    steady = run(search(tmp_path / "a", SMALL.model_copy(update={"ahead": 3})))
    assert contents(steady) != contents(run(search(tmp_path / "b")))
    found = search(tmp_path / "c", SMALL.model_copy(update={"ahead": 3}), batch=10)
    first = found.ask()
    assert first.ticket == (0, 0)
    assert found.ask() is None  # nothing has parents yet
    found.tell(first.ticket, play(first.weights))
    asked = [found.ask() for _ in range(4)]
    assert [batch.ticket[0] for batch in asked if batch] == [1, 2, 3]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 12), st.sampled_from([1, 3]), st.integers(0, 9))
def test_a_resumed_search_is_the_same(tmp_path_factory, stop, ahead, order):
    folder = tmp_path_factory.mktemp("search")
    config = SMALL.model_copy(update={"ahead": ahead, "cells": 8, "halfway": 3, "parents": "grid"})
    whole = run(search(folder / "whole", config))
    half = run(search(folder / "half", config), order, until=stop)
    groups, record = half.state()
    beyond = search(folder / "half", config)
    beyond.restore(groups, record)
    run(
        beyond, until=min(stop + 3, 13)
    ).archive.flush()  # what is found after a checkpoint is forgotten and found again
    again = search(folder / "half", config)
    again.restore(groups, record)
    assert again.evaluations <= whole.evaluations
    assert contents(run(again, order)) == contents(whole)
    assert again.grid.quality.tolist() == whole.grid.quality.tolist()
    assert again.grid.weights.tolist() == whole.grid.weights.tolist()


def test_what_is_told_twice_or_of_nothing_changes_nothing(tmp_path):
    found = search(tmp_path / "a")
    batch = found.ask()
    found.tell((7, 0), play(batch.weights))
    assert found.closed == 0
    found.tell(batch.ticket, play(batch.weights))
    found.tell(batch.ticket, play(-batch.weights))
    assert contents(run(found)) == contents(run(search(tmp_path / "b")))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 99)] * 4, st.integers(0, 5)), min_size=1, max_size=60), st.sampled_from([1, 2])
)
def test_a_grid_keeps_the_best_of_each_way_to_each_end(entries, halfway):
    bounds = np.array([[0.0, 100.0]] * 2)
    grid, best = Elites(5, halfway, bounds, 100.0, 1), {}
    for start in range(0, len(entries), 7):
        part = np.array(entries[start : start + 7], np.float64)
        ids, quality = np.arange(start, start + len(part)), part[:, 4].astype(np.float32)
        status, value = grid.gains(part[:, :2], part[:, 2:4], quality)
        grid.add(ids, ids[:, None].astype(np.float32), part[:, :2], part[:, 2:4], quality, -quality)
        before = dict(best)
        for i, (x, y, u, v, q) in zip(ids.tolist(), part.astype(int).tolist(), strict=True):
            cell = (v * halfway // 100 * halfway + u * halfway // 100) * 25 + y // 20 * 5 + x // 20
            gain = q - before[cell][0] if cell in before else q
            assert (status[i - start], value[i - start]) == (2 if cell not in before else int(gain > 0), gain)
            if cell not in best or q > best[cell][0]:
                best[cell] = (q, i)
    assert {c: (q, i) for c, q, i in zip(grid.cell, grid.quality, grid.id, strict=True)} == best
    assert grid.weights[:, 0].tolist() == grid.id.tolist()
    assert grid.descriptor.tolist() == [[float(n) for n in entries[i][:2]] for i in grid.id]
    assert (grid.effort == -grid.quality).all()
    again = Elites(5, halfway, bounds, 100.0, 1)
    again.restore(grid.arrays())
    one = np.full(1, 9, np.float32)
    for each in (grid, again):
        each.add(np.array([99]), np.full((1, 1), 99, np.float32), *[np.full((1, 2), 50.0)] * 2, one, one)
    assert 99 in grid.id
    assert (again.cell.tolist(), again.weights.tolist()) == (grid.cell.tolist(), grid.weights.tolist())


@given(st.lists(st.lists(st.integers(-5, 25), min_size=4, max_size=4), min_size=1, max_size=20))
def test_cells_of_four_numbers_are_as_counted_by_hand(rows):
    low, high = np.array([0.0, 0.0, -5.0, 10.0]), np.array([20.0, 10.0, 15.0, 20.0])
    found = cell_of(np.array(rows, np.float64), 5, high, low)
    for row, number in zip(rows, found.tolist(), strict=True):
        at = [min(4, max(0, int((v - lo) * 5 // (hi - lo)))) for v, lo, hi in zip(row, low, high, strict=True)]
        assert number == at[0] + 5 * at[1] + 25 * at[2] + 125 * at[3]


def test_cells_hold_the_outermost_too():
    assert cell_of(np.array([[0.0, 0.0], [599.9, 0.0], [600.0, 600.0], [-1.0, 30.0]]), 20, 600.0).tolist() == [
        0,
        19,
        399,
        20,
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"cells": 900, "halfway": 4}, "at most 10,000,000"),
        ({"cells": 60, "descriptor": "end_halfway"}, "12,960,000 cells, as there are 4 numbers"),
        ({"parents": "grid"}, "needs a grid"),
    ],
)
def test_a_grid_that_cannot_be_is_a_sentence(words, sentence):
    with pytest.raises(ValueError, match=sentence):
        SearchConfig(**words)


def test_first_weights_are_drawn_as_torch_draws_them():
    torch = pytest.importorskip("torch")
    drawn = first_weights(LAYERS, 4000, np.random.default_rng(0))
    sizes = [5, 10, 10, 10, 2]
    layers = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
    at = 0
    for layer in layers:
        count = sum(p.numel() for p in layer.parameters())
        part, bound = drawn[:, at : at + count], layer.in_features**-0.5
        assert 0.999 * bound < np.abs(part).max() <= bound
        assert abs(part.std() - bound / 3**0.5) < 0.01 * bound
        at += count
    assert at == PARAMETERS == drawn.shape[1]


def test_a_player_tells_what_the_simulator_does():
    weights = np.random.default_rng(1).normal(0, 0.4, (20, PARAMETERS)).astype(np.float32)
    played = NoveltyEvaluator(EvaluatorSetup("", 60)).play(weights)
    expected = navigation.rollout(navigation.load(), None, weights, 60)
    assert played.descriptor.tolist() == expected["pose"][:, -1, :2].tolist()
    assert played.halfway.tolist() == expected["pose"][:, 29, :2].tolist()  # after 30 of 60 steps
    np.testing.assert_allclose(played.action / 10, expected["action"], atol=1e-6)
    np.testing.assert_allclose(played.effort, np.square(expected["action"]).mean((1, 2)), rtol=1e-5)
    assert (played.quality == -played.effort).all()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_batch_in_pieces_is_played_as_one(sizes):
    player, count = NoveltyEvaluator(EvaluatorSetup("", 5)), sum(sizes)
    weights = np.random.default_rng(count).normal(0, 0.4, (count, PARAMETERS)).astype(np.float32)
    expected = player.play(weights)
    told = player.play_pieces(*np.split(weights, np.cumsum(sizes)[:-1]))
    parts = told if len(sizes) > 1 else [told]
    assert [len(part.effort) for part in parts] == sizes
    for name in ("descriptor", "halfway", "action", "effort"):
        joined = getattr(Played.joined(parts), name)
        assert joined.tobytes() == getattr(expected, name).tobytes()
