"""The benchmark of the compiled engine compares what it times, and its peer's captions are the real ones."""

import numpy as np
import pytest

from benchmarks import babyai
from benchmarks.measure import DifferentOutputs
from benchmarks.peers.babyai_text import captions_of
from envs.babyai import describe
from envs.babyai.levels import build


def test_both_sides_play_the_same():
    babyai.check("MixedTrainLocal", steps=20)


def test_a_difference_fails(monkeypatch):
    monkeypatch.setattr(babyai, "captions_of", lambda simulator, obs: ["You see a green elephant"])
    with pytest.raises(DifferentOutputs, match="caption"):
        babyai.check("GoToLocal", steps=3)


@pytest.mark.parametrize("level", ["BossLevel", "KeyInBox", "MixedTrainLocal"])
def test_the_peers_captions_are_those_of_the_grammar(level):
    simulator, random = build(level), np.random.default_rng(0)
    obs, _ = simulator.reset(seed=1)
    for action in random.integers(0, 7, 60).tolist():
        expected = describe(obs["image"][None])[0]
        assert captions_of(simulator, obs) == expected
        assert captions_of(simulator, None) == expected
        obs, *_ = simulator.step(action)


@pytest.mark.parametrize("face", ["native", "exact", "native/gymnasium"])
def test_speeds_are_of_env_steps(face):
    side = babyai.Ours("GoToObjS4", face, True)
    side.seconds = 0.05
    assert side.speed() > 0
    assert side.env.drawn == face.startswith("native")
