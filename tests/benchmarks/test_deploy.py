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


def test_the_row_is_that_which_the_page_names(monkeypatch):
    monkeypatch.setattr(deploy, "build", small)
    (row,) = run(Options(rounds=1, quick=True)).rows
    assert (row.id, row.headline) == ("deploy/argmax/actions/recompute", True)
    assert "`deploy/argmax/actions/recompute`" in (ROOT / "benchmarks" / "README.md").read_text()
