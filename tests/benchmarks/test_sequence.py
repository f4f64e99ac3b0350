"""sequence: packed and padded learn the same from the same weights, a difference is seen, rows are fixed."""

import numpy as np
import pytest
import torch

from benchmarks import sequence
from benchmarks.measure import ROOT, DifferentOutputs, Options
from benchmarks.sequence import Match, lengths, run
from learner.group import get_weights
from learner.models.sequence import behaviour_transformer


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in (
        ("SEQUENCES", 12),
        ("BATCH", 6),
        ("ROWS", 4),
        ("LONGEST_TEXT", 6),
        ("LONGEST_EPISODE", 9),
    ):
        monkeypatch.setattr(sequence, name, value)
    smaller = sequence.MODEL.model_copy(update={"width": 16, "heads": 2})
    monkeypatch.setattr(sequence, "MODEL", smaller)
    for module in (sequence, behaviour_transformer):  # slow where the processor has none
        monkeypatch.setattr(module, "has_bfloat16", lambda: True)


def test_both_sides_learn_the_same_step_by_step(tmp_path, monkeypatch):
    monkeypatch.setattr(sequence, "APART", {"float32": 1e-5, "bfloat16": 0.05})
    match = Match("half_filled", "float32", tmp_path)
    losses = []
    for _ in range(3):
        assert match.play_ours(2) > 0
        assert match.play("float32") > 0
        losses += match.losses
    assert len(set(losses)) == 6
    found = get_weights(match.ours.model)
    for name, value in get_weights(match.peers["float32"].model).items():
        np.testing.assert_allclose(value, found[name], atol=1e-4, err_msg=name)


def test_buckets_learn_the_same_with_hardly_any_padding(tmp_path, monkeypatch):
    monkeypatch.setattr(sequence, "SEQUENCES", 32)
    monkeypatch.setattr(sequence, "BATCH", 32)
    monkeypatch.setattr(sequence, "BUCKET", 80)
    match = Match("half_filled", "bfloat16", tmp_path)
    seen = []
    match.peers["bucketed"].model.decoder.blocks[0].qkv.register_forward_pre_hook(
        lambda _, given: seen.append(given[0].shape[:2])
    )
    for _ in range(2):
        match.play_ours(2)
        assert match.play("bucketed") > 0  # each step's loss is compared with ours
    batches = [[lengths(part_of_one, 3) for part_of_one in ([part] for part in batch)] for batch in match.bucketed]
    for batch in batches:
        each = [length for part in batch for length in part]
        assert each == sorted(each)
        assert all(len(part) == 1 or len(part) * max(part) <= 80 for part in batch)
        assert sum(map(sum, batch)) > 0.8 * sum(len(part) * max(part) for part in batch)
    assert seen[-len(batches[-1]) :] == [(len(part), max(part)) for part in batches[-1]]
    match.play_ours(1)
    match.losses[0] *= 1.05
    with pytest.raises(DifferentOutputs, match="the peer's in bucketed"):
        match.play("bucketed")


def test_a_bucket_holds_at_least_one_sequence():
    parts = sequence.buckets(np.array([7, 5, 3, 1]), [9, 2, 30, 2], 10)
    assert [part.tolist() for part in parts] == [[5, 1], [7], [3]]


def test_other_weights_are_seen(tmp_path):
    match = Match("half_filled", "bfloat16", tmp_path)
    match.play_ours(2)
    match.losses[1] *= 1.05
    with pytest.raises(DifferentOutputs, match="loss of step 1"):
        match.play("bfloat16")


def test_sequences_are_half_as_long_as_the_longest_or_all_equal(tmp_path, monkeypatch):
    monkeypatch.setattr(sequence, "SEQUENCES", 96)
    monkeypatch.setattr(sequence, "BATCH", 32)
    monkeypatch.setattr(sequence, "LONGEST_EPISODE", 60)
    for case, low, high in (("half_filled", 0.45, 0.55), ("filled", 1.0, 1.0)):
        (tmp_path / case).mkdir()
        match = Match(case, "bfloat16", tmp_path / case)
        shares = []
        for _ in range(3):
            match.play_ours()
            shares.append(match.fill())
            assert match.tokens == sum(sum(p.texts) + 3 * sum(p.steps) for batch in match.batches for p in batch)
        assert low <= np.mean(shares) <= high


def test_the_rows_are_those_that_the_page_names():
    report = run(Options(rounds=1))
    headlines = {
        "sequence/half_filled/tokens/padded_bf16": True,
        "sequence/half_filled/tokens/padded_fp32": True,
        "sequence/half_filled/tokens/bucketed_bf16": True,
        "sequence/filled/tokens/padded_bf16": False,
        "sequence/filled/tokens/padded_fp32": False,
    }
    assert {row.id: row.headline for row in report.rows} == headlines
    assert "of the padded tokens are real" in report.rows[0].note
    page = (ROOT / "benchmarks" / "README.md").read_text()
    assert all(f"`{name}`" in page for name in headlines)


def test_each_peer_computes_in_its_own_precision(tmp_path):
    match, seen = Match("half_filled", "bfloat16", tmp_path), {}
    models = {"ours": match.ours.model} | {name: peer.model for name, peer in match.peers.items()}
    for name, model in models.items():
        first = model.decoder.blocks[0].qkv
        first.register_forward_hook(lambda _, given, found, name=name: seen.update({name: found.dtype}))
    match.warm_up()
    assert seen == {"ours": torch.bfloat16, "bfloat16": torch.bfloat16, "float32": torch.float32} | {
        "bucketed": torch.bfloat16
    }


def test_warming_up_teaches_nothing(tmp_path):
    for name in ("warm", "cold"):
        (tmp_path / name).mkdir()
    match, cold = (Match("half_filled", "float32", tmp_path / name) for name in ("warm", "cold"))
    match.warm_up()
    for each in (match, cold):
        each.play_ours()
        each.play("float32")
    assert match.losses == cold.losses
    for name, value in get_weights(match.ours.model).items():
        np.testing.assert_array_equal(value, get_weights(cold.ours.model)[name])
    theirs = [get_weights(each.peers["float32"].model) for each in (match, cold)]
    assert all((value == theirs[1][name]).all() for name, value in theirs[0].items())


def test_without_bfloat16_the_rows_are_skipped_with_the_reason(monkeypatch):
    monkeypatch.setattr(sequence, "has_bfloat16", lambda: False)
    report = run(Options(rounds=1, cases=("half_filled",)))
    assert not report.rows
    assert {skip.id for skip in report.skips} == {
        f"sequence/half_filled/tokens/{peer}" for peer in ("padded_bf16", "padded_fp32", "bucketed_bf16")
    }
