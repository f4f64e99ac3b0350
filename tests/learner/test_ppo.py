"""An update is the one that PPO's papers and plain PyTorch give: same minibatches, same parameters afterwards."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from cluster.config.tree import compose
from learner.algorithms.ppo.advantages import next_values, vtrace
from learner.algorithms.ppo.groups import credit
from learner.batch import collate
from learner.group import build_policy, get_weights
from learner.models import PolicyConfig
from learner.optim import precision
from llm_service.errors import UsageError
from tests.learner.setups import ppo_of
from tests.learner.test_losses import Steps
from tests.learner.test_losses import reference as loss_terms

SEED, VERSION = 3, 5


def play(env, config, n=2, envs_=6, steps=20, version=VERSION):
    """Chunks of n actors by a policy that is not quite the learner's if `version` is an old one."""
    spec = envs.spec(env)
    weights = get_weights(trained(build_policy(config, spec, 0), VERSION - version))
    made = ActorSetup(env, {}, spec, ActorsConfig(n=n, envs=envs_, steps=steps), config, SEED, True)
    return spec, [RolloutActor(made, index).rollout(weights, version)[1] for index in range(n)]


def trained(policy, differs=0):
    """A policy with opinions, so that probabilities are not all equal."""
    torch.manual_seed(1)
    torch.nn.init.normal_(policy.actor.weight, std=0.5)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02 * differs)
    return policy


def reference_update(policy, batch, config):
    """PPO by the book: automatic differentiation, torch's Adam and clipping, one parameter at a time."""
    optimiser = torch.optim.Adam(policy.parameters(), lr=config.learning_rate, eps=1e-5)
    length, n = batch.terminated.shape
    done = torch.cat([torch.zeros(1, n, dtype=torch.bool), torch.from_numpy(batch.done)])
    action = torch.from_numpy(batch.action)

    def evaluate():
        codes = policy.codes(batch.texts)
        logits, value, states = policy.unroll(batch.obs, codes, batch.state, done)
        return logits[:-1], value, states, codes

    log_prob, value, final = batch.log_prob, batch.value, batch.final_value
    if not batch.fresh:
        with torch.no_grad():
            logits, values, states, codes = evaluate()
            log_prob = torch.log_softmax(logits, -1).gather(-1, action[..., None])[..., 0].numpy()
            at = torch.from_numpy(batch.final_index).long()
            state = None if states is None else states[at[:, 0], at[:, 1]]
            value, final = values.numpy(), policy.step(batch.final_obs, codes, state)[1].numpy()
    rho = np.exp(log_prob - batch.log_prob)
    following = next_values(value, batch.terminated, batch.truncated, batch.final_index, final)
    advantage, target = vtrace(batch.reward, value[:-1], following, batch.done, rho, config.discount, config.gae_lambda)
    advantage = ((advantage - advantage.mean()) / (advantage.std() + 1e-8)).astype(np.float32)
    for epoch in range(config.epochs):
        random = np.random.default_rng([SEED, VERSION, epoch, 0])
        units = n if batch.state is not None else length * n
        for part in np.array_split(random.permutation(units), round(length * n / config.minibatch)):
            t, e = (np.arange(length)[:, None], part) if batch.state is not None else (part // n, part % n)
            t, e = (x.ravel() for x in np.broadcast_arrays(t, e))
            logits, values, _, _ = evaluate()  # of everything: wasteful, and the same
            columns = (log_prob, advantage, np.minimum(rho, 1), value[:-1], target)
            of = Steps(batch.action[t, e], *(column[t, e] for column in columns))
            terms = loss_terms(logits[t, e], values[:-1][t, e], of, config.clip, config.value_clip)
            loss = terms[0] + config.value_coefficient * terms[1] - config.entropy_coefficient * terms[2]
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), config.gradient_clip)
            optimiser.step()


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize(
    ("env", "policy", "learner"),
    [
        ("toy/Line", {"network": "mlp"}, {}),
        ("toy/Line", {"network": "mlp", "memory": "gru"}, {"value_clip": None}),
        ("babyai/GoToLocal", {"network": "mlp", "reads": ["image"]}, {"gradient_clip": 0.01}),
        ("babyai/GoToLocal", {"network": "film"}, {}),
        ("babyai/GoToLocal", {"network": "film", "memory": "gru"}, {}),
    ],
    ids=["mlp-text", "mlp-gru", "mlp-grid", "film", "film-gru"],
)
def test_an_update_is_that_of_plain_pytorch(env, policy, learner, lag):
    chosen = PolicyConfig(hidden=16, **policy)
    spec, chunks = play(env, chosen, version=VERSION - lag)
    config = {"minibatch": 60, "epochs": 3, "anneal": False, "learning_rate": 1e-3} | learner
    ours, theirs = (trained(build_policy(chosen, spec, 0)) for _ in range(2))
    before = get_weights(ours)
    made = ppo_of(ours, SEED, **config)
    report = made.update(collate(chunks, ours, VERSION, 1.0), VERSION, 0)
    told = SimpleNamespace(**made.config.model_dump(), **made.ppo.model_dump())
    reference_update(theirs, collate(chunks, theirs, VERSION, 1.0), told)
    for name, value in get_weights(theirs).items():
        np.testing.assert_allclose(get_weights(ours)[name], value, atol=1e-6, err_msg=name)
    assert max(np.abs(value - before[name]).max() for name, value in get_weights(ours).items()) > 5e-3
    assert (report["policy/rho"] == 1) == (lag == 0)
    assert report["losses/skipped"] == 0


def small(**options):
    chosen = PolicyConfig(network="mlp", hidden=16)
    spec, chunks = play("toy/Line", chosen)
    policy = trained(build_policy(chosen, spec, 0))
    return policy, ppo_of(policy, SEED, minibatch=60, **options), chunks


def test_a_gradient_that_is_not_finite_is_skipped_and_if_all_are_it_is_an_error():
    policy, learner, chunks = small(normalise_advantage=False)
    chunks[0].rewards["env"][0, 0] = np.nan  # nothing before it: one step's advantage alone
    before = get_weights(policy)
    report = learner.update(collate(chunks, policy, VERSION, 1.0), VERSION, 0)
    assert 0 < report["losses/skipped"] < 1
    assert all(np.isfinite(value).all() for value in get_weights(policy).values())
    assert any((value != before[name]).any() for name, value in get_weights(policy).items())
    chunks[0].rewards["env"][:] = chunks[1].rewards["env"][:] = np.nan
    before = get_weights(policy)
    with pytest.raises(FloatingPointError):
        learner.update(collate(chunks, policy, VERSION, 1.0), VERSION, 0)
    assert all((value == before[name]).all() for name, value in get_weights(policy).items())


def test_the_epochs_stop_once_the_policy_moved_too_far(monkeypatch):
    steps = {}
    for target_kl in (None, 1e-9):
        policy, learner, chunks = small(target_kl=target_kl)
        real, count = learner._step, []
        monkeypatch.setattr(learner, "_step", lambda *given: count.append(0) or real(*given))  # noqa: B023
        learner.update(collate(chunks, policy, VERSION, 1.0), VERSION, 0)
        steps[target_kl] = len(count)
    assert steps == {None: 16, 1e-9: 4}


def test_parameters_remain_views_of_the_flat_ones():
    """Loading weights and reading them goes through the policy, learning through the flat array."""
    policy, learner, _ = small()
    assert sum(p.numel() for p in policy.parameters()) == learner.adam.parameters.numel()
    learner.adam.parameters[:] = 0.5
    assert all((value == 0.5).all() for value in get_weights(policy).values())


@pytest.mark.parametrize(("network", "memory"), [("mlp", "none"), ("film", "none"), ("film", "gru")])
def test_bfloat16_learns_what_float32_learns_within_its_precision(network, memory, monkeypatch):
    """Emulated where the processor has none: slow, and the same numbers."""
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    chosen = PolicyConfig(network=network, memory=memory, hidden=16)
    spec, chunks = play("toy/Line" if network == "mlp" else "babyai/GoToLocal", chosen)
    learned = {}
    for autocast in ("none", "bfloat16"):
        policy = trained(build_policy(chosen, spec, 0))
        before = flat(policy)
        learner = ppo_of(policy, SEED, minibatch=60, anneal=False, learning_rate=1e-3, autocast=autocast)
        report = learner.update(collate(chunks, policy, VERSION, 1.0), VERSION, 0)
        learned[autocast] = flat(policy) - before, report
    (exact, told), (rounded, said) = learned.values()
    assert not np.array_equal(exact, rounded)
    assert exact @ rounded / np.linalg.norm(exact) / np.linalg.norm(rounded) > 0.9  # the same direction
    for name in ("losses/policy", "losses/value", "losses/entropy"):
        assert said[name] == pytest.approx(told[name], rel=0.05, abs=0.01)


def flat(policy):
    return np.concatenate([value.ravel() for value in get_weights(policy).values()])


def test_bfloat16_is_refused_where_the_processor_has_none(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    with pytest.raises(ValueError, match=r"learner\.autocast"):
        small(autocast="bfloat16")
    for method in ("ppo", "dqn"):
        with pytest.raises(UsageError, match=r"learner\.autocast"):
            compose(["env=toy/Line", f"method={method}", "learner.autocast=bfloat16"])
    assert small(autocast="auto")[1].outputs.half is False


def test_the_optimiser_continues_from_its_state_and_refuses_anothers():
    policy, learner, chunks = small()
    batch = collate(chunks, policy, VERSION, 1.0)
    learner.update(batch, VERSION, 0)
    saved, weights = learner.adam.state(), copy.deepcopy(policy.state_dict())
    learner.update(batch, VERSION, 0)
    again, other, _ = small()
    again.load_state_dict(weights)
    other.adam.restore(saved)
    other.update(batch, VERSION, 0)
    assert np.array_equal(flat(again), flat(policy))
    with pytest.raises(ValueError, match="does not fit"):
        other.adam.restore(saved | {"mean": saved["mean"][:-1]})


@pytest.mark.parametrize("method", ["grpo", "rloo", "gigpo"])
@pytest.mark.parametrize("lag", [0, 2])
def test_an_update_by_groups_has_their_advantages_and_no_critic(method, lag):
    """Steps that count have the clipped ratio to who acted, others weight 0; the loss has no term of values."""
    config = PolicyConfig(hidden=16, network="mlp")
    spec = envs.spec("toy/Line")
    acted = get_weights(trained(build_policy(config, spec, 0), lag))
    made = ActorSetup("toy/Line", {}, spec, ActorsConfig(n=1, envs=8, steps=20, group=4), config, SEED, True)
    chunk = RolloutActor(made, 0).rollout(acted, VERSION - lag)[1]
    policies, reports, kept = [], [], []
    for weight in (0.5, 0.0):
        policy = trained(build_policy(config, spec, 0))
        before = get_weights(policy)
        options = {"advantage": method, "value_coefficient": weight, "minibatch": 80, "discount": 0.9}
        learner = ppo_of(policy, SEED, **options)
        real = learner._step
        learner._step = lambda batch, steps, *rest, real=real: kept.append((batch, steps)) or real(batch, steps, *rest)
        reports.append(learner.learn(VERSION, 0, [chunk]))
        policies.append(get_weights(policy))
    batch, steps = kept[0]
    seen = np.concatenate([column[:-1].reshape(160, -1) for column in chunk.obs.values()], 1)
    state = np.unique(seen, axis=0, return_inverse=True)[1].reshape(20, 8)
    done = chunk.terminated | chunk.truncated
    advantage, counts = credit(method, batch.reward, done, chunk.episode, np.arange(8) // 4, state, 0.9, 1.0)
    assert np.abs(advantage).max() > 0.1
    assert 0 < counts.mean() < 1
    np.testing.assert_array_equal(steps.advantage, advantage.ravel())  # not normalised again
    rho = np.exp(steps.log_prob - chunk.log_prob.ravel())
    np.testing.assert_array_equal(steps.weight, np.minimum(rho, 1) * counts.ravel())
    assert (reports[0]["policy/rho"] == 1) == (lag == 0)
    assert reports[0]["policy/unfinished"] == pytest.approx(1 - counts.mean())
    assert any((before[name] != policies[0][name]).any() for name in before)
    for name, value in policies[1].items():
        np.testing.assert_array_equal(policies[0][name], value, err_msg=name)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["learner.ppo.advantage=grpo"], "set actors.group to 2 or more"),
        (["learner.ppo.advantage=grpo", "actors.group=5"], "a divisor of actors.envs=32; got 5"),
        (["learner.ppo.advantage=rloo", "actors.group=2", "learner.ppo.critic_warmup=9"], "has no critic"),
        (["learner.ppo.advantage=gigpo", "actors.group=2", "learner.ppo.normalise_value=true"], "has no critic"),
        (["actors.group=2"], "with gae, set it to 1"),
        (["method=dqn", "actors.group=2"], "set it to 1 for dqn"),
    ],
)
def test_groups_that_could_not_teach_are_refused_in_one_sentence(words, reason):
    with pytest.raises(UsageError, match=reason):
        compose(["env=toy/Line", "policy.memory=none", *words])


def test_a_chunk_shorter_than_an_episode_is_refused_for_groups():
    with pytest.raises(UsageError, match=r"actors\.steps=8 is less than env\.max_steps=9"):
        compose(["env=babyai", "env.max_steps=9", "actors.steps=8", "actors.group=2", "learner.ppo.advantage=grpo"])
