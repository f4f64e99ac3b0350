"""scoring: both sides answer the same questions, a difference is seen, and the rows are the fixed ones."""

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

from benchmarks import scoring
from benchmarks.measure import ROOT, DifferentOutputs, Options
from benchmarks.scoring import CANDIDATES, Match, check, draw, run


def small(kind, dtype="float32"):
    """The benchmark's models, made small."""
    torch.manual_seed(0)
    if kind == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(vocab_size=99, n_embd=32, n_head=4, n_layer=2, n_positions=512))
    else:
        sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_layers": 2}
        model = T5ForConditionalGeneration(T5Config(vocab_size=99, decoder_start_token_id=0, **sizes))
    return model.to(getattr(torch, dtype)).eval()


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_both_peers_equal_ours_on_questions_that_change(kind):
    match = Match(kind, 4, repeats=2, model=small(kind))
    match.play_ours()
    first, questions = match.expected, match.questions
    assert first.shape == (4, CANDIDATES)
    assert match.play_encode_once() > 0
    assert match.play_length_sorted() > 0
    assert match.play_repeat() > 0
    match.play_ours()
    assert match.questions != questions
    assert not np.array_equal(match.expected, first)
    assert match.floor.startswith("prompts alone take")


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_a_score_that_differs_fails(kind):
    match = Match(kind, 2, model=small(kind))
    match.play_ours()
    match.expected[1, 3] *= 1.001
    with pytest.raises(DifferentOutputs, match=r"at \(1, 3\)"):
        match.play_encode_once()
    with pytest.raises(DifferentOutputs, match=r"at \(1, 3\)"):
        match.play_repeat()
    with pytest.raises(DifferentOutputs, match="shape"):
        check(np.zeros(3), np.zeros(4), 1e-5)
    with pytest.raises(DifferentOutputs):
        check(np.zeros(3), np.full(3, np.nan), 1e-5)


def test_questions_are_mixed_and_a_quarter_of_them_unique():
    questions = draw(16, 4, 1000, seed=1)
    assert len(questions) == 16
    assert sorted(len(prompt) for prompt in dict(questions)) == [100, 166, 233, 300]
    assert {len(c) for _, candidates in questions for c in candidates} == {2, 3, 4}
    assert draw(16, 4, 1000, seed=1) == questions != draw(16, 4, 1000, seed=2)


def test_the_fixed_rows(monkeypatch):
    monkeypatch.setattr(scoring, "build", small)
    report = run(Options(rounds=1))
    assert not report.skips
    assert {row.id: row.headline for row in report.rows} == {
        "scoring/t5/unique/sequences/repeat": True,
        "scoring/t5/unique/sequences/encode_once": True,
        "scoring/t5/unique/sequences/length_sorted": False,
        "scoring/gpt2/unique/sequences/repeat": True,
        "scoring/gpt2/unique/sequences/encode_once": True,
        "scoring/gpt2/unique/sequences/length_sorted": False,
        "scoring/t5/quarter_unique/sequences/encode_once": True,
        "scoring/t5/quarter_unique/sequences/length_sorted": False,
        "scoring/gpt2/quarter_unique/sequences/encode_once": True,
        "scoring/gpt2/quarter_unique/sequences/length_sorted": False,
        "scoring/t5/unique/bf16/sequences/encode_once": False,
        "scoring/gpt2/unique/bf16/sequences/encode_once": False,
    }
    assert all("of our time" in row.note for row in report.rows)
    documented = (ROOT / "benchmarks" / "README.md").read_text()
    assert all(f"`{row.id}`" in documented for row in report.rows)
