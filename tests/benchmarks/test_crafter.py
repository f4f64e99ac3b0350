"""The benchmark of Crafter compares what it times, and a difference fails it."""

import pytest

from benchmarks import crafter
from benchmarks.measure import DifferentOutputs
from envs.crafter.reference import Simulator


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(crafter, "CHECKED", 2)
    monkeypatch.setattr(crafter, "CHECKED_STEPS", 20)
    monkeypatch.setattr(crafter, "ENVS", 4)


@pytest.mark.parametrize("case", crafter.CASES)
def test_both_sides_play_the_same_and_are_timed(case):
    crafter.check(case)
    assert crafter.Ours(case, 0.01).speed() > 0
    theirs = crafter.Theirs(case, 0.01)
    assert theirs.speed() > 0
    assert type(theirs.env).__module__ == "crafter.env", "upstream's own is timed"


@pytest.mark.parametrize(("case", "what"), [("image", "picture"), ("text", "sentences")])
def test_a_difference_fails(monkeypatch, case, what):
    real = Simulator.begin
    monkeypatch.setattr(Simulator, "begin", lambda self, seed: real(self, seed + 1))
    with pytest.raises(DifferentOutputs, match=what):
        crafter.check(case)
