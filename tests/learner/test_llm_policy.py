"""A language model's policy is what its model says of each action alone, whatever shares a batch with it."""

import numpy as np
import pytest
import torch

import envs
from actors.players import sample
from learner.algorithms.ppo.losses import Loss, Steps
from learner.models.config import HISTORY as FIELD
from learner.models.language.llm_policy import FORBIDDEN, check_language_policy, check_model
from learner.models.language.prompt import State
from llm_service.errors import UsageError
from tests.learner.doors import Doors
from tests.learner.language_policies import (
    BOTH,
    ENCODER,
    FAMILIES,
    OPTIONS,
    WORLD,
    alone,
    at,
    config_of,
    policy_of,
    reference,
    same,
    states,
)

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
