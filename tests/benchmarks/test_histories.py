"""histories: both sides live the same, and a difference is seen."""

import pytest

from benchmarks import histories
from benchmarks.histories import Match, run
from benchmarks.measure import DifferentOutputs, Options


def test_the_peer_lives_what_ours_lived():
    match = Match(episodes=6)
    assert match.play_ours() > 0
    assert match.play_one_env_a_task() > 0
    assert any(history["reward"].any() for history in match.kept.values())
    assert len(match.kept) == histories.ASKED


def test_each_turn_of_ours_draws_new_numbers(monkeypatch):
    monkeypatch.setattr(Match, "_asked", lambda self: [3])
    match, lived = Match(episodes=1), []
    for _ in range(2):
        match.play_ours()
        lived.append(match.kept[3]["action"].tolist())
    assert lived[0] != lived[1]


@pytest.mark.parametrize("what", ["row", "column", "action", "reward"])
def test_an_output_that_differs_fails(what):
    match = Match(episodes=1)
    match.play_ours()
    history = next(iter(match.kept.values()))
    history[what] = history[what].copy()
    history[what][-1] += 1
    with pytest.raises(DifferentOutputs, match=f"{what}: at "):
        match.play_one_env_a_task()


def test_the_fixed_row(monkeypatch):
    monkeypatch.setattr(histories, "Match", lambda episodes: Match(1))
    report = run(Options(quick=True, rounds=1))
    assert {row.id: row.headline for row in report.rows} == {"histories/dark10/transitions/one_env_a_task": True}
