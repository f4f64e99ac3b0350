"""PPO on a language model's policy: ratios begin at 1, gradients are those of the book, only what is tuned moves."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from learner.algorithms.ppo import PPOConfig
from learner.algorithms.ppo.advantages import next_values, vtrace
from learner.algorithms.ppo.losses import REPORT, Steps, token_gradient
from learner.batch import collate
from learner.config import LearnerConfig
from learner.group import build_policy, get_weights
from learner.models.config import remembered, remembers
from learner.models.language.llm_policy import LanguagePolicy
from learner.optim.collective import Group
from tests.learner.doors import Doors
from tests.learner.language_policies import ENCODER, OPTIONS, WORLD, config_of, models, reference
from tests.learner.ranks import both
from tests.learner.setups import ppo_of
from tests.learner.test_losses import reference as loss_terms

SEED, VERSION = 3, 5
WORDY = {"observations": 2, "paraphrase": 0.5, "synonyms": 0.5}


def setup(config, n=1, sync=False, size=4, steps=6):
    options = OPTIONS | {"max_steps": 9}
    spec, actors = remembered(config, envs.spec(WORLD, **options)), ActorsConfig(n=n, envs=size, steps=steps)
    beside = {"history": config} if remembers(config) else {}
    return ActorSetup(WORLD, options, spec, actors, config, SEED, sync, None, beside)


def explorer(name, prompt=None, **lm):
    """A policy that prefers some actions and still tries all."""
    return config_of(name, prompt, **{"temperature": 40.0 if name == "flan" else 8.0} | lm)


def play(config, n=1, chunks=1, **options):
    """A policy, and the chunks of n actors that act by it; each actor's last of so many."""
    made = setup(config, n, **options)
    policy = build_policy(config, made.spec, SEED)
    torch.nn.init.normal_(policy.value_head[-1].weight)
    if policy.action_head is not None:
        torch.nn.init.normal_(policy.action_head[-1].weight, std=0.3)
    actors = [RolloutActor(made, index) for index in range(n)]
    for _ in range(chunks):
        played = [actor.rollout(get_weights(policy), VERSION)[1] for actor in actors]
    return policy, played


def learner_of(policy, group=None, **options):
    options = {"minibatch": 10**6, "epochs": 1, "anneal": False, "learning_rate": 1e-3} | options
    return ppo_of(policy, SEED, group, **options)


def update(learner, chunks, version=VERSION):
    return learner.update(collate(chunks, learner.policy, version, 1.0), version, 0)


def said(policy, batch, index=slice(None)):
    """What the policy says of the steps taken, in micro-batches with gradients."""
    return list(policy.pieces({name: column[index].numpy() for name, column in batch.flat_obs.items()}, batch.texts))


def gradient(policy, chunks, **options):
    """Of the first minibatch of an update, [P]; and the update's report."""
    learner = learner_of(policy, gradient_clip=1e9, **options)
    learner.adam.step = lambda *given: None
    report = update(learner, chunks)
    return learner.gradient.numpy().copy(), report


def assert_near(found, expected, share=1e-5):
    assert found.shape == expected.shape
    largest = np.abs(expected).max()
    assert largest > 1e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=share * largest)


# ---- the first minibatch --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sync", "lm"),
    [
        ("t5", True, {}),
        ("llama", False, {"normalise": "tokens", "checkpointing": True}),
        ("flan", False, {"checkpointing": True}),
        ("gpt2", True, {"budget": 300}),
        ("flan", True, {"normalise": "compat", "temperature": 20.0}),
        ("gpt2", False, {"head": "actions", "checkpointing": True}),
        ("bert", True, ENCODER | {"checkpointing": True}),
    ],
    ids=["t5", "llama-checkpointing", "flan-dropout-checkpointing", "gpt2-dropout", "compat", "actions", "bert"],
)
def test_ratios_are_1_where_nothing_has_changed(name, sync, lm):
    policy, chunks = play(explorer(name, WORDY, **lm), chunks=3, sync=sync)
    assert policy.training == policy.lm.checkpointing
    learner = learner_of(policy, minibatch=7)
    batch = collate(chunks, policy, VERSION, 1.0)
    index = np.random.default_rng(0).permutation(24)[:7]
    ratios, values = np.zeros(7), np.zeros(7)
    for rows, logits, value in said(policy, batch, index):
        log_prob = logits.log_softmax(-1)[range(len(rows)), batch.action.ravel()[index[rows]]]
        ratios[rows] = np.exp(log_prob.detach().numpy() - batch.log_prob.ravel()[index[rows]])
        values[rows] = value.detach().numpy()
    np.testing.assert_allclose(ratios, 1, atol=1e-4)
    np.testing.assert_allclose(values, batch.value[:-1].ravel()[index], atol=1e-4)
    assert len(set(batch.log_prob.ravel().tolist())) > 8

    report = update(learner_of(policy), chunks)  # one minibatch: the first
    assert abs(report["losses/approx_kl"]) < 1e-7
    assert report["losses/clip_fraction"] == 0
    assert report["policy/rho"] == 1
    learner.config = learner.config.model_copy(update={"learning_rate": 0.01})
    assert update(learner, chunks)["losses/approx_kl"] > 1e-5  # of those that follow it is not so


# ---- gradients ------------------------------------------------------------------------------------------------------


def by_the_book(policy, chunks, config):
    """The gradient of PPO's loss over all steps: each action's text alone, automatic differentiation. [P]"""
    batch = collate(chunks, policy, VERSION, 1.0)
    following = next_values(batch.value, batch.terminated, batch.truncated, batch.final_index, batch.final_value)
    rho = np.ones_like(batch.reward)
    discount = LearnerConfig().discount
    given = (batch.reward, batch.value[:-1], following, batch.done, rho, discount, config.gae_lambda)
    advantage, target = vtrace(*given)
    advantage = ((advantage - advantage.mean()) / (advantage.std() + 1e-8)).astype(np.float32)
    columns = (batch.log_prob, advantage, rho, batch.value[:-1], target)
    steps = Steps(batch.action.ravel(), *(column.ravel() for column in columns))
    obs = {name: column.numpy() for name, column in batch.flat_obs.items()}
    logits, values = reference(policy, obs, batch.texts)
    terms = loss_terms(logits, values, steps, config.clip, config.value_clip)
    loss = terms[0] + config.value_coefficient * terms[1] - config.entropy_coefficient * terms[2]
    found = torch.autograd.grad(loss, [p for p in policy.parameters() if p.requires_grad])
    return torch.cat([part.flatten() for part in found]).numpy()


@pytest.mark.parametrize(
    ("name", "lm"),
    [
        ("t5", {}),
        ("llama", {"normalise": "tokens", "checkpointing": True}),
        ("gpt2", {"normalise": "compat", "temperature": 20.0}),
        ("flan", {"tune": "lora", "lora_rank": 4}),
        ("llama", {"tune": "none", "head": "actions"}),
        ("bert", ENCODER),
        ("bert", ENCODER | {"tune": "lora", "lora_rank": 4}),
    ],
    ids=["t5", "llama-checkpointing", "gpt2-compat", "flan-lora", "llama-heads", "bert", "bert-lora"],
)
def test_the_gradient_is_that_of_each_actions_text_alone(name, lm):
    policy, chunks = play(explorer(name, **lm), size=2)
    found, _ = gradient(policy, chunks)
    assert_near(found, by_the_book(policy, chunks, PPOConfig()), 2e-5)


@pytest.mark.parametrize("name", ["t5", "flan", "llama", "gpt2"])
def test_one_row_at_a_time_gives_the_gradient_of_all_at_once(name):
    found = {}
    for budget in (1, 10**6):
        policy, chunks = play(explorer(name, WORDY, budget=10**6), steps=8)
        network = policy.scorer._network
        if budget == 1:
            network.budget = network._budget = 1
        else:
            network.padding = network._padding = 1.0
        batch = collate(chunks, policy, VERSION, 1.0)
        pieces = said(policy, batch)
        prompts = {
            q.prompt for q in policy.prompter.ask({n: c.numpy() for n, c in batch.flat_obs.items()}, batch.texts)
        }
        assert len(pieces) == (len(prompts) if budget == 1 else 1)
        assert len(prompts) > 10
        found[budget], _ = gradient(policy, chunks)
    assert_near(found[1], found[10**6])


def test_checkpointing_keeps_less_and_gives_the_same_gradient():
    for lm in ({}, {"precision": "bfloat16"}):
        found, kept = {}, {}
        for checkpointing in (False, True):
            policy, chunks = play(explorer("flan", checkpointing=checkpointing, **lm))
            sizes = []
            batch = collate(chunks, policy, VERSION, 1.0)
            with torch.autograd.graph.saved_tensors_hooks(lambda x, s=sizes: s.append(x.numel()) or x, lambda x: x):
                said(policy, batch)
            kept[checkpointing] = sum(sizes)
            found[checkpointing], _ = gradient(policy, chunks)
        assert kept[True] < 0.6 * kept[False]
        assert_near(found[True], found[False], 1e-5 if not lm else 0.02)


def test_the_value_of_a_step_learns_from_its_own_target_alone():
    policy, chunks = play(explorer("t5"))
    learner, batch = learner_of(policy), collate(chunks, policy, VERSION, 1.0)
    rows, logits, values = said(policy, batch)[0]
    n = len(rows)
    assert values.shape == (n,)
    ones, logits, values = np.ones(n, np.float32), logits.detach().numpy(), values.detach().numpy()
    steps = Steps(batch.action.ravel()[rows], -ones, ones, ones, values, values + 1)
    loss = learner._terms(0).loss
    _, before, _ = loss.gradient(logits, values, steps)
    for row in range(n):
        target = steps.target.copy()
        target[row] += 0.5
        _, after, _ = loss.gradient(logits, values, dataclasses.replace(steps, target=target))
        assert np.flatnonzero(after != before).tolist() == [row]
        assert after[row] == pytest.approx(1.5 * before[row], rel=1e-4)


@pytest.mark.parametrize("lm", [{}, {"precision": "bfloat16"}], ids=["float32", "bfloat16"])
def test_a_stale_chunk_is_judged_anew(lm):
    """The other pass of an update: log-probabilities, values and last values of the current policy."""
    policy, chunks = play(explorer("llama", WORDY, **lm), chunks=2)
    assert len(chunks[0].final_index) > 0
    batch = collate(chunks, policy, VERSION + 1, 1.0)
    assert not batch.fresh
    found = learner_of(policy)._current(batch)
    for one, other in zip(found, (batch.log_prob, batch.value, batch.final_value), strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, atol=2e-5 if not lm else 0.15)
    assert update(learner_of(policy, minibatch=12), chunks, VERSION + 1)["losses/skipped"] == 0


# ---- ranks ----------------------------------------------------------------------------------------------------------


def as_one_of_two(folder, rank, address):
    """What rank 0 or 1 steps along, having played the chunk of its own actor."""
    torch.set_num_threads(1)
    config = explorer("t5", WORDY, folder=str(Path(folder) / "model"))
    policy, chunks = play(config, n=2)
    learner, taken = learner_of(policy, Group(rank, 2, address), gradient_clip=1e9), []
    learner.adam.step = lambda gradients, rate, factor: taken.append(np.concatenate(gradients))
    update(learner, chunks[rank : rank + 1])
    np.save(Path(folder) / f"{rank}.npy", taken[0])
    print(len(taken))


@pytest.mark.slow
def test_two_ranks_average_to_the_gradient_of_one_process_with_both_chunks(tmp_path):
    (tmp_path / "model").symlink_to(models()["t5"])
    assert both("test_llm_ppo", "as_one_of_two", str(tmp_path)) == [1, 1]
    one, other = (np.load(tmp_path / f"{rank}.npy") for rank in range(2))
    assert np.array_equal(one, other)
    policy, chunks = play(explorer("t5", WORDY), n=2)
    assert (chunks[0].obs["caption"] != chunks[1].obs["caption"]).any()
    assert_near(one, gradient(policy, chunks)[0])


# ---- what moves -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "lm"),
    [
        ("t5", {"tune": "lora", "lora_rank": 4}),
        ("llama", {"tune": "lora", "lora_rank": 4, "precision": "bfloat16", "checkpointing": True}),
        ("flan", {"tune": "none", "head": "actions"}),
        ("gpt2", {"tune": "all"}),
    ],
    ids=["t5-lora", "llama-lora-bfloat16", "flan-heads", "gpt2-all"],
)
def test_only_what_is_tuned_moves(name, lm):
    policy, chunks = play(explorer(name, **lm))
    parts = {"lora": ("lora_", "value_head", "log_temperature"), "none": ("value_head", "action_head"), "all": ("",)}[
        lm["tune"]
    ]
    tuned = {key for key, _ in policy.named_parameters() if any(part in key for part in parts)}
    assert set(policy.payload()) == tuned
    before = {key: p.detach().clone() for key, p in policy.named_parameters()}
    learner = learner_of(policy, epochs=3, minibatch=8, learning_rate=3e-3)
    report = update(learner, chunks)
    assert report["losses/skipped"] == 0
    moved = {key for key, p in policy.named_parameters() if not torch.equal(p, before[key])}
    assert moved == tuned
    assert learner.adam.parameters.numel() == sum(policy.get_parameter(key).numel() for key in tuned)
    assert all(torch.isfinite(p).all() for p in policy.parameters())


@pytest.mark.parametrize(
    ("name", "lm"),
    [
        ("t5", {}),
        ("llama", {"tune": "lora", "lora_rank": 8}),
        ("llama", {"tune": "lora", "lora_rank": 8, "precision": "bfloat16"}),
        ("flan", {"tune": "none", "head": "actions"}),
        ("bert", ENCODER),
    ],
    ids=["t5-all", "llama-lora", "llama-lora-bfloat16", "flan-heads", "bert"],
)
def test_what_was_rewarded_becomes_more_probable(name, lm):
    """A world that pays for one action, whatever is seen."""
    policy, (chunk,) = play(explorer(name, **lm), size=8)
    paid = np.argsort(np.bincount(chunk.action.ravel(), minlength=6))[-2]
    chunk.rewards["env"][:] = chunk.action == paid
    batch = collate([chunk], policy, VERSION, 1.0)
    obs = {key: column.numpy() for key, column in batch.flat_obs.items()}
    before = policy.decide(obs, batch.texts)[0].softmax(-1)[:, paid].mean()
    learner = learner_of(policy, discount=0.0, epochs=16, minibatch=16, learning_rate=1e-2, clip=1.0)
    report = learner.update(batch, VERSION, 0)
    after = policy.decide(obs, batch.texts)[0].softmax(-1)[:, paid].mean()
    assert report["losses/skipped"] == 0
    assert after > before + 0.1


# ---- states that have actions of their own --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t5", "llama"])
def test_actions_of_a_states_own_are_learned_from(name, monkeypatch):
    """The world refuses what is no action; places without one are neither chosen nor learned about."""
    monkeypatch.setattr(RolloutActor, "_make_env", lambda self: Doors(4, SEED))
    config = explorer(name)
    made = ActorSetup("test/Doors", {}, Doors(1).env_spec, ActorsConfig(n=1, envs=4, steps=8), config, SEED, True)
    policy = build_policy(config, made.spec, SEED)
    actor = RolloutActor(made, 0)
    for version in range(2):
        _, chunk = actor.rollout(get_weights(policy), version)
        batch = collate([chunk], policy, version, 1.0)
        there = np.array([[bool(batch.texts[i]) for i in row] for row in batch.flat_obs["candidates"].tolist()])
        taken = batch.action.ravel()
        assert there[np.arange(32), taken].all()
        assert set(taken) == {0, 1, 2, 3}
        report = learner_of(policy, epochs=2, minibatch=16).update(batch, version, 0)
        numbers = [report[f"losses/{key}"] for key in (*REPORT[:-1], "ratio_spread", "gradient_norm")]
        assert np.isfinite(numbers).all()
        assert report["losses/skipped"] == 0
        assert 0 < report["losses/entropy"] < np.log(4)
    assert isinstance(policy, LanguagePolicy)
    for rows, logits, _ in said(policy, batch):
        assert (logits.detach().numpy()[~there[rows]] == np.float32(-1e30)).all()


def test_the_ratio_of_tokens_has_the_gradient_of_the_tokens_that_were_said():
    policy, chunks = play(explorer("t5"), steps=8)
    learner = learner_of(policy, ratio="token", value_coefficient=0.0, entropy_coefficient=0.0, gradient_clip=1e9)
    learner.adam.step = lambda *given: None
    real, kept = learner._step, []
    learner._step = lambda batch, steps, *rest: kept.append((batch, steps)) or real(batch, steps, *rest)
    report = update(learner, chunks)
    assert abs(report["losses/approx_kl"]) < 1e-7
    assert report["losses/clip_fraction"] == 0
    found = learner.gradient.clone()
    batch, steps = kept[0]
    obs = {name: column.numpy() for name, column in batch.flat_obs.items()}
    learner.gradient.zero_()
    for rows, _, _, tokens in policy.spelt(obs, batch.texts, steps.action):
        several = (tokens != 0).sum(-1).clamp(min=1)
        assert several.max() > 1
        gain = torch.from_numpy((steps.advantage * steps.weight)[rows])
        (-(gain * tokens.sum(-1) / several).sum() / len(steps.action)).backward()
    assert found.abs().max() > 0
    assert_near(found.numpy(), learner.gradient.numpy())


def test_an_advantage_belongs_to_a_turn_however_many_tokens_its_action_has():
    """GAE by definition over actions, for names of different lengths; and every token of a name has its turn's."""
    policy, chunks = play(explorer("t5"), steps=12)
    discount, lam = 0.9, 0.7
    expected = np.zeros_like(chunks[0].log_prob)
    chunk = chunks[0]
    done = chunk.terminated | chunk.truncated
    following = chunk.value[1:].copy()
    following[tuple(chunk.final_index.T)] = chunk.final_value
    following[chunk.terminated] = 0
    error = chunk.rewards["env"] + discount * following - chunk.value[:-1]
    for t in reversed(range(12)):
        later = expected[t + 1] if t < 11 else 0
        expected[t] = error[t] + discount * lam * ~done[t] * later
    assert done.any()
    kept = []
    for ratio in ("action", "token"):
        options = {"value_coefficient": 0.0, "entropy_coefficient": 0.0, "gradient_clip": 1e9}
        options |= {"normalise_advantage": False, "discount": discount, "gae_lambda": lam}
        learner = learner_of(policy, ratio=ratio, **options)
        learner.adam.step = lambda *given: None
        real = learner._step
        learner._step = lambda batch, steps, *rest, real=real: kept.append(steps) or real(batch, steps, *rest)
        update(learner, chunks)
        steps = kept.pop()
        np.testing.assert_allclose(steps.advantage, expected.ravel(), rtol=1e-4, atol=1e-5)
    lengths = (steps.tokens != 0).sum(-1)
    assert lengths.min() < lengths.max()  # names are of different lengths
    new = np.where(steps.tokens != 0, steps.tokens, 0)
    per_token, _ = token_gradient(new, steps.tokens, steps, 0.2)
    shares = per_token * lengths[:, None] * len(steps.action)  # at ratio 1: minus the advantage, at each token
    np.testing.assert_allclose(shares, -np.where(steps.tokens != 0, expected.reshape(-1, 1), 0), rtol=1e-4, atol=1e-5)


def test_what_is_dear_to_leave_is_left_less():
    apart, states = {}, {}
    for weight in (1e-6, 10.0):
        policy, chunks = play(explorer("t5"), steps=8)
        before = get_weights(policy)
        learner = learner_of(policy, reference_kl=weight, epochs=4, minibatch=16, max_lag=100)
        for _ in range(3):
            report = update(learner, chunks)
        apart[weight], states[weight] = report["losses/reference_kl"], learner.state()["reference"]
        assert all((states[weight][name] == value).all() for name, value in before.items())
        assert any((value != before[name]).any() for name, value in get_weights(policy).items())
    assert 0 <= apart[10.0] < apart[1e-6] / 2
    policy, _ = play(explorer("t5"))
    policy.value_layer.weight.data += 1
    other = learner_of(policy, reference_kl=10.0)
    other.restore(learner.state(), {})
    assert all((other.state()["reference"][name] == value).all() for name, value in states[10.0].items())


def test_while_the_critic_warms_up_values_are_learned_and_the_policy_stays():
    losses, apart = {}, {}
    for warmup in (0, 100):
        policy, chunks = play(explorer("t5"), steps=8)
        learner = learner_of(policy, critic_warmup=warmup, epochs=4, minibatch=16, learning_rate=3e-3, max_lag=100)
        batch = collate(chunks, policy, VERSION, 1.0)
        obs = {name: column.numpy() for name, column in batch.flat_obs.items()}
        before, judged = policy.decide(obs, batch.texts)
        reports = [learner.update(batch, VERSION, 20 * k) for k in range(5)]
        after, value = policy.decide(obs, batch.texts)
        assert (value - judged).abs().max() > 0.05
        losses[warmup] = [report["losses/value"] for report in reports]
        now, was = after.log_softmax(-1), before.log_softmax(-1)
        apart[warmup] = float((now.exp() * (now - was)).sum(-1).mean())
    assert losses[100][-1] < losses[100][0] / 2
    assert 0 < apart[100] < 0.01
    assert apart[0] > 5 * apart[100]
    learner.update(batch, VERSION, 100)  # it is over
    now = policy.decide(obs, batch.texts)[0].log_softmax(-1)
    assert float((now.exp() * (now - was)).sum(-1).mean()) > 2 * apart[100]


def test_equal_states_come_in_the_same_minibatch():
    policy, chunks = play(explorer("t5"), size=16, steps=20)
    batch = collate(chunks, policy, VERSION, 1.0)
    told = np.stack([column.numpy() for column in batch.flat_obs.values()], 1)
    states = np.unique(told, axis=0, return_inverse=True)[1].ravel()
    assert states.max() + 1 < 0.8 * states.size
    learner, orders = learner_of(policy, minibatch=32), []
    for epoch in range(2):
        parts = list(learner._minibatches(batch, batch.equal_states(), VERSION, epoch))
        assert [len(part) for part in parts] == [32] * 10
        orders.append(np.concatenate(parts))
        assert sorted(orders[-1]) == list(range(320))
        assert sum(len(set(states[part])) for part in parts) <= states.max() + len(parts)  # a border may divide one
    assert (orders[0] != orders[1]).any()
