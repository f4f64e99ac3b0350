"""Emitters of a search: ours as published, pyribs' behind the same ask and tell, all of them resumable."""

import sys

import numpy as np
import pytest

from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.run import assert_installed
from cluster.runs.folder import RunError
from envs.navigation import PARAMETERS
from learner.search import emitters
from learner.search.config import SearchConfig
from learner.search.emitters import EmitterSetup, emitter
from learner.search.novelty import Purpose, parents, polynomial_mutation, stream
from tests.learner.test_search import SMALL, contents, run, search

OF_PYRIBS = ["iso_line", "cma_me"]
SETUP = EmitterSetup(3, 40, 6, 2, 5.0, -1.0, 1.0, 0.5)


def config(name, **more):
    return SMALL.model_copy(update={"emitter": name, "cells": 8, **more})


def test_mutation_is_of_parents_of_the_pool():
    pool = np.random.default_rng(0).uniform(-1, 1, (9, 6)).astype(np.float32)
    chosen = pool[parents(9, 40, stream(3, 7, Purpose.PARENTS))]
    expected = polynomial_mutation(chosen, stream(3, 7, Purpose.MUTATION), probability=0.5)
    assert emitter("mutation")(SETUP).ask(7, pool).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["emitter=iso_lien", "cells=8"], r"method\.search\.emitter: there is no 'iso_lien': did you mean iso_line\?"),
        (["emitter=iso_line"], "emitter=iso_line needs a grid: set method.search.cells"),
        (["emitter=cma_me", "cells=8", "ahead=2"], "learns from each generation before the next one"),
    ],
)
def test_what_an_emitter_cannot_do_is_a_sentence(words, reason):
    with pytest.raises(ConfigError, match=reason):
        compose(["method=lgqd", "env=navigation", *(f"method.search.{word}" for word in words)])


@pytest.mark.parametrize("name", OF_PYRIBS)
def test_without_pyribs_the_extra_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "ribs", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    asked = compose(["method=lgqd", "env=navigation", f"method.search.emitter={name}", "method.search.cells=8"])
    sentence = rf"method\.search\.emitter={name} needs the package ribs: pip install -r requirements-pyribs\.txt"
    with pytest.raises(RunError, match=sentence):
        assert_installed(asked)
    assert not emitters.missing("mutation")


@pytest.mark.pyribs
def test_iso_line_moves_along_lines_between_elites():
    """Two elites: without the noise, of standard deviation 0.01, children lie on the line through both."""
    pool = np.zeros((2, 6), np.float32)
    pool[1, 0] = 0.8
    children = emitter("iso_line")(SETUP).ask(1, pool)
    assert (children.shape, children.dtype) == ((40, 6), np.float32)
    assert np.abs(children[:, 1:]).max() < 0.06
    assert children[:, 0].std() > 0.2
    assert emitter("iso_line")(SETUP).ask(1, pool).tobytes() == children.tobytes()
    assert emitter("iso_line")(SETUP).ask(2, pool).tobytes() != children.tobytes()
    assert (emitter("iso_line")(SETUP).ask(1, np.full((1, 6), 1.0, np.float32)) <= 1).all()


@pytest.mark.pyribs
def test_cma_me_moves_to_where_cells_improve():
    """It is told that a policy improves its cell the more, the larger its first weight is."""
    made, pool = emitter("cma_me")(SETUP), np.zeros((1, 6), np.float32)
    means = []
    for generation in range(1, 7):
        weights = made.ask(generation, pool)
        means.append(weights[:, 0].mean())
        gains = np.ones(40, np.int32), weights[:, 0].astype(np.float64)
        made.tell(generation, pool, weights, np.zeros((40, 2)), weights[:, 0], gains)
    assert means[-1] > means[0] + 0.3
    rejected = np.zeros(40, np.int32), np.full(40, -1.0)
    weights = made.ask(7, pool)
    made.tell(7, pool, weights, np.zeros((40, 2)), weights[:, 0], rejected)  # nothing improves: it begins again
    assert abs(made.ask(8, pool)[:, 0].mean()) < 0.1


@pytest.mark.pyribs
@pytest.mark.parametrize("name", OF_PYRIBS)
@pytest.mark.parametrize("stop", [0, 1, 5])
def test_a_resumed_search_is_the_same(tmp_path, name, stop):
    """Batches come back in another order, and some in progress are given out again."""
    whole = run(search(tmp_path / "whole", config(name)))
    half = run(search(tmp_path / "half", config(name), batch=3), 1, until=stop)
    half.ask()
    groups, record = half.state()
    assert all(isinstance(array, np.ndarray) for array in groups["emitter"].values())
    again = search(tmp_path / "half", config(name), batch=3)
    again.restore(groups, record)
    assert contents(run(again, 2)) == contents(whole)
    assert again.grid.weights.tobytes() == whole.grid.weights.tobytes()
    other = run(search(tmp_path / "other", config("mutation")))
    assert contents(other) != contents(whole)
    assert whole.weights.shape[1] == PARAMETERS


def test_settings_of_today_are_the_default():
    plain = SearchConfig()
    assert (plain.descriptor, plain.quality, plain.emitter) == ("end", "calm", "mutation")
