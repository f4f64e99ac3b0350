"""A language model's policy is what its model says of each action alone, whatever shares a batch with it."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

import envs
from actors.players import sample
from actors.wrappers.history import History
from learner.algorithms.ppo.losses import Loss, Steps
from learner.group import build_policy, get_weights, set_weights
from learner.models import PolicyConfig
from learner.models.config import HISTORY as FIELD
from learner.models.config import remembered
from learner.models.language.llm_policy import FORBIDDEN, check_language_policy, check_model
from learner.models.language.prompt import State
from llm_service import tiny
from llm_service.errors import UsageError
from llm_service.scoring.likeness import Likeness
from tests.learner.doors import Doors

WORLD, OPTIONS = "babyai/GoToRedBall", {"captions": True, "actions": 6}
FAMILIES = ("t5", "flan", "llama", "gpt2")
ENCODER = {"head": "similarity", "temperature": 0.3}
"""What the model `bert` needs: it writes no words."""
BOTH = ("t5", "llama")

torch.set_num_threads(1)  # of such small products, as in an actor: threads would wait for each other


@functools.cache
def models():
    """Small models as folders, made once: the two tiny ones, barely trained, and two whose configurations have dropout.

    Their weights are large enough that a wrong mask, position or token is seen.
    """
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        patch.setattr(tiny, "STEPS", 2)
        tiny.build(folder)
        torch.manual_seed(7)
        t5 = {"vocab_size": 1024, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_layers": 2}
        flan = T5Config(**t5, feed_forward_proj="gated-gelu", decoder_start_token_id=0, tie_word_embeddings=False)
        gpt2 = GPT2Config(vocab_size=1024, n_embd=32, n_head=4, n_layer=2, n_positions=512)
        made = {
            "llama": LlamaForCausalLM.from_pretrained(folder / "llama"),
            "flan": T5ForConditionalGeneration(flan),
            "gpt2": GPT2LMHeadModel(gpt2),
        }
        bert = BertConfig(
            vocab_size=1024, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
        )
        made["bert"] = BertModel(bert)
        assert flan.dropout_rate == gpt2.resid_pdrop == bert.hidden_dropout_prob == 0.1
        for name, model in made.items():
            with torch.no_grad():
                for weight in model.parameters():
                    if weight.dim() > 1 and name != "flan":
                        weight.normal_(std=0.1)
            model.save_pretrained(folder / name)
        for name, other in (("flan", "t5"), ("gpt2", "llama"), ("bert", "t5")):
            AutoTokenizer.from_pretrained(folder / other).save_pretrained(folder / name)
    return {name: folder / name for name in (*FAMILIES, "bert")}


def config_of(name, prompt=None, **lm):
    lm = {"critic": 16, "device": "cpu"} | lm
    lm = lm if "folder" in lm else lm | {"folder": str(models()[name])}
    return PolicyConfig(network="language_model", prompt={"observations": 1} | (prompt or {}), lm=lm)


def policy_of(name, spec=None, seed=0, prompt=None, **lm):
    """A policy whose heads have opinions."""
    config = config_of(name, prompt, **lm)
    policy = build_policy(config, remembered(config, spec or envs.spec(WORLD, **OPTIONS)), seed)
    for head in filter(None, (policy.value_head, policy.action_head)):
        torch.nn.init.normal_(head[4].weight)
    return policy


@functools.cache
def states(observations=1, envs_=5, steps=4):
    """Observations [B] of some play, the strings that they name, and these as people read them."""
    env = envs.make(WORLD, envs_, 3, **OPTIONS)
    env = History(env, ["caption"], observations) if observations > 1 else env
    rows = [env.begin()]
    for action in np.random.default_rng(0).integers(3, size=(steps - 1, envs_)):
        rows.append(env.advance(action).obs)
    names = ("mission", "caption", *([FIELD] if observations > 1 else []))
    return {name: np.concatenate([row[name] for row in rows]) for name in names}, env.texts


def at(obs, index):
    return {name: column[index] for name, column in obs.items()}


def alone(policy, text, names):
    """By the model's own forward: of each name, raw logits of its tokens and their normalisers; and the state. Of an
    encoder, each name's cosine and 0."""
    tokenizer, model = policy.scorer.boundary.tokenizer, policy.model
    if isinstance(policy.scorer, Likeness):
        state, *named = (
            model(torch.tensor([tokenizer(one).input_ids])).last_hidden_state[0].mean(0) for one in (text, *names)
        )
        return [(torch.nn.functional.cosine_similarity(state, name, dim=0)[None], 0.0) for name in named], state
    prompt, found = tokenizer(text).input_ids, []
    for name in names:
        if model.config.is_encoder_decoder:
            tokens = tokenizer(name, add_special_tokens=False).input_ids
            given = {"input_ids": torch.tensor([prompt]), "decoder_input_ids": torch.tensor([[0, *tokens[:-1]]])}
            output = model(**given, output_hidden_states=True)
            logits, state = output.logits[0], output.decoder_hidden_states[-1][0, 0]
        else:
            tokens = tokenizer(f" {name}", add_special_tokens=False).input_ids
            output = model(torch.tensor([[*prompt, *tokens[:-1]]]), output_hidden_states=True, use_cache=False)
            logits, state = output.logits[0, len(prompt) - 1 :], output.hidden_states[-1][0, len(prompt) - 1]
        found.append((logits[range(len(tokens)), tokens], logits.logsumexp(-1)))
    return found, state


def reference(policy, obs, texts):
    """Logits [B, A] and values [B], one state and one action after the other."""
    lm, names, logits, values = policy.lm, policy.prompter.names, [], []
    for row in range(len(obs["mission"])):
        goal, seen = texts[int(obs["mission"][row])], texts[int(obs["caption"][row])]
        earlier = [texts[i] for i in obs[FIELD][row].tolist()] if FIELD in obs else []
        found, state = alone(policy, policy.prompter.prompt.text(State(goal, [seen], earlier)), names)
        longest = max(len(raw) for raw, _ in found)
        if lm.head == "actions":
            logits.append(policy.action_head(state))
        elif lm.normalise == "compat":
            logits.append(torch.stack([raw.sum() + longest - len(raw) for raw, _ in found]) / lm.temperature)
        else:
            scores = [raw - normaliser for raw, normaliser in found]
            means = [s.mean() if lm.normalise == "tokens" else s.sum() for s in scores]
            temperature = lm.temperature if policy.log_temperature is None else policy.log_temperature.exp()
            logits.append(torch.stack(means) / temperature)
        values.append(policy.value_head(state)[0])
    return torch.stack(logits), torch.stack(values)


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


# ---- what it says ---------------------------------------------------------------------------------------------------

KINDS = {
    "none": {},
    "tokens": {"normalise": "tokens"},
    "compat": {"normalise": "compat"},
    "temperature": {"temperature": 2.5, "normalise": "tokens"},
    "actions": {"head": "actions"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BOTH)
def test_logits_and_values_are_those_of_each_action_alone(name, kind):
    policy, (obs, texts) = policy_of(name, **KINDS[kind]), states()
    obs = at(obs, slice(10))
    logits, values = policy.decide(obs, texts)
    assert (logits.shape, values.shape, logits.dtype, values.dtype) == ((10, 6), (10,), torch.float32, torch.float32)
    with torch.no_grad():
        same((logits, values), reference(policy, obs, texts))
    assert logits.std(-1).min() > 0.01  # it prefers some actions
    assert len(set(values.tolist())) > 5


@pytest.mark.parametrize("name", ["flan", "gpt2"])
def test_earlier_observations_and_actions_are_told(name):
    policy, (obs, texts) = policy_of(name, prompt={"observations": 3}), states(3)
    assert list(policy.fields) == ["mission", "caption", FIELD]
    obs = at(obs, slice(-6, None))
    found = policy.decide(obs, texts)
    with torch.no_grad():
        same(found, reference(policy, obs, texts))
    forgotten = policy.decide({**obs, FIELD: np.full_like(obs[FIELD], texts.intern(""))}, texts)[0]
    assert (found[0] - forgotten).abs().max(-1).values.min() > 1e-3


@pytest.mark.parametrize("name", BOTH)
def test_logits_of_a_head_of_its_own_ask_nothing_about_the_names(name):
    policy, (obs, texts) = policy_of(name, head="actions"), states()
    asked = policy.prompter.ask(obs, texts)
    others = [question._replace(candidates=((9, 8, 7), (5,))) for question in asked]
    assert all(torch.equal(a, b) for a, b in zip(policy.answer(asked), policy.answer(others), strict=True))


@pytest.mark.parametrize("lm", [ENCODER, {"head": "actions"}], ids=["similarity", "actions"])
def test_an_encoder_says_how_alike_a_state_and_each_name_are(lm):
    policy, (obs, texts) = policy_of("bert", **lm), states()
    found = policy.decide(obs, texts)
    same(found, reference(policy, obs, texts))
    assert found[0].std() > 0.01
    if policy.log_temperature is not None:
        with torch.no_grad():
            policy.log_temperature.fill_(-9.0)  # colder than is allowed
        cosines = found[0] * lm["temperature"]
        torch.testing.assert_close(policy.decide(obs, texts)[0], cosines / 0.01, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "lm", "message"),
    [
        ("bert", {}, r"head=scores: .*bert is an encoder \(bert\), which writes no words: use head=similarity"),
        ("t5", {"head": "similarity"}, r"head=similarity: .*t5 is not an encoder: use head=scores, or head=actions"),
        ("bert", ENCODER | {"normalise": "tokens"}, "normalise=tokens is for sums of log-probabilities"),
    ],
)
def test_a_head_that_is_not_for_a_model_is_one_sentence(name, lm, message):
    config, spec = config_of(name, **lm), envs.spec(WORLD, **OPTIONS)
    check = check_language_policy if "normalise" in lm else check_model
    with pytest.raises((UsageError, ValueError), match=message):
        check(config, spec)


def test_dropout_is_off_where_the_models_configuration_has_some():
    obs, texts = states()
    for name in ("flan", "gpt2"):
        policy = policy_of(name, checkpointing=True)
        assert policy.training
        assert all(module.p == 0 for module in policy.modules() if isinstance(module, torch.nn.Dropout))
        first, again = policy.decide(obs, texts), policy.decide(obs, texts)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        policy.eval()
        same(policy.decide(obs, texts), first)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_neither_the_order_nor_the_company_of_states_matters(name, kind):
    """A state alone, in another order, and among longer prompts that make most of its row padding."""
    policy, (obs, texts) = policy_of(name, prompt={"observations": 3}, budget=4096, **KINDS[kind]), states(3)
    n = len(obs["mission"])
    whole = policy.decide(obs, texts)
    order = np.random.default_rng(1).permutation(n)
    same(policy.decide(at(obs, order), texts), [column[order] for column in whole])
    for row in (0, n // 2, n - 1):
        same(policy.decide(at(obs, [row]), texts), [column[[row]] for column in whole])
    policy.scorer._network.padding = policy.scorer._network._padding = 1.0
    lengths = [len(question.prompt) for question in policy.prompter.ask(obs, texts)]
    assert max(lengths) > 1.5 * min(lengths)
    same(policy.decide(obs, texts), whole)


def test_a_state_that_occurs_again_is_computed_once():
    policy, (obs, texts) = policy_of("llama"), states()
    seen, real = [], policy.scorer._network.forward
    policy.scorer._network.forward = lambda prompts, tries: seen.extend(prompts) or real(prompts, tries)
    twice = at(obs, np.tile(np.arange(4), 2))
    logits, values = policy.decide(twice, texts)
    assert len(seen) == len(set(seen)) == len({question.prompt for question in policy.prompter.ask(twice, texts)}) <= 4
    assert torch.equal(logits[:4], logits[4:])
    assert torch.equal(values[:4], values[4:])


def test_training_varies_prompts_and_the_names_of_actions():
    policy, (obs, texts) = policy_of("t5", prompt={"paraphrase": 0.5, "synonyms": 0.5}), states()
    varied = policy.prompter.ask(obs, texts)
    assert policy.prompter.ask(obs, texts) == varied
    policy.prompter.prompt.varied = False
    plain = policy.prompter.ask(obs, texts)
    differs = [one.prompt != other.prompt for one, other in zip(varied, plain, strict=True)]
    assert any(differs)
    assert not all(differs)
    assert {question.candidates for question in varied} > {question.candidates for question in plain}


def test_a_prompt_that_does_not_fit_is_one_sentence_before_anything_is_computed():
    obs, texts = states()
    longest = max(len(question.prompt) for question in policy_of("t5").prompter.ask(obs, texts))
    for name in BOTH:
        policy = policy_of(name, context=longest)
        policy.scorer._network.forward = None
        with pytest.raises(UsageError, match=rf"^policy\.prompt: .* context has {longest}: tell fewer observations"):
            next(policy.pieces(obs, texts))


# ---- what is trained ------------------------------------------------------------------------------------------------


def folder_of(name):
    return safetensors.torch.load_file(models()[name] / "model.safetensors")


def weights_of(policy):
    """By the names of the folder's file, which holds tied weights once."""
    own = dict(policy.model.named_parameters())
    return {name: own[name].detach() for name in folder_of(Path(policy.lm.folder).name) if name in own}


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_loaded_is_the_folders_and_the_rest_follows_from_the_seed(name):
    stored = folder_of(name)
    loaded = {p: weights_of(policy_of(name, pretrained=p)) for p in ("all", "embeddings", "none")}
    assert loaded["all"].keys() == stored.keys()
    assert all(torch.equal(value, stored[key]) for key, value in loaded["all"].items())
    model = policy_of(name).model
    embedding = next(key for key, p in model.named_parameters() if p is model.get_input_embeddings().weight)
    matrices = {key for key, value in stored.items() if value.dim() > 1}
    for pretrained, equal in (("embeddings", {embedding}), ("none", set())):
        assert {key for key in matrices if torch.equal(loaded[pretrained][key], stored[key])} == equal
        torch.manual_seed(99)  # only the seed counts
        again, other = (policy_of(name, seed=seed, pretrained=pretrained) for seed in (0, 1))
        assert all(torch.equal(value, loaded[pretrained][key]) for key, value in weights_of(again).items())
        differing = {key for key in matrices if not torch.equal(weights_of(other)[key], stored[key])}
        assert differing == matrices - equal
        assert all(not torch.equal(weights_of(other)[key], weights_of(again)[key]) for key in matrices - equal)


def test_heads_follow_from_the_seed():
    spec = envs.spec(WORLD, **OPTIONS)
    one, again, other = (build_policy(config_of("t5", head="actions"), spec, seed) for seed in (0, 0, 1))
    for head in ("value_head.0.weight", "action_head.2.weight"):
        assert np.array_equal(get_weights(one)[head], get_weights(again)[head])
        assert not np.array_equal(get_weights(one)[head], get_weights(other)[head])


def adapted(name, **lm):
    """A policy whose adapters do something."""
    policy = policy_of(name, tune="lora", lora_rank=4, **lm)
    with torch.no_grad():
        for key, parameter in policy.named_parameters():
            if "lora_B" in key:
                parameter.normal_(std=0.1)
    return policy


@pytest.mark.parametrize("name", FAMILIES)
def test_adapters_begin_as_nothing_and_are_all_that_travels(name):
    plain, policy, (obs, texts) = policy_of(name), policy_of(name, tune="lora", lora_rank=4), states()
    set_heads(policy, plain)
    same(policy.decide(obs, texts), plain.decide(obs, texts))
    names = set(policy.payload())
    assert {key.partition(".")[0] for key in names} == {"model", "value_head"}
    assert all("lora_" in key for key in names if key.startswith("model."))
    assert {p.dtype for p in policy.payload().values()} == {torch.float32}
    assert sum(p.numel() for p in policy.payload().values()) < 0.2 * sum(p.numel() for p in policy.parameters())


def set_heads(policy, other):
    policy.value_head.load_state_dict(other.value_head.state_dict())


@pytest.mark.parametrize("name", FAMILIES)
def test_adapters_merged_into_the_weights_say_the_same(name):
    policy, (obs, texts) = adapted(name), states()
    before = policy.decide(obs, texts)
    layers = [module for module in policy.model.modules() if isinstance(module, BaseTunerLayer)]
    assert layers
    for layer in layers:
        layer.enable_adapters(False)
    without = policy.decide(obs, texts)[0]
    for layer in layers:
        layer.enable_adapters(True)
        layer.merge()
    same(policy.decide(obs, texts), before)
    assert (before[0] - without).abs().max() > 0.01


@pytest.mark.parametrize(
    ("name", "lm"),
    [
        ("t5", {"tune": "lora", "lora_rank": 4}),
        ("llama", {"tune": "lora", "lora_rank": 4, "lora_targets": ["q_proj", "up_proj"]}),
        ("llama", {"tune": "lora", "lora_rank": 4, "precision": "bfloat16"}),
        ("flan", {"tune": "none", "head": "actions"}),
        ("gpt2", {}),
        ("bert", ENCODER),
        ("bert", ENCODER | {"tune": "lora", "lora_rank": 4}),
    ],
    ids=["t5-lora", "llama-lora", "llama-lora-bfloat16", "flan-heads", "gpt2-all", "bert-all", "bert-lora"],
)
def test_what_travels_makes_another_policy_the_same(name, lm, tmp_path):
    policy, (obs, texts) = policy_of(name, **lm), states()
    with torch.no_grad():
        for value in policy.payload().values():
            value.add_(torch.randn_like(value), alpha=0.05)
    safetensors.numpy.save_file(get_weights(policy), tmp_path / "weights.safetensors")
    other = policy_of(name, **lm)
    before = policy.decide(obs, texts)
    assert not torch.equal(other.decide(obs, texts)[0], before[0])
    set_weights(other, safetensors.numpy.load_file(tmp_path / "weights.safetensors"))
    assert all(torch.equal(a, b) for a, b in zip(other.decide(obs, texts), before, strict=True))
    get_weights(policy)["value_head.0.weight"][:] = 0  # copies
    assert policy.value_head[0].weight.abs().sum() > 0
    with pytest.raises(ValueError, match="do not fit this policy"):
        set_weights(other, get_weights(policy_of(name, **lm | {"critic": 8})))


@pytest.mark.parametrize("name", BOTH)
def test_a_bfloat16_body_with_float32_adapters_is_near_and_learns(name):
    exact, (obs, texts) = adapted(name), states()
    policy = policy_of(name, tune="lora", lora_rank=4, precision="bfloat16")
    set_weights(policy, get_weights(exact))
    body = {p.dtype for key, p in policy.model.named_parameters() if "lora_" not in key}
    assert body == {torch.bfloat16}
    assert {p.dtype for p in policy.payload().values()} == {torch.float32}
    (logits, values), (rounded, some) = exact.decide(obs, texts), policy.decide(obs, texts)
    assert rounded.dtype == some.dtype == torch.float32
    assert 0 < (logits - rounded).abs().max() < 0.15
    assert 0 < (values - some).abs().max() < 0.15

    optimiser, losses = torch.optim.Adam([p for p in policy.parameters() if p.requires_grad], 1e-2), []
    for _ in range(6):
        loss = 0.0
        for _, logits, _ in policy.pieces(obs, texts):
            assert not torch.is_autocast_enabled("cpu")  # what a receiver does is its own
            loss = loss - logits.log_softmax(-1)[:, 2].sum() / len(obs["mission"])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_a_model_trained_in_bfloat16_keeps_its_weights_in_float32():
    policy, (obs, texts) = policy_of("t5", precision="bfloat16"), states()
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    (logits, _), (rounded, _) = policy_of("t5").decide(obs, texts), policy.decide(obs, texts)
    assert 0 < (logits - rounded).abs().max() < 0.15


# ---- states that have actions of their own --------------------------------------------------------------------------


def rooms():
    env = Doors(12, 3)
    obs = env.begin()
    there = np.array([[bool(env.texts[i]) for i in row] for row in obs["candidates"].tolist()])
    assert 1 <= there.sum(1).min() < there.sum(1).max() == 4
    return env, obs, there


@pytest.mark.parametrize("kind", ["none", "tokens", "compat"])
@pytest.mark.parametrize("name", BOTH)
def test_actions_of_a_states_own_are_scored_and_empty_places_are_forbidden(name, kind):
    env, obs, there = rooms()
    policy = policy_of(name, env.env_spec, **KINDS[kind])
    logits, values = policy.decide(obs, env.texts)
    assert logits.shape == (12, 4)
    assert (logits[torch.from_numpy(~there)] == FORBIDDEN).all()
    prompt = policy.prompter.prompt
    with torch.no_grad():
        for row in range(12):
            names = [env.texts[i] for i in obs["candidates"][row].tolist() if env.texts[i]]
            told = (env.texts[int(obs["mission"][row])], [env.texts[int(obs["caption"][row])]], (), names)
            found, state = alone(policy, prompt.text(State(*told)), names)
            longest = max(len(raw) for raw, _ in found)
            expected = {
                "none": [(raw - normaliser).sum() for raw, normaliser in found],
                "tokens": [(raw - normaliser).mean() for raw, normaliser in found],
                "compat": [raw.sum() + longest - len(raw) for raw, _ in found],
            }[kind]
            same((logits[row][torch.from_numpy(there[row])],), (torch.stack(expected),))
            same((values[row],), (policy.value_head(state)[0],))
    for row in range(12):
        same(policy.decide(at(obs, [row]), env.texts), (logits[[row]], values[[row]]))


def test_empty_places_are_forbidden_in_bfloat16_beside_a_learned_temperature():
    env, obs, there = rooms()
    rounded, near = (
        policy_of("bert", env.env_spec, **ENCODER, precision=precision).decide(obs, env.texts)[0]
        for precision in ("bfloat16", "float32")
    )
    there = torch.from_numpy(there)
    assert (rounded[~there] < -1e6).all()
    torch.testing.assert_close(rounded[there].float(), near[there], atol=0.1, rtol=0.05)


def test_empty_places_are_never_sampled_and_get_no_gradient():
    env, obs, there = rooms()
    policy = policy_of("t5", env.env_spec)
    logits, _ = policy.decide(obs, env.texts)
    random = np.random.default_rng(0)
    drawn = np.zeros_like(there, int)
    for _ in range(500):
        np.add.at(drawn, (np.arange(12), sample(logits, random.random(12, np.float32))[0]), 1)
    assert (drawn[~there] == 0).all()
    assert (drawn.sum(0) > 0).all()

    taken = sample(logits, random.random(12, np.float32))[0]
    ones = np.ones(12, np.float32)
    steps = Steps(taken, -ones, ones, ones, 0 * ones, ones)
    seen = 0
    for rows, some, _ in policy.pieces(obs, env.texts):
        n, empty = len(rows), ~there[rows]
        values = np.zeros(n, np.float32)
        slopes, _, report = Loss(0.2, 0.2, 0.5, 0.01).gradient(some.detach().numpy(), values, steps.at(rows))
        assert np.isfinite(report).all()
        assert (slopes[empty] == 0).all()
        assert (slopes[there[rows].sum(1) > 1] != 0).any(1).all()
        own = torch.from_numpy(empty).float()
        gradients = torch.autograd.grad(some, list(policy.model.parameters()), own, allow_unused=True)
        assert all(gradient is None or not gradient.any() for gradient in gradients)
        seen += n
    assert seen == 12


@pytest.mark.parametrize("drawn", [0.0, np.nextafter(np.float32(1), np.float32(0))])
def test_the_least_and_the_largest_random_number_choose_actions_too(drawn):
    env, obs, there = rooms()
    logits, _ = policy_of("t5", env.env_spec).decide(obs, env.texts)
    assert there[np.arange(12), sample(logits, np.full(12, drawn, np.float32))[0]].all()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["wait", "go", "wait", ""], "two actions of one name cannot be told apart: 'wait' is there twice"),
        (["", "", "", ""], "an action without a name cannot be scored"),
        (["wait", " ", "", ""], "an action without a name cannot be scored: the actions are 'wait', ' '"),
        (["wait", "abracadabra " * 9, "", ""], r"has \d+ tokens, more than policy\.lm\.action_tokens=16"),
    ],
)
def test_actions_that_cannot_be_scored_are_one_sentence(names, message):
    env, obs, _ = rooms()
    policy = policy_of("t5", env.env_spec)
    obs["candidates"][3] = [env.texts.intern(name) for name in names]
    with pytest.raises(ValueError, match=message):
        policy.decide(obs, env.texts)
