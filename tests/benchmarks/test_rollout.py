"""rollout: both sides really play the same episodes, and a difference is seen."""

import numpy as np
import pytest

from benchmarks.measure import DifferentOutputs, Options
from benchmarks.rollout import ENVS, Match, check, play, run


@pytest.fixture(scope="module")
def match():
    return Match(steps=70)


def test_both_faces_equal_the_stock_env_over_ends_of_episodes(match):
    assert match.play_ours() > 0
    ended = [step[2] | step[3] for step in match.expected]
    assert np.any(ended)  # else auto-reset was not compared
    assert match.play_stock() > 0
    assert match.play_dense() > 0
    assert match.play_stock() > 0


def test_each_turn_of_ours_draws_new_episodes(match):
    match.play_ours()
    seed, actions = match.seed, match.actions
    match.play_ours()
    assert match.seed == seed + ENVS
    assert not np.array_equal(match.actions, actions)


@pytest.mark.parametrize("what", ["image", "direction", "mission", "reward", "terminated", "truncated", "final"])
def test_an_output_that_differs_fails(match, what):
    match.play_ours()
    _, theirs = play(match.stock, match.seed, match.actions)
    check(match.expected, theirs)
    ends = [t for t, step in enumerate(theirs) if np.any(step[2] | step[3])]
    t = ends[0]
    obs, reward, terminated, truncated, info = theirs[t]
    if what in ("image", "direction"):
        obs[what].flat[0] += 1
    elif what == "mission":
        obs["mission"] = ("go to the moon", *obs["mission"][1:])
    elif what == "final":
        i = int(np.flatnonzero(terminated | truncated)[0])
        info["final_obs"][i]["image"].flat[0] += 1
    else:
        column = {"reward": reward, "terminated": terminated, "truncated": truncated}[what]
        column[0] = not column[0] if column.dtype == bool else column[0] + 0.5
    with pytest.raises(DifferentOutputs, match=f"step {t} "):
        check(match.expected, theirs)


def test_the_fixed_row(monkeypatch):
    monkeypatch.setattr("benchmarks.rollout.Match", lambda steps: Match(3))
    report = run(Options(quick=True, rounds=1))
    assert {row.id: row.headline for row in report.rows} == {
        "rollout/GoToLocal/env_steps/gymnasium_sync": True,
        "rollout/GoToLocal/dense/env_steps/gymnasium_sync": False,
    }
