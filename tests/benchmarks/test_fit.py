"""fit: batched and window by window learn the same from the same weights, a difference is seen, the row is fixed."""

import pytest
import torch

from benchmarks import fit
from benchmarks.fit import Match, run
from benchmarks.measure import ROOT, DifferentOutputs, Options


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in (("WINDOWS", 5), ("LENGTH", 7), ("WIDTH", 16), ("HEADS", 2), ("STEPS", 3)):
        monkeypatch.setattr(fit, name, value)


def test_both_sides_learn_the_same_step_by_step():
    match, losses = Match(), []
    for _ in range(2):
        assert match.play_ours() > 0
        assert match.play_peer() > 0
        losses += match.losses
    assert len(set(losses)) == 6
    theirs = [*match.peer.decoder.parameters(), match.peer.head.weight]
    for ours, other in zip([*match.ours.decoder.parameters(), match.ours.head.weight], theirs, strict=True):
        assert ours is not other
        torch.testing.assert_close(ours, other, atol=1e-5, rtol=1e-5)


def test_other_losses_are_seen():
    match = Match()
    match.play_ours()
    match.losses[1] *= 1.0001
    with pytest.raises(DifferentOutputs, match="loss of step 1"):
        match.play_peer()


def test_the_row_is_the_one_that_the_page_names():
    before = torch.get_num_threads()
    (row,) = run(Options(rounds=1)).rows
    assert (row.id, row.headline, row.threads) == ("fit/windows/tokens/per_sequence", True, 2)
    assert torch.get_num_threads() == before
    assert f"`{row.id}`" in (ROOT / "benchmarks" / "README.md").read_text()
