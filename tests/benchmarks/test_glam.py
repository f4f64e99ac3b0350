"""glam: both sides answer and learn the same, a difference is seen, prompts are those of play, rows are fixed."""

import numpy as np
import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from benchmarks import glam
from benchmarks.glam import Acting, Update, run
from benchmarks.measure import ROOT, DifferentOutputs, Options
from benchmarks.peers.glam_world import ACTIONS, ENVS, draw, mixed, prompter, record, stream

VOCABULARY = 99


def small(kind="t5"):
    """The benchmark's model, made small."""
    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_layers": 2, "decoder_start_token_id": 0}
    config = T5Config(vocab_size=VOCABULARY, feed_forward_proj="gated-gelu", tie_word_embeddings=False, **sizes)
    model = T5ForConditionalGeneration(config)
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.2)
    return model.eval()


def unique(number):
    return [draw((20, 41, 9, 30), VOCABULARY, number)]


def test_the_peer_acts_as_ours_does_on_prompts_that_change():
    match = Acting(small(), unique)
    assert match.play_ours() > 0
    first = match.answers[0][0]
    assert first.shape == (4, len(ACTIONS))
    assert match.play_encode_once() > 0
    assert match.play_length_sorted() > 0
    match.play_ours()
    assert not np.array_equal(match.answers[0][0], first)


@pytest.mark.parametrize("of", [0, 1], ids=["score", "state"])
def test_an_answer_that_differs_fails(of):
    match = Acting(small(), unique)
    match.play_ours()
    match.answers[0][of][1, 3] += 1e-3
    with pytest.raises(DifferentOutputs, match=r"at \(1, 3\)"):
        match.play_encode_once()


def test_recorded_prompts_are_computed_once_in_a_version_and_all_of_them_compared():
    model = small()
    match = Acting(model, lambda number: stream(number, VOCABULARY, steps=6, width=3, agent="planner"), stride=2)
    encoded = []
    match.scorer.model.encoder.block[0].register_forward_pre_hook(lambda _, given: encoded.append(len(given[0])))
    match.play_ours()
    asked = [question for call in match.calls for question in call]
    assert len(asked) == 18
    assert sum(encoded) == len(set(asked))
    assert match.play_encode_once() > 0
    assert match.play_length_sorted() > 0
    assert "of the prompts are different" in match.note
    match.answers[2][0][1, 1] += 1e-3  # a call that is not the first
    with pytest.raises(DifferentOutputs):
        match.play_encode_once()


def test_prompts_are_those_of_play():
    told = record(6, "planner")
    assert [len(prompts) for prompts in told] == [ENVS] * 6
    text = prompter()[1].tokenizer.decode
    first, third = text(told[0][0]), text(told[2][0])
    assert first.count("see :") == 1
    assert "did :" not in first
    assert third.count("did :") == 2
    assert all(name in first for name in ACTIONS)
    lengths = [len(prompt) for prompt in told[5]]
    assert 30 < min(lengths) < max(lengths) < 400
    assert max(lengths) > 1.2 * min(lengths)
    assert len(set(told[0])) > ENVS / 2
    one, other = stream(0, VOCABULARY, 6, 8, "planner"), stream(1, VOCABULARY, 6, 8, "planner")
    assert one == stream(4, VOCABULARY, 6, 8, "planner")
    assert one != other
    assert all(0 < token < VOCABULARY for call in one for prompt, _ in call for token in prompt)


def test_who_begins_meets_states_again():
    told = [prompt for prompts in record(20, "beginner") for prompt in prompts]
    assert len(set(told)) < len(told) / 2


def test_questions_have_the_lengths_and_the_actions():
    questions = draw(mixed(5), VOCABULARY, 3)
    assert sorted(len(prompt) for prompt, _ in questions) == [100, 150, 200, 250, 300]
    assert questions == draw(mixed(5), VOCABULARY, 3) != draw(mixed(5), VOCABULARY, 4)
    (asked,) = {found for _, found in questions}
    assert len(set(asked)) == len(ACTIONS)
    assert asked[0][0] == asked[1][0]  # turn


@pytest.mark.parametrize("lengths", [[24] * 6, [9, 30, 14, 40, 22, 18]], ids=["equal", "mixed"])
def test_both_sides_learn_the_same(lengths):
    match = Update(small(), lengths)
    assert match.play_ours() > 0
    assert match.play_encode_once() > 0
    assert match.play_length_sorted() > 0
    learned = [p.grad.abs().max() for p in (*match.ours.parameters(), *match.head.parameters())]
    assert min(learned) > 0
    first = match.terms
    match.play_ours()
    assert (match.terms != first).all()
    match.play_encode_once()


def test_a_loss_or_a_gradient_that_differs_fails():
    match = Update(small(), [20, 30])
    match.play_ours()
    match.terms[1] *= 1.001
    with pytest.raises(DifferentOutputs):
        match.play_encode_once()
    match.play_ours()
    match.ours.encoder.block[1].layer[0].SelfAttention.q.weight.grad[3, 4] += 1e-3
    with pytest.raises(DifferentOutputs, match=r"gradient of encoder\.block\.1\.layer\.0\.SelfAttention\.q"):
        match.play_encode_once()


def test_the_fixed_rows(monkeypatch):
    monkeypatch.setattr(glam, "build", small)
    monkeypatch.setattr(glam, "STEPS", 4)
    report = run(Options(rounds=1))
    rows = {row.id: row.headline for row in report.rows}
    assert rows == {
        "glam/acting/unique/prompts/encode_once": True,
        "glam/acting/unique/prompts/length_sorted": False,
        "glam/acting/recorded/prompts/encode_once": True,
        "glam/acting/recorded/prompts/length_sorted": False,
        "glam/acting/recorded/planner/prompts/encode_once": False,
        "glam/acting/recorded/planner/prompts/length_sorted": False,
        "glam/update/equal/samples/encode_once": True,
        "glam/update/equal/samples/length_sorted": False,
        "glam/update/mixed/samples/encode_once": True,
        "glam/update/mixed/samples/length_sorted": False,
    }
    assert all("of our time" in row.note for row in report.rows)
    documented = (ROOT / "benchmarks" / "README.md").read_text()
    assert all(f"`{found.id}`" in documented for found in (*report.rows, *report.skips))
