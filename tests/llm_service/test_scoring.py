"""Scores equal one plain forward a candidate, in value and gradient; what is shared is computed once."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MptConfig,
    MptForCausalLM,
    MT5Config,
    MT5ForConditionalGeneration,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

from llm_service.errors import ContextTooLong, Refused, UsageError
from llm_service.scoring import scorer as scorer_module
from llm_service.scoring.scorer import Scorer
from llm_service.scoring.tokens import Boundary
from llm_service.scoring.trie import grow

VOCABULARY = 61
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}


def t5(cls=T5ForConditionalGeneration, config=T5Config, untied=False, **options):
    settings = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_layers": 2, "num_decoder_layers": 3}
    model = cls(config(vocab_size=VOCABULARY, decoder_start_token_id=0, **settings, **options))
    if untied:
        model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCABULARY, 32) * 0.2)
    return model


MODELS = {
    "t5": lambda: t5(),
    "t5_scaled_once_more": lambda: t5(tie_word_embeddings=False),
    "flan_t5": lambda: t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False, untied=True),
    "t5_eager": lambda: t5(attn_implementation="eager"),
    "mt5": lambda: t5(MT5ForConditionalGeneration, MT5Config),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_head=4, n_layer=2, n_positions=64)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, intermediate_size=48, num_key_value_heads=2)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL, intermediate_size=48, num_key_value_heads=2)),
}


@pytest.fixture(scope="module")
def built():
    """Each model once, with weights large enough that a wrong position or mask is seen."""
    made = {}

    def build(name):
        if name not in made:
            torch.manual_seed(3)
            model = made[name] = MODELS[name]().eval()
            with torch.no_grad():
                for key, weight in model.named_parameters():
                    if weight.dim() > 1 and not name.endswith("t5") and "t5" not in name:
                        weight.normal_(std=0.3 if "embed" in key or "wte" in key else 0.15)
        return made[name]

    return build


def naive(model, prompt, candidate, temperature=1.0):
    """One plain forward: the whole prompt, the whole candidate, all logits."""
    if model.config.is_encoder_decoder:
        given = torch.tensor([[model.config.decoder_start_token_id, *candidate[:-1]]])
        logits = model(input_ids=torch.tensor([prompt]), decoder_input_ids=given).logits[0]
    else:
        logits = model(input_ids=torch.tensor([prompt + candidate])).logits[0, len(prompt) - 1 : -1]
    chosen = (logits / temperature).log_softmax(-1)[torch.arange(len(candidate)), torch.tensor(candidate)]
    return chosen.sum()


def all_naive(model, questions):
    return [torch.stack([naive(model, prompt, c) for c in candidates]) for prompt, candidates in questions]


def gradients(model, scores):
    """Of a loss that treats every score differently, by every parameter."""
    model.zero_grad()
    sum((torch.softmax(s, 0) * torch.arange(1.0, len(s) + 1)).sum() + s[0] for s in scores).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same_gradients(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        size = max(1e-2, float(expected.abs().max()))
        torch.testing.assert_close(ours[name], expected, rtol=1e-3, atol=1e-4 * size, msg=lambda m, n=name: f"{n}: {m}")


tokens = st.integers(2, VOCABULARY - 1)
few = st.integers(2, 5)  # a small alphabet: candidates share beginnings, repeat, and are beginnings of each other
candidate_sets = st.lists(st.lists(few, min_size=1, max_size=5).map(tuple), min_size=1, max_size=7).map(tuple)
question_lists = st.lists(st.tuples(st.lists(tokens, min_size=1, max_size=20).map(tuple), candidate_sets), max_size=5)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=12, deadline=None)
@given(questions=question_lists, budget=st.sampled_from([1, 40, 4096]), padding=st.sampled_from([0.0, 0.9]))
def test_scores_equal_one_forward_a_candidate(built, name, questions, budget, padding):
    model = built(name)
    with torch.no_grad():
        scorer = Scorer(model, budget=budget, padding=padding)
        found = scorer.score_tokens(questions + questions[:1]).scores
        for ours, theirs in zip(found, all_naive(model, questions + questions[:1]), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def example(seed=0):
    generator = np.random.default_rng(seed)

    def draw(n, low=2):
        return tuple(generator.integers(low, VOCABULARY, n).tolist())

    shared = draw(3)
    candidates = (shared, shared[:2], (*shared[:2], 7, 9), draw(1), draw(4), shared)
    return [(draw(n), candidates[: 2 + n % 5]) for n in (5, 17, 9, 1, 16)]


@pytest.mark.parametrize("name", MODELS)
def test_gradients_equal_the_naive_ones(built, name):
    model, questions = built(name), example()
    theirs = gradients(model, all_naive(model, questions))
    assert_same_gradients(gradients(model, Scorer(model, budget=64).score_tokens(questions).scores), theirs)
    assert max(float(g.abs().max()) for g in theirs.values()) > 1e-2


@pytest.mark.parametrize("name", ["flan_t5", "llama"])
def test_micro_batches_one_by_one_give_the_gradients_of_the_whole(built, name):
    model, questions = built(name), example(1)
    theirs = gradients(model, all_naive(model, questions))
    model.zero_grad()
    answered = []
    for indices, piece in Scorer(model, budget=1).micro_batches(questions):
        answered.append(indices)
        sum((torch.softmax(s, 0) * torch.arange(1.0, len(s) + 1)).sum() + s[0] for s in piece.scores).backward()
    assert len(answered) == len(questions)
    assert_same_gradients({n: w.grad for n, w in model.named_parameters() if w.grad is not None}, theirs)


class Adapter(torch.nn.Module):
    """A low-rank addition to a frozen linear layer, as adapters are put around modules."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = torch.nn.Parameter(torch.randn(2, layer.in_features) * 0.3)
        self.up = torch.nn.Parameter(torch.randn(layer.out_features, 2) * 0.3)

    def forward(self, inputs):
        return self.layer(inputs) + inputs @ self.down.T @ self.up.T


@pytest.mark.parametrize(("name", "wrapped"), [("flan_t5", ("q", "v")), ("llama", ("q_proj", "v_proj"))])
def test_adapters_act_and_learn(name, wrapped):
    torch.manual_seed(0)
    model, questions = MODELS[name]().eval(), example()
    scorer = Scorer(model)
    model.requires_grad_(False)
    before = scorer.score_tokens(questions).scores[0]
    for module in list(model.modules()):
        for child in wrapped:
            if isinstance(getattr(module, child, None), torch.nn.Linear):
                setattr(module, child, Adapter(getattr(module, child)))
    theirs = gradients(model, all_naive(model, questions))
    assert_same_gradients(gradients(model, scorer.score_tokens(questions).scores), theirs)
    assert len(theirs) == len([weight for weight in model.parameters() if weight.requires_grad])
    assert not torch.allclose(before, scorer.score_tokens(questions).scores[0])


@pytest.mark.parametrize("name", MODELS)
def test_scores_depend_on_the_prompt(built, name):
    (prompt, candidates), *_ = example()
    other = (prompt[0] + 1, *prompt[1:])
    with torch.no_grad():
        one, two = Scorer(built(name)).score_tokens([(prompt, candidates), (other, candidates)]).scores
    assert float((one - two).abs().max()) > 1e-3


def test_normalisation(built):
    model, questions = built("gpt2"), example()
    with torch.no_grad():
        found = Scorer(model).score_tokens(questions, "tokens").scores
        for ours, (prompt, candidates) in zip(found, questions, strict=True):
            expected = [naive(model, prompt, c) / len(c) for c in candidates]
            torch.testing.assert_close(ours, torch.stack(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["t5", "gpt2", "llama"])
def test_the_state_of_a_value_head(built, name):
    model, questions = built(name), example()
    with torch.no_grad():
        states = Scorer(model).score_tokens(questions).states
        for ours, (prompt, _) in zip(states, questions, strict=True):
            ids = torch.tensor([prompt])
            if model.config.is_encoder_decoder:
                output = model(input_ids=ids, decoder_input_ids=torch.tensor([[0]]), output_hidden_states=True)
                expected = output.decoder_hidden_states[-1][0, 0]
            else:
                expected = model(input_ids=ids, output_hidden_states=True).hidden_states[-1][0, -1]
            torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_bfloat16_is_near(built):
    questions = example()
    with torch.no_grad():
        exact = Scorer(built("llama")).score_tokens(questions).scores
        rough = Scorer(MODELS["llama"]().to(torch.bfloat16).eval(), remember=0)
        rough.model.load_state_dict(built("llama").state_dict())
        for a, b in zip(exact, rough.score_tokens(questions).scores, strict=True):
            assert b.dtype == torch.float32
            torch.testing.assert_close(a, b, rtol=0.05, atol=0.3)


# ---- each thing once -------------------------------------------------------------------------------------------------


class Rows:
    """Counts the rows and tokens that enter a module."""

    def __init__(self, module):
        self.rows = self.tokens = 0
        module.register_forward_pre_hook(self)

    def __call__(self, _, inputs):
        self.rows += inputs[0].shape[0]
        self.tokens += inputs[0].shape[:2].numel()


def test_each_prompt_is_encoded_and_its_keys_and_values_projected_once(built):
    model = MODELS["flan_t5"]().eval()
    scorer = Scorer(model, budget=1)
    attention = model.decoder.block[0].layer[1].EncDecAttention
    encoder, keys, values, head, decoder = (
        Rows(m) for m in (model.encoder.block[0], attention.k, attention.v, model.lm_head, model.decoder.block[0])
    )
    questions = example()
    again = [(prompt, candidates[::-1][:1]) for prompt, candidates in questions]  # the same prompts, other questions
    with torch.no_grad():
        scorer.score_tokens(questions * 3 + again)
    prompts = sum(len(prompt) for prompt, _ in questions)
    nodes = sum(len(grow(candidates).tokens) for _, candidates in questions)
    assert (encoder.rows, encoder.tokens) == (len(questions), prompts)
    assert (keys.rows, keys.tokens) == (values.rows, values.tokens) == (len(questions), prompts)
    assert head.tokens == decoder.tokens == nodes
    assert nodes < sum(len(c) for _, candidates in questions for c in candidates)


def test_a_causal_row_holds_the_prompt_and_the_inner_nodes_and_the_head_only_these():
    model = MODELS["gpt2"]().eval()
    scorer = Scorer(model, budget=1)
    body, head = Rows(model.transformer.h[0]), Rows(model.lm_head)
    prompt, candidates = (5, 6, 7, 8), ((3, 4, 5), (3, 4, 9), (3,), (8, 2), (8, 2))
    with torch.no_grad():
        scorer.score_tokens([(prompt, candidates)] * 2)
    assert (body.rows, body.tokens) == (1, 4 + 3)  # 3, 3 4 and 8: no last token is fed
    assert head.tokens == 1 + 3


def test_little_padding_is_computed_and_batches_keep_to_their_budget(built):
    model = built("gpt2")
    scorer = Scorer(model, budget=64, padding=0.2)
    questions = [((i + 2,) * (i + 1), ((3,),)) for i in range(40)]
    sizes = []
    for indices, _ in scorer.micro_batches(questions):
        lengths = [len(questions[i][0]) for i in indices]
        assert len(indices) == 1 or max(lengths) * len(indices) <= 64
        assert max(lengths) * len(indices) - sum(lengths) <= 0.2 * max(lengths) * len(indices)
        sizes.append(len(indices))
    assert sum(sizes) == 40
    assert max(sizes) > 3


def test_the_logits_of_a_batch_are_bounded(built, monkeypatch):
    monkeypatch.setattr(scorer_module, "LOGITS", 4 * VOCABULARY)
    questions = [((i + 2, 3), ((5, 6), (7, 8))) for i in range(4)]  # three nodes each
    assert [len(i) for i, _ in Scorer(built("gpt2"), budget=10**6).micro_batches(questions)] == [1, 1, 1, 1]


def test_a_trie_shares_beginnings():
    trie = grow(((7, 4), (7, 5, 9), (8,), (7, 5), (8,)))
    assert trie.tokens.tolist() == [0, 7, 5]
    assert trie.depths.tolist() == [0, 1, 2]
    assert list(zip(trie.nodes.tolist(), trie.labels.tolist(), strict=True)) == [(0, 7), (1, 4), (1, 5), (2, 9), (0, 8)]
    assert trie.paths.tolist() == [[0, 1, -1], [0, 2, 3], [4, -1, -1], [0, 2, -1], [4, -1, -1]]
    assert trie.sees.tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert not grow(((1, 2, 3), (4, 5, 6))).sees[3:, 1:3].any()


# ---- texts -----------------------------------------------------------------------------------------------------------

CORPUS = ["go left go right go forward pick up the key", "open the red door", "You see a key. What do you do?"]


def trained(pre_tokenizer, alphabet=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=list(alphabet), special_tokens=["<pad>", "</s>"])
    tokenizer.train_from_iterator(CORPUS * 20, trainer)
    return tokenizer


def byte_level():
    tokenizer = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.ByteLevel.alphabet())
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>")


def metaspace():
    """As T5's: words begin with ▁, and a text ends with </s>."""
    tokenizer = trained(pre_tokenizers.Metaspace())
    ending = [("</s>", tokenizer.token_to_id("</s>"))]
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=ending)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>")


@pytest.fixture(scope="module")
def texts():
    tokenizer = byte_level()
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_head=4, n_layer=2, n_positions=64)
    return Scorer(GPT2LMHeadModel(config).eval(), tokenizer)


def test_candidates_carry_their_leading_space_where_words_do(texts):
    ids = texts.boundary.tokenizer
    space, none = tuple(ids(" go left").input_ids), tuple(ids("go left").input_ids)
    assert space != none
    assert texts.tokenise("What now?", ["go left", " go left"])[1] == (space, space)
    assert texts.tokenise("What now?\n", ["go left"])[1] == (none,)
    assert texts.tokenise("What now?", ["go left"])[0] == tuple(ids("What now?").input_ids)


def test_sentencepiece_adds_its_own_space():
    tokenizer = metaspace()
    plain = tuple(tokenizer("go left", add_special_tokens=False).input_ids)
    assert tokenizer.convert_ids_to_tokens(plain[0]).startswith("▁")
    assert Boundary(tokenizer, seq2seq=False).candidates(["go left"], "What now?") == (plain,)


def test_seq2seq_candidates_begin_a_text_and_prompts_have_their_end():
    tokenizer = metaspace()
    boundary = Boundary(tokenizer, seq2seq=True)
    assert boundary.candidates(["go left"], "see") == (tuple(tokenizer("go left").input_ids[:-1]),)
    assert boundary.prompt("see")[-1] == tokenizer.eos_token_id
    assert boundary.prompt("see", special=False) == boundary.prompt("see")[:-1]
    other = byte_level()
    assert Boundary(other, seq2seq=True).candidates(["go left"], "see") == (tuple(other("go left").input_ids),)


def test_texts_score_as_their_tokens_do(texts):
    prompts, candidates = ["You see a key.", "What do you do?"], [("go left", "pick up the key"), ("go left",)]
    with torch.no_grad():
        found = texts.score(prompts, candidates)
        for ours, prompt, options in zip(found, prompts, candidates, strict=True):
            question = texts.tokenise(prompt, options)
            expected = torch.stack([naive(texts.model, question[0], c) for c in question[1]])
            torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(
                texts.score([prompt], [options], "tokens")[0], expected / torch.tensor([len(c) for c in question[1]])
            )


def test_scores_are_remembered_until_the_weights_change_and_never_with_gradients(texts):
    scorer = Scorer(texts.model, texts.boundary.tokenizer, remember=2)
    body = Rows(texts.model.transformer.h[0])

    def rows(ask):
        before = body.rows
        ask()
        return body.rows - before

    one, two = (["You see a key."], [("go left",)]), (["open"], [("go left", "go right")])
    with torch.no_grad():
        assert rows(lambda: scorer.score(*one)) == 1
        first = scorer.score(*one)[0]
        first += 1.0  # what was handed out is the caller's own
        assert rows(lambda: scorer.score(*one)) == 0
        assert scorer.score(*one)[0] != first
        scorer.version += 1
        assert rows(lambda: scorer.score(*one)) == 1
        assert rows(lambda: scorer.score(*two)) == 1
        assert rows(lambda: scorer.score(["up"], [("key",)])) == 1  # one is forgotten: only two are kept
        assert rows(lambda: scorer.score(*one)) == 1
    assert rows(lambda: scorer.score(*one)) == 1
    assert scorer.score(*one)[0].requires_grad
    scorer.model.train()
    with torch.no_grad():
        assert rows(lambda: scorer.score(*one)) == 1
    scorer.model.eval()


def test_dropout_acts_after_train_and_not_after_eval(built):
    model, questions = MODELS["t5"]().eval(), example()
    scorer = Scorer(model)
    with torch.no_grad():
        assert torch.equal(scorer.score_tokens(questions).scores[0], scorer.score_tokens(questions).scores[0])
        model.train()
        assert not torch.equal(scorer.score_tokens(questions).scores[0], scorer.score_tokens(questions).scores[0])


# ---- what cannot be scored says so -----------------------------------------------------------------------------------


def test_refusals(texts, built):
    with torch.no_grad():
        with pytest.raises(Refused, match="at least one candidate"):
            texts.score(["go"], [()])
        with pytest.raises(Refused, match="candidate 1 is empty"):
            texts.score(["go"], [("left", "")])
        with pytest.raises(Refused, match="prompt 0 has no tokens"):
            texts.score([""], [("left",)])
        with pytest.raises(Refused, match="prompt 1 has no candidates"):
            texts.score_tokens([((3,), ((4,),)), ((3,), ())])
        with pytest.raises(ContextTooLong, match=r"prompt 0 .* 66 tokens, the model's context has 64"):
            texts.score_tokens([((3,) * 64, ((4, 5),))])
        assert texts.score_tokens([((3,) * 62, ((4, 5),))]).scores[0].shape == (1,)
        assert texts.score([], []) == []
    with pytest.raises(UsageError, match="need a tokenizer"):
        Scorer(built("gpt2")).score(["go"], [("left",)])


def test_a_sliding_window_bounds_the_context():
    config = Qwen2Config(
        **SMALL,
        intermediate_size=48,
        num_key_value_heads=2,
        use_sliding_window=True,
        sliding_window=16,
        max_window_layers=0,
    )
    scorer = Scorer(Qwen2ForCausalLM(config).eval())
    assert scorer.context == 16


def test_other_seq2seq_models_are_refused():
    config = UMT5Config(vocab_size=VOCABULARY, d_model=16, d_kv=4, d_ff=16, num_heads=2, num_layers=1)
    with pytest.raises(UsageError, match="umt5 is a seq2seq model, but not one of t5, mt5"):
        Scorer(UMT5ForConditionalGeneration(config))


@pytest.mark.parametrize(
    ("cls", "config", "said"),
    [(BloomForCausalLM, BloomConfig, "bloom does not take"), (MptForCausalLM, MptConfig, "mpt")],
)
def test_models_that_place_tokens_in_their_own_way_are_refused(cls, config, said):
    torch.manual_seed(0)
    model = cls(config(vocab_size=VOCABULARY, hidden_size=32, d_model=32, n_layers=2, n_layer=2, n_head=4, n_heads=4))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.3)
    with pytest.raises(UsageError, match=said):
        Scorer(model)
    assert model.training
