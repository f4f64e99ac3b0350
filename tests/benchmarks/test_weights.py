"""weights: an actor has the learner's weights, a checkpoint those at which it was asked for; else there is no row."""

import numpy as np
import pytest

from benchmarks import weights
from benchmarks.measure import ROOT, DifferentOutputs, Options
from benchmarks.weights import Checkpoint, Sync, config_of, run
from learner import checkpoint


class Deaf(weights.Taker):
    """An actor that keeps the weights it has."""

    def take(self, weights):
        """Nothing."""


def test_the_sizes_are_those_that_the_page_names():
    configs = {name: config_of(width) for name, width in weights.WIDTHS.items()}
    sizes = {name: weights.payload_size(config.policy, config.spec) for name, config in configs.items()}
    assert sizes["sync"] == pytest.approx(3e9, rel=0.1)
    assert 3 * sizes["checkpoint"] == pytest.approx(3e9, rel=0.1)


def test_an_actor_gets_what_the_learner_has(monkeypatch):
    match = Sync(16)
    assert match.play_ours() > 0
    monkeypatch.setattr(weights, "Taker", Deaf)
    with pytest.raises(DifferentOutputs, match="the actor's weights"):
        match.play_fixed_store()


def test_a_checkpoint_is_of_its_own_time(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkpoint, "BESIDE", 0)
    match = Checkpoint(64)
    assert match.play_ours() > 0
    assert match.play_waiting() > 0
    assert {name: len(taken) for name, taken in match.updates.items()} == {"beside": 1, "alone": 2}
    real = match.learner._state

    def late(*args):
        state = real(*args)
        return state | {"model": {name: value + np.float32(1) for name, value in state["model"].items()}}

    match.learner._state = late
    with pytest.raises(DifferentOutputs, match="the weights at which it was asked for"):
        match.play_ours()
    assert not list(tmp_path.iterdir())


def test_the_rows_are_those_which_the_page_names(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(weights, "QUICK_WIDTH", 32)
    page = (ROOT / "benchmarks" / "README.md").read_text()
    rows = run(Options(rounds=1, quick=True)).rows
    assert [row.id for row in rows] == ["weights/sync/wall/fixed_store", "weights/checkpoint/wall/waiting"]
    for row in rows:
        assert row.headline
        assert f"`{row.id}`" in page
    assert "an update takes" in rows[1].note
