"""trials: both sides do the same, and a difference is seen."""

import pytest

from benchmarks import trials
from benchmarks.measure import DifferentOutputs, Options
from benchmarks.trials import Match, run
from learner.context.config import RetrieveConfig, SequenceConfig

SMALL = SequenceConfig(width=32, layers=2, heads=2, device="cpu")
OFTEN = RetrieveConfig(every=5, past=5, future=10, pool=4, nearest=8)


@pytest.mark.parametrize("retrieve", [OFTEN, OFTEN.model_copy(update={"every": 1})])
def test_the_peer_does_what_ours_did(retrieve):
    match = Match(3, SMALL, retrieve)
    assert match.play_ours() > 0
    assert match.play_published_loop() > 0
    assert any((found != match.found[0]).any() for found in match.found[1:])


def test_an_action_that_differs_fails():
    match = Match(1, SMALL, OFTEN)
    match.play_ours()
    match.found[-1] = (match.found[-1] + 1) % 5
    with pytest.raises(DifferentOutputs, match="actions of trial 0: at "):
        match.play_published_loop()


def test_the_fixed_row(monkeypatch):
    monkeypatch.setattr(trials, "Match", lambda count: Match(1, SMALL, OFTEN))
    report = run(Options(quick=True, rounds=1))
    assert {row.id: row.headline for row in report.rows} == {"trials/dark10/env_steps/published_loop": True}
