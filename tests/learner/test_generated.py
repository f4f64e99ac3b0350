"""A language model that writes its actions: what it writes, how that is read, and how it learns from it."""

import numpy as np
import pytest
import torch

import envs
from actors.players.language_policy import LocalModel, WritingPlayer
from envs.api import Written
from learner.algorithms.ppo import losses
from learner.algorithms.ppo.losses import Steps
from learner.batch import collate
from learner.models.language import written
from learner.models.language.llm_policy import check_language_policy, check_model
from llm_service.errors import UsageError
from tests.learner.language_policies import BOTH, OPTIONS, WORLD, at, config_of, policy_of, states
from tests.learner.test_llm_ppo import VERSION, gradient, learner_of, play, update

NAMES = ["turn left", "go forward", "pick up"]
WARM = {"head": "generated", "answer_tokens": 5, "temperature": 1.7}


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("go forward", 1),
        ("  Go  Forward.\n", 1),
        ("A ball is ahead. Act: pick up", 2),
        ("Act: pick up? No. act: turn left.", 0),
        ("go forward, turn left", None),
        ("I think: go forward", None),
        ("Act: go forward Act: dance", None),
        ("Act:", None),
        ("", None),
    ],
)
def test_the_last_marker_or_the_whole_text_names_the_action(text, action):
    assert written.action(text, NAMES) == action


def test_an_answer_without_an_action_is_a_uniform_draw_that_can_be_repeated():
    drawn = [written.instead((0, 2, 5), (7, 8), random) for random in np.random.default_rng(0).random(300, np.float32)]
    assert all(80 < drawn.count(place) < 120 for place in (0, 2, 5))
    assert written.instead((0, 2, 5), (7, 8), np.float32(0.3)) == written.instead((0, 2, 5), (9,), np.float32(0.3))
    assert written.instead((0, 2, 5), (7, 8), None) == written.instead((0, 2, 5), (7, 8), None)


def test_repeated_runs_are_counted_within_an_answer():
    assert written.repeated(np.array([[1, 2, 3, 4, 2, 3, 4, -1], [1, 2, 3, -1, -1, -1, -1, -1]])) == 1 / 10
    assert written.repeated(np.array([[1, -1], [1, 2]])) == 0


@pytest.mark.parametrize("name", BOTH)
def test_drawn_tokens_are_those_of_the_models_own_distribution(name):
    policy = policy_of(name, **WARM | {"answer_tokens": 3, "temperature": 0.3}).eval()
    asked = policy.prompter.ask(*states())[:2]
    random = np.random.default_rng(1).random(4000).astype(np.float32)
    tokens, log_prob, values = policy.write([asked[0], asked[1]] * 2000, random)
    assert np.unique(values.round(4)).size == 2
    obs, texts = states()
    entropies = np.zeros(2)
    for rows, _, _, spread in policy.written(at(obs, slice(0, 2)), texts, tokens[:2]):
        entropies[rows] = spread[:, 0].detach()
    for which, entropy in enumerate(entropies):
        assert entropy < 6.8  # far enough from that of 1024 equal shares, 6.93, that a temperature is seen
        assert -log_prob[which::2, 0].mean() == pytest.approx(entropy, abs=0.06)
    # Equal numbers draw equal answers, whatever else is in the batch.
    again = policy.write([asked[0]], random[:1])[0]
    np.testing.assert_array_equal(again[0], tokens[0])
    greedy = policy.write(asked, None)
    np.testing.assert_array_equal(greedy[0], policy.write(asked, None)[0])
    assert (greedy[1][:, 0] >= log_prob[:2, 0] - 1e-5).all()


@pytest.mark.parametrize("name", BOTH)
def test_with_a_cache_a_model_writes_what_it_would_without(name):
    policy = policy_of(name, **WARM).eval()
    obs, texts = states()
    asked = policy.prompter.ask(obs, texts)
    assert len({len(question.prompt) for question in asked}) > 1
    for question, answer in zip(asked, written.answers(policy.write(asked, None)[0]), strict=True):
        for length in range(len(answer)):
            logits = policy.scorer._network.plain(question.prompt, (*answer[:length], 0))[-1]
            assert logits[answer[length]] > logits.max() - 1e-4


@pytest.mark.parametrize("ratio", ["action", "token"])
@pytest.mark.parametrize("name", BOTH)
def test_ratios_are_1_where_nothing_has_changed_and_then_move(name, ratio):
    policy, chunks = play(config_of(name, **WARM), n=2)
    told = chunks[0].written
    assert (told.tokens >= 0).any(-1).all()
    assert told.tokens.shape[-1] == 5
    np.testing.assert_allclose(chunks[0].log_prob, told.log_prob.sum(-1), rtol=1e-5)
    learner = learner_of(policy, ratio=ratio)
    batch = collate(chunks, policy, VERSION, 1.0)
    np.testing.assert_allclose(np.exp(learner.outputs.tokens(batch) - learner._tokens(batch)), 1, atol=1e-4)
    report = update(learner, chunks)
    assert report["losses/ratio_spread"] < 1e-4
    assert report["losses/entropy"] > 1
    assert report["policy/answer_tokens"] == pytest.approx((batch.written.tokens >= 0).sum(-1).mean())
    assert report["policy/valid"] == batch.written.valid.mean()
    assert update(learner, chunks)["losses/ratio_spread"] > 1e-3
    stale = update(learner, chunks, VERSION + 1)
    assert stale["policy/rho"] != pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("ratio", ["action", "token"])
def test_the_gradient_is_that_of_the_loss(ratio):
    policy, chunks = play(config_of("t5", **WARM))
    options = {"ratio": ratio, "entropy_coefficient": 0.3, "value_coefficient": 0.0, "reference_kl": 0.5}
    found, _ = gradient(policy, chunks, **options)
    learner = learner_of(policy, **options)
    batch = collate(chunks, policy, VERSION, 1.0)
    seen = {}
    learner._step, step = (
        lambda batch, steps, *rest: seen.update(steps=steps) or step(batch, steps, *rest),
        learner._step,
    )
    learner.adam.step = lambda *given: None
    learner.update(batch, VERSION, 0)
    steps, total = seen["steps"], 0.0
    obs = {name: column.numpy() for name, column in batch.flat_obs.items()}
    policy.zero_grad(set_to_none=False)
    told = batch.written.tokens.reshape(batch.action.size, -1)
    for rows, _, tokens, spread in policy.written(obs, batch.texts, told):
        old, advantage = (torch.from_numpy(column[rows]) for column in (steps.tokens, steps.advantage))
        old = old[:, : tokens.shape[1]]
        real = torch.from_numpy(told[rows, : tokens.shape[1]] >= 0)
        mean = lambda x, real=real: (x * real).sum(-1) / real.sum(-1)  # noqa: E731
        paid = mean((tokens - old).exp()) if ratio == "token" else (tokens - old).sum(-1).exp()
        apart = torch.from_numpy(steps.reference[rows, : tokens.shape[1]]) - tokens
        total = total - (paid * advantage + 0.3 * mean(spread) - 0.5 * mean(apart.exp() - 1 - apart)).sum()
    (total / batch.action.size).backward()
    expected = torch.cat([p.grad.ravel() for p in policy.parameters() if p.requires_grad]).numpy()
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("whole", [False, True])
def test_of_tokens_arrays_and_tensors_agree(whole):
    random = np.random.default_rng(0)
    old = -random.random((6, 4)).astype(np.float32)
    old[3, 2:] = 0
    new = old + (0.3 * random.normal(size=(6, 4)) * (old != 0)).astype(np.float32)
    column = random.normal(size=6).astype(np.float32)
    steps = Steps(np.zeros(6, np.int64), column, column, np.ones(6, np.float32), column, column)
    one = losses.token_gradient(new, old, steps, 0.2, whole)
    there = Steps(*(torch.from_numpy(c) for c in list(vars(steps).values())[:6]))
    two = losses.token_gradient(torch.from_numpy(new), torch.from_numpy(old), there, 0.2, whole)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-4, atol=1e-6)
    assert (one[0][3, 2:] == 0).all()
    near, far = losses.token_pull(new, old, 0.7), losses.token_pull(torch.from_numpy(new), torch.from_numpy(old), 0.7)
    np.testing.assert_allclose(near[0], far[0].numpy(), rtol=1e-4, atol=1e-6)
    assert near[1] == pytest.approx(float(far[1]), rel=1e-4)
    assert losses.token_pull(old, old, 0.7)[1] == 0


@pytest.mark.parametrize("name", BOTH)
def test_a_fit_of_names_makes_a_policy_that_writes_them(name):
    policy = policy_of(name, head="generated", answer_tokens=8)
    obs, texts = states()
    few = at(obs, slice(0, 4))
    optimiser = torch.optim.Adam(policy.parameters(), 1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        sum(-logits[:, 2].sum() for _, logits, _ in policy.pieces(few, texts)).backward()
        optimiser.step()
    env = envs.make(WORLD, 4, 3, **OPTIONS)
    player = WritingPlayer(LocalModel(policy), True)
    player.begin(env, np.arange(4))
    player.env = type("Env", (), {"texts": texts})()
    acted = player.act(few, None, None)
    assert acted.action.tolist() == [2] * 4
    assert player.written.valid.all()
    shown = player.explain(few, 1, acted.action[1])
    assert shown["written"] == policy.prompter.names[2] == shown["action"]
    assert shown["valid"] is True
    ends = (player.written.tokens >= 0).sum(-1)
    assert (player.written.tokens[range(4), ends - 1] == policy.prompter.end[0]).all()


def test_invalid_answers_are_counted_and_shown():
    chunks = play(config_of("t5", **WARM))[1]
    valid = chunks[0].written.valid
    assert not valid.all()  # hardly trained, it writes nonsense
    assert ((chunks[0].action >= 0) & (chunks[0].action < 6)).all()
    made = Written(np.full((1, 2, 3), 4, np.int32), np.zeros((1, 2, 3), np.float32), np.array([[True, False]]))
    assert written.of_answers(made)["policy/valid"] == 0.5


@pytest.mark.parametrize(
    ("lm", "words"),
    [({"placement": "server"}, "placement=local"), ({"normalise": "tokens"}, "normalise=tokens")],
)
def test_what_cannot_work_is_refused(lm, words):
    with pytest.raises(ValueError, match=words):
        check_language_policy(config_of("t5", head="generated", **lm), envs.spec(WORLD, **OPTIONS))


def test_names_must_fit_the_answer():
    with pytest.raises((ValueError, UsageError), match="answer_tokens=1"):
        check_model(config_of("t5", head="generated", answer_tokens=1), envs.spec(WORLD, **OPTIONS))


TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]\n{% endif %}"
)


@pytest.mark.parametrize("head", ["scores", "generated"])
def test_a_chat_template_puts_the_prompt_into_a_users_turn(tmp_path, head):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = config_of("llama").lm.folder
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path)
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(tmp_path)
    policy = policy_of("llama", prompt={"chat": True}, head=head, folder=str(tmp_path))
    obs, texts = states()
    asked = policy.prompter.ask(obs, texts)[0]
    told, _ = policy.prompter.told(obs, 0, texts)
    whole = tokenizer.apply_chat_template(
        [{"role": "user", "content": told}], tokenize=False, add_generation_prompt=True
    )
    assert tokenizer.decode(asked.prompt) == whole
    assert policy.prompter.text(asked.candidates[0]) == "turn left"
    assert not tokenizer.decode(asked.candidates[0]).startswith(" ")
    with pytest.raises(ValueError, match="chat template"):
        policy_of("llama", prompt={"chat": True}, head=head)
