"""The blocks of a GPU, run on the processor: what they answer and teach is what the library's own blocks do."""

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from llm_service.scoring import packed
from llm_service.scoring.scorer import Scorer

VOCABULARY = 53
ACTIONS = ((7, 11), (7, 13), (5, 17, 19), (23,))
SIZES = {"vocab_size": VOCABULARY, "d_model": 24, "d_kv": 8, "d_ff": 40, "num_heads": 4, "num_layers": 2}
KINDS = {"gated": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, "plain": {}}


def build(kind):
    torch.manual_seed(5)
    return T5ForConditionalGeneration(
        T5Config(**SIZES, **KINDS[kind], dropout_rate=0.0, decoder_start_token_id=0)
    ).eval()


def questions(lengths=(9, 30, 1, 17, 16, 31, 8)):
    generator = torch.Generator().manual_seed(0)
    return [(tuple(torch.randint(2, VOCABULARY, (n,), generator=generator).tolist()), ACTIONS) for n in lengths]


def learned(model, by_parts, half=False, checkpointing=False):
    """Scores [N, K], states [N, D], and the gradient of each parameter."""
    if checkpointing:
        model.activation_checkpointing_enable()
        model.train()
    scorer = Scorer(model, budget=120)
    scorer._network.packed = by_parts
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        found = scorer.score_tokens(questions())
    scores = torch.stack(found.scores)
    (scores.log_softmax(-1)[:, 0].sum() + found.states.float().square().sum()).backward()
    return scores.detach(), found.states.detach().float(), {n: p.grad for n, p in model.named_parameters()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "again"])
def test_scores_states_and_gradients_are_those_of_the_library(kind, checkpointing):
    scores, states, gradients = learned(build(kind), False)
    found = learned(build(kind), True, checkpointing=checkpointing)
    torch.testing.assert_close(found[0], scores, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1], states, rtol=1e-5, atol=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(
            found[2][name], gradient, rtol=1e-4, atol=1e-5, msg=lambda told, n=name: f"{n}: {told}"
        )


def test_in_bfloat16_they_differ_by_rounding_alone():
    scores, states, gradients = learned(build("gated"), False)
    found = learned(build("gated"), True, half=True)
    assert (found[0] - scores).abs().max() < 0.05 * scores.abs().max()
    assert (found[1] - states).abs().max() < 0.05 * states.abs().max()
    for name, gradient in gradients.items():
        assert (found[2][name] - gradient).norm() < 0.1 * gradient.norm() + 1e-6, name


def test_prompts_of_all_lengths_share_each_product():
    model = build("gated")
    scorer, rows = Scorer(model, budget=1000), []
    scorer._network.packed = True
    model.encoder.block[1].layer[-1].DenseReluDense.wi_0.register_forward_hook(
        lambda _, given, out: rows.append(len(out))
    )
    with torch.no_grad():
        scorer.score_tokens(questions((20, 24, 16, 23)))
    assert rows == [24 * 3 + 16]  # lengths are rounded up to eight


def test_where_there_is_a_hook_the_library_runs_its_blocks():
    model, seen = build("gated"), []
    assert packed.able(model.encoder)
    model.encoder.block[1].register_forward_pre_hook(lambda _, given: seen.append(given[0].shape))
    assert not packed.able(model.encoder)
    scorer = Scorer(model)
    scorer._network.packed = True
    with torch.no_grad():
        scorer.score_tokens(questions())
    assert seen


def test_the_keys_of_a_bias_lie_side_by_side():
    """Fused attention refuses any other bias, and attention then takes eight times as long."""
    network = Scorer(build("gated"))._network
    for prompts in ([(7,) * 16] * 3, [(7,) * 16, (7,) * 9]):
        assert network._between(prompts, 16, torch.bfloat16).stride(-1) == 1
