"""deploy: the peer recomputes everything for each action and must choose what ours chose."""

import numpy as np
import pytest

from benchmarks import deploy
from benchmarks.deploy import CONFIG, Match, build, run
from benchmarks.measure import ROOT, DifferentOutputs, Options

SMALL = CONFIG.model_copy(update={"width": 24})


def small():
    return build(SMALL, (7, 12))


def test_both_sides_choose_the_same_actions_which_depend_on_what_is_told():
    match = Match(small(), 5)
    rows = []
    match.peer.decoder.blocks[0].register_forward_hook(lambda *_: rows.append(1))
    padded = []
    match.peer.decoder.blocks[0].qkv.register_forward_pre_hook(lambda _, given: padded.append(given[0].shape[:2]))
    for _ in range(2):
        assert match.play_ours() > 0
        assert match.play_recompute() > 0
    assert padded == [(1, 7 + 3 * 12)] * 8  # one robot, all tokens, four actions in each of two rounds
    action = match.found["action"][:, 0]
    assert action.shape == (5, 12, 2)
    assert action.std((0, 1)).min() > 0.3
    assert len(np.unique(action.reshape(5, -1), axis=0)) == 5


def test_another_action_is_seen():
    match = Match(small(), 3)
    match.play_ours()
    match.found["action"][:, :, -1] += 0.2
    with pytest.raises(DifferentOutputs, match="the action at step 11"):
        match.play_recompute()


def test_a_batch_without_cache_and_one_robot_with_it_choose_the_same_actions(monkeypatch):
    monkeypatch.setattr(deploy, "AT_ONCE", 2)
    match = Match(small(), 5)
    rows, tokens = [], []
    match.batched.decoder.blocks[0].qkv.register_forward_pre_hook(lambda _, given: rows.append(given[0].shape[:2]))
    match.single.decoder.blocks[0].qkv.register_forward_pre_hook(lambda _, given: tokens.append(given[0].shape[:2]))
    for _ in range(2):
        match.play_ours()
        assert match.play_recompute_batched() > 0
        assert match.play_cache_one() > 0
    assert [row for row, _ in rows] == [2, 2, 1] * 6
    shortest, longest = min(map(len, match.texts)), max(map(len, match.texts))
    # After 2 steps, in the middle of the first third, there are three tokens for each of three steps.
    assert all(shortest + 9 <= length <= longest + 9 for _, length in rows[:3])
    prompt, first, *others = tokens[: len(tokens) // 2]
    assert 1 <= prompt[1] <= 7
    assert (first, set(others)) == ((1, 2), {(1, 3)})  # target and sensors; then also the action before
    assert len(others) == 11


@pytest.mark.parametrize("peer", ["recompute_batched", "cache_one"])
def test_another_action_of_any_robot_is_seen(peer):
    match = Match(small(), 3)
    match.play_ours()
    match.found["action"][:, :, 10] += 0.2
    with pytest.raises(DifferentOutputs, match="the action at step"):
        getattr(match, f"play_{peer}")()


def test_the_rows_are_those_that_the_page_names(monkeypatch):
    monkeypatch.setattr(deploy, "build", small)
    rows = run(Options(rounds=1, quick=True)).rows
    headlines = {"recompute": False, "recompute_batched": True, "cache_one": True}
    assert {row.id: row.headline for row in rows} == {
        f"deploy/argmax/actions/{peer}": headline for peer, headline in headlines.items()
    }
    page = (ROOT / "benchmarks" / "README.md").read_text()
    assert all(f"`{row.id}`" in page for row in rows)
