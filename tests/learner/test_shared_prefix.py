"""What a policy learns through a shared prompt is what it would learn from each action's text alone, token by token."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from llm_service.scoring import seq2seq
from llm_service.scoring.scorer import Scorer

across = seq2seq._across
VOCABULARY = 53
ACTIONS = ((7, 11), (7, 13), (5, 17, 19), (5, 17), (23,), (7, 11, 29, 31))
"""Some share their first tokens, and one is how others begin."""

T5 = {"vocab_size": VOCABULARY, "d_model": 24, "d_ff": 40, "num_heads": 4, "num_layers": 2, "decoder_start_token_id": 0}
LLAMA = {"vocab_size": VOCABULARY, "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 24, "n_head": 4, "n_layer": 2, "n_positions": 96}
MODELS = {
    "t5": lambda: T5ForConditionalGeneration(T5Config(**T5, d_kv=4)),  # fewer than nodes: keys and values are made
    "flan_t5": lambda: T5ForConditionalGeneration(
        T5Config(**T5, d_kv=8, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    ),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, intermediate_size=40, num_hidden_layers=2)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),  # its dropout is 0.1, as T5's
}


@pytest.fixture(scope="module")
def policies():
    """A model and a value head each, with weights large enough that a wrong mask or position is seen."""
    made = {}
    for name, build in MODELS.items():
        torch.manual_seed(5)
        model = build().eval()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1 and "t5" not in name:
                    weight.normal_(std=0.2)
            if name == "flan_t5":
                model.lm_head.weight.normal_(std=0.2)
        made[name] = model, torch.nn.Linear(24, 1)
    return made


def prompts(seed=0, lengths=(9, 30, 1, 17, 16)):
    generator = torch.Generator().manual_seed(seed)
    return [tuple(torch.randint(2, VOCABULARY, (n,), generator=generator).tolist()) for n in lengths]


def questions():
    """Prompts that occur again, with all actions, with some, and in another order."""
    a, b, c, d, e = prompts()
    return [(a, ACTIONS), (b, ACTIONS), (a, ACTIONS), (c, ACTIONS[:2]), (b, ACTIONS[::-1]), (d, ACTIONS), (e, ACTIONS)]


def naive(model, asked):
    """Scores and states by the model's own forward: one prompt, one action, and one token after the other."""
    scores, states = [], []
    for prompt, actions in asked:
        found = []
        for action in actions:
            total = 0.0
            for t, token in enumerate(action):
                if model.config.is_encoder_decoder:
                    given = torch.tensor([[0, *action[:t]]])
                    logits = model(input_ids=torch.tensor([prompt]), decoder_input_ids=given).logits
                else:
                    logits = model(input_ids=torch.tensor([prompt + action[:t]])).logits
                total = total + logits[0, -1].log_softmax(-1)[token]
            found.append(total)
        scores.append(torch.stack(found))
        states.append(state(model, prompt))
    return scores, torch.stack(states)


def state(model, prompt):
    ids = torch.tensor([prompt])
    if model.config.is_encoder_decoder:
        encoded = model.encoder(input_ids=ids).last_hidden_state
        return model.decoder(input_ids=torch.tensor([[0]]), encoder_hidden_states=encoded).last_hidden_state[0, 0]
    return model.base_model(input_ids=ids).last_hidden_state[0, -1]


def loss_of(scores, values, rows, n):
    """PPO's: a ratio for an action, an entropy, a squared error to a target; a mean over n steps."""
    total = 0.0
    for logits, value, row in zip(scores, values, rows, strict=True):
        log_probs = logits.log_softmax(-1)
        ratio = (log_probs[row % len(logits)] + 1.7).exp()
        total = total - (row - 2.5) * ratio + 0.01 * (log_probs * log_probs.exp()).sum() + 0.5 * (value - row) ** 2
    return total / n


def gradients(*modules):
    return {
        f"{i}.{name}": weight.grad.clone()
        for i, module in enumerate(modules)
        for name, weight in module.named_parameters()
        if weight.grad is not None
    }


def learned(policy, pieces, n):
    """Gradients of all parameters, added up over pieces (rows, scores, states)."""
    model, head = policy
    for module in policy:
        module.zero_grad()
    for rows, scores, states in pieces:
        loss_of(scores, head(states).squeeze(-1), rows, n).backward()
    return gradients(model, head)


def ours(policy, asked, budget):
    for rows, piece in Scorer(policy[0], budget=budget).micro_batches(asked):
        yield rows, piece.scores, piece.states


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    assert largest > 0.1
    for name, gradient in expected.items():
        assert float((found[name] - gradient).abs().max()) <= 1e-5 * largest, name


@pytest.mark.parametrize("name", MODELS)
def test_scores_and_states_with_gradients_on_are_those_of_each_token_alone(policies, name):
    model, _ = policies[name]
    found = Scorer(model).score_tokens(questions())
    scores, states = naive(model, questions())
    assert all(score.requires_grad for score in found.scores)
    torch.testing.assert_close(torch.cat(found.scores), torch.cat(scores), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.states, states, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("budget", [1, 40, 4096], ids=["one_by_one", "some", "all_at_once"])
@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_learns_what_it_would_from_each_token_alone(policies, name, budget):
    policy, asked = policies[name], questions()
    expected = learned(policy, [(range(len(asked)), *naive(policy[0], asked))], len(asked))
    assert len(expected) == sum(len(list(module.parameters())) for module in policy)
    assert_same(learned(policy, ours(policy, asked, budget), len(asked)), expected)


def test_keys_and_values_of_a_prompt_are_made_where_nodes_are_many_or_somebody_looks(policies, monkeypatch):
    made = []
    monkeypatch.setattr(seq2seq, "_across", lambda *given: made.append(given) or across(*given))
    few, many = Scorer(policies["flan_t5"][0]), Scorer(policies["t5"][0])
    made.clear()  # what the check of a new scorer did
    many.score_tokens(questions())
    assert not made
    few.score_tokens(questions())
    assert made
    model = copy.deepcopy(policies["flan_t5"][0])
    scorer, seen = Scorer(model), []
    plain = scorer.score_tokens(questions()).scores
    for block in model.decoder.block:
        block.layer[1].EncDecAttention.v.register_forward_hook(lambda *_: seen.append(0))
    made.clear()
    looked = scorer.score_tokens(questions()).scores
    assert seen
    assert not made
    torch.testing.assert_close(torch.cat(plain), torch.cat(looked), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["flan_t5", "llama"])
def test_micro_batches_add_up_to_one_batch(policies, name):
    policy = policies[name]
    asked = [(prompt, ACTIONS) for prompt in prompts(1, (8, 40, 9, 33, 8, 7, 30, 41))]
    one, many = list(ours(policy, asked, 10**6)), list(ours(policy, asked, 8))
    assert len(one) < len(many)
    assert sorted(row for rows, _, _ in many for row in rows) == list(range(len(asked)))
    assert_same(learned(policy, many, len(asked)), learned(policy, one, len(asked)))


@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_has_the_same_scores_and_gradients_alone_and_among_longer_ones(policies, name):
    policy = policies[name]
    short, *longer = [(prompt, ACTIONS) for prompt in prompts(2, (6, 7, 40, 64))]
    scorer = Scorer(policy[0], budget=4096, padding=1.0)  # all in one batch, most of it padding
    alone, among = scorer.score_tokens([short]), scorer.score_tokens([*longer, short])
    torch.testing.assert_close(alone.scores[0], among.scores[-1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(alone.states[0], among.states[-1], rtol=1e-5, atol=1e-5)
    expected = learned(policy, [([0], alone.scores, alone.states)], 1)
    found = learned(policy, [([0], among.scores[-1:], among.states[-1:])], 1)
    for gradient in expected.values():
        assert gradient.isfinite().all()
    assert_same(found, expected)


rows = st.lists(st.integers(2, VOCABULARY - 1), min_size=1, max_size=24).map(tuple)


@pytest.mark.parametrize("name", ["flan_t5", "llama"])
@settings(max_examples=25, deadline=None)
@given(texts=st.lists(rows, min_size=2, max_size=6), random=st.randoms(use_true_random=False))
def test_the_order_of_a_batch_does_not_matter(policies, name, texts, random):
    scorer = Scorer(policies[name][0], budget=64)
    order = random.sample(range(len(texts)), len(texts))
    with torch.no_grad():
        first = scorer.score_tokens([(text, ACTIONS) for text in texts])
        again = scorer.score_tokens([(texts[i], ACTIONS) for i in order])
    for place, i in enumerate(order):
        torch.testing.assert_close(again.scores[place], first.scores[i], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(again.states[place], first.states[i], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_what_has_dropout_scores_equally_twice_and_so_ratios_begin_at_one(policies, name):
    model = copy.deepcopy(policies[name][0])
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    scorer, asked = Scorer(model), questions()
    with torch.no_grad():
        acted = scorer.score_tokens(asked).scores
    ratios = torch.cat([(new - old).exp() for new, old in zip(scorer.score_tokens(asked).scores, acted, strict=True)])
    torch.testing.assert_close(ratios, torch.ones_like(ratios), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        assert all(torch.equal(a, b) for a, b in zip(acted, scorer.score_tokens(asked).scores, strict=True))
        if name != "llama":  # it has none
            model.train()
            assert not torch.equal(torch.cat(acted), torch.cat(scorer.score_tokens(asked).scores))
