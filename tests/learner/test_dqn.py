"""DQN against loops over single rows, and what it promises of targets, schedules, layers and rewards."""

import json

import numpy as np
import pytest
import torch

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from learner.algorithms import LearnerSetup
from learner.algorithms.dqn import DQN, DQNConfig, update
from learner.config import LearnerConfig
from learner.group import build_policy, get_weights, set_weights
from learner.models import PolicyConfig
from learner.optim import precision
from learner.optim.collective import Group
from learner.optim.precision import arithmetic
from tests.learner.ranks import both
from tests.learner.setups import rank_of

SEED = 3
ATOMS = {"atoms": 11, "v_min": -2.0, "v_max": 2.0}


def learner_of(env="toy/Line", network="mlp", learner=None, policy=None, group=None, **options):
    """A DQN and an actor that plays for it; the actor's chunks are 8 envs x 16 steps."""
    group = group or Group()
    spec = envs.spec(env)
    chosen = PolicyConfig(network=network, hidden=16, head="dueling", **policy or {})
    setup = ActorSetup(env, {}, spec, ActorsConfig(n=group.size, envs=8, steps=16), chosen, SEED, True)
    config = LearnerConfig(algorithm="dqn", minibatch=32, anneal=False, learning_rate=1e-3, **learner or {})
    dqn = DQNConfig(**{"capacity": 4000, "start_steps": 128, "samples_per_insert": 1.0, "keep": "memory"} | options)
    own = np.arange(8) + 8 * group.rank
    made = rank_of(config, build_policy(chosen, spec, SEED), SEED, group, options=dqn, env_index=own)
    return DQN(made), RolloutActor(setup, group.rank)


def live(dqn, actor, rounds=1):
    """Rounds of acting and learning; the last report."""
    for _ in range(rounds):
        _, chunk = actor.rollout(get_weights(dqn.policy), actor.sequence)
        report = dqn.learn(actor.sequence, 0, [chunk])
    return report


def sample_of(dqn, n=40, seed=0):
    return dqn.replay.sample(n, np.random.default_rng(seed), dqn.config.discount, dqn.rewards)


def apart(dqn, scale=0.3):
    """Make policy and target differ."""
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in (*dqn.policy.parameters(), *dqn.target.parameters()):
            parameter.add_(torch.randn_like(parameter), alpha=scale)


def alone(dqn, policy, obs, b):
    """Values [A] that `policy` gives row b of a sample's observations, asked on its own."""
    one = {name: torch.from_numpy(np.asarray(value[b : b + 1])) for name, value in obs.items()}
    names = policy.text_fields
    codes = policy.codes(policy.prepare([dqn.replay.texts[int(obs[name][b])] for name in names]))
    one |= {name: torch.tensor([k]) for k, name in enumerate(names)}
    with torch.no_grad():
        return policy.q(*policy.network(policy.inputs(one), codes))[0]


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize(("env", "network"), [("toy/Line", "texts"), ("babyai/GoToLocal", "film")])
def test_the_loss_is_that_of_single_rows(env, network, double):
    """The policy picks the next action, the target says what it is worth."""
    dqn, actor = learner_of(env, network, double=double, start_steps=10**9)
    live(dqn, actor, 3)
    apart(dqn)
    sample = sample_of(dqn)
    loss, error, value = (part.detach().numpy() for part in dqn.loss(next(dqn.drawn(sample))))
    picks = 0
    for b in range(len(sample.row)):
        ours, theirs = (alone(dqn, p, sample.following, b)[:, 0] for p in (dqn.policy, dqn.target))
        picks += int(ours.argmax() != theirs.argmax())
        worth = theirs[(ours if double else theirs).argmax()]
        target = sample.reward[b] + sample.discount[b] * worth.item()
        chosen = alone(dqn, dqn.policy, sample.obs, b)[sample.action[b], 0].item()
        away = abs(chosen - target)
        size = max(1.0, abs(chosen), float(abs(target)))
        assert value[b] == pytest.approx(chosen, abs=1e-5 * size)
        assert error[b] == pytest.approx(chosen - target, abs=1e-5 * size)
        assert loss[b] == pytest.approx(away**2 / 2 if away < 1 else away - 0.5, abs=1e-4 * size)
    assert picks > 0  # they do not always agree, or double would be the same as single


def test_the_distributional_loss_is_that_of_single_rows():
    dqn, actor = learner_of(policy=ATOMS, start_steps=10**9)
    live(dqn, actor, 3)
    apart(dqn)
    sample = sample_of(dqn, 20)
    loss, _, value = (part.detach().numpy() for part in dqn.loss(next(dqn.drawn(sample))))
    support = np.linspace(-2, 2, 11)
    for b in range(20):
        ours, theirs = (
            alone(dqn, p, sample.following, b).softmax(-1).numpy().astype(float) for p in (dqn.policy, dqn.target)
        )
        aim = np.zeros(11)
        for atom, p in zip(support, theirs[(ours @ support).argmax()], strict=True):
            place = (np.clip(sample.reward[b] + sample.discount[b] * atom, -2, 2) + 2) / 0.4
            below = min(int(place + 1e-9), 9)
            aim[below] += p * (below + 1 - place)
            aim[below + 1] += p * (place - below)
        chosen = alone(dqn, dqn.policy, sample.obs, b)[sample.action[b]]
        assert loss[b] == pytest.approx(-(aim * chosen.log_softmax(-1).numpy()).sum(), abs=1e-4)
        assert value[b] == pytest.approx(float(chosen.softmax(-1).numpy() @ support), abs=1e-4)


@pytest.mark.parametrize(
    ("env", "network", "policy"),
    [("toy/Line", "texts", {}), ("babyai/GoToLocal", "film", {}), ("toy/Line", "mlp", ATOMS)],
    ids=["texts", "film", "distributional"],
)
def test_bfloat16_learns_what_float32_learns_within_its_precision(env, network, policy, monkeypatch):
    """Emulated where the processor has none: slow, and the same numbers."""
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    learned = {}
    for autocast in ("none", "bfloat16"):
        dqn, actor = learner_of(env, network, {"autocast": autocast}, policy, start_steps=10**9)
        live(dqn, actor, 3)
        apart(dqn, 0.05)
        dqn.refresh()
        with arithmetic(dqn.half):
            loss, _, value = dqn.loss(next(dqn.drawn(sample_of(dqn))))
        gradients = torch.autograd.grad(loss.mean(), dqn.moved)
        assert {loss.dtype, value.dtype} == {torch.float32}
        learned[autocast] = loss.detach(), torch.cat([each.float().ravel() for each in gradients])
    (told, exact), (said, rounded) = learned.values()
    assert not torch.equal(exact, rounded)
    assert torch.cosine_similarity(exact, rounded, 0) > 0.99
    np.testing.assert_allclose(said, told, rtol=0.05, atol=0.01)


def test_who_acts_explores_in_the_share_of_epsilon_and_is_greedy_elsewhere():
    dqn, actor = learner_of(policy={"memory": "none"})
    apart(dqn)
    dqn.q.epsilon.fill_(0.4)
    player, n = actor.player, 4000
    player.load(get_weights(dqn.policy), 0)
    player.begin(actor.env)
    obs = {name: np.repeat(value[:1], n, 0) for name, value in actor.env.begin().items()}
    best = player.step({name: value[:1] for name, value in obs.items()})[0].argmax()
    acted = player.act(obs, None, np.random.default_rng(0).random(n, np.float32))
    shares = np.bincount(acted.action, minlength=3) / n
    for action, share in enumerate(shares):
        wanted = 0.4 / 3 + 0.6 * (action == best)
        assert share == pytest.approx(wanted, abs=4 * (wanted * (1 - wanted) / n) ** 0.5)
    assert (acted.action[acted.log_prob > np.log(0.5)] == best).all()


def test_what_computes_in_bfloat16_is_always_the_rounded_policy_and_target(monkeypatch, tmp_path):
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    dqn, actor = learner_of("toy/Line", "texts", {"autocast": "bfloat16"}, target_every=64, samples_per_insert=1.0)

    def rounded(network, copy):
        kept = {id(p) for layer in network.q.last for p in layer.parameters()}
        for own, other in zip(network.parameters(), copy.parameters(), strict=True):
            assert torch.equal(other, own if id(own) in kept else own.bfloat16())
            assert other.dtype == (torch.float32 if id(own) in kept else torch.bfloat16)

    first = [parameter.clone() for parameter in dqn.policy.parameters()]
    live(dqn, actor, 3)
    assert all(not torch.equal(one, other) for one, other in zip(first, dqn.policy.parameters(), strict=True))
    for network, copy in ((dqn.policy, dqn.learning), (dqn.target, dqn.judging)):
        rounded(network, copy)
    set_weights(dqn.policy, {name: value * 2 for name, value in get_weights(dqn.policy).items()})
    dqn.begin()
    for network, copy in ((dqn.policy, dqn.learning), (dqn.target, dqn.judging)):
        rounded(network, copy)


def test_the_target_stands_still_between_copies_encoder_and_all():
    dqn, actor = learner_of("toy/Line", "texts", target_every=320, samples_per_insert=1.0)
    copies, last = [], {n: v.clone() for n, v in dqn.target.state_dict().items()}
    real = dqn._step

    def watched(*given):
        nonlocal last
        told = real(*given)
        now = dqn.target.state_dict()
        if any(not torch.equal(now[name], value) for name, value in last.items()):
            copies.append(dqn.counts.updates)
            policy = dqn.policy.state_dict()
            assert all(torch.equal(value, policy[name]) for name, value in now.items())
            moved = [name for name, value in last.items() if not torch.equal(now[name], value)]
            assert any(name.startswith("text.") for name in moved)
            assert any(name.startswith("network.") for name in moved)
            last = {name: value.clone() for name, value in now.items()}
        return told

    dqn._step = watched
    live(dqn, actor, 12)
    assert dqn.counts.updates == 48
    assert copies == [10, 20, 30, 40]


@pytest.mark.parametrize("share", [0.5, 1.0, 3.3])
def test_as_many_rows_are_replayed_as_was_promised(share):
    dqn, actor = learner_of(samples_per_insert=share, start_steps=300)
    for k in range(1, 9):
        report = live(dqn, actor)
        fed = 128 * max(0, k - 2)  # 384 are the first that reach 300
        assert report["replay/updates"] == int(fed * share / 32)
        assert report["learned"] == 128
        assert ("losses/q" in report) == (fed > 0)
    assert report["replay/ratio"] == pytest.approx(share, rel=0.1)


def test_a_chunk_that_comes_twice_is_dropped_and_feeds_nothing():
    dqn, actor = learner_of()
    _, chunk = actor.rollout(get_weights(dqn.policy), 0)
    assert dqn.learn(0, 0, [chunk])["dropped"] == 0
    before = get_weights(dqn.policy)
    report = dqn.learn(1, 128, [chunk])
    assert (report["dropped"], report["learned"]) == (1, 0)
    assert all((value == before[name]).all() for name, value in get_weights(dqn.policy).items())


def test_epsilon_falls_with_what_was_seen_and_travels_with_the_weights():
    dqn, actor = learner_of(epsilon_start=0.9, epsilon_end=0.1, decay_steps=512)
    found = []
    for _ in range(5):
        report = live(dqn, actor)
        found.append(report["policy/epsilon"])
        assert get_weights(dqn.policy)["q.epsilon"] == np.float32(report["policy/epsilon"])
    assert found == pytest.approx([0.7, 0.5, 0.3, 0.1, 0.1])
    assert actor.player.policy.q.epsilon.item() == pytest.approx(0.1)  # played with it last


def test_learning_and_epsilon_may_wait_for_a_reward():
    options = {"train_after_reward": True, "decay_after_reward": True, "decay_steps": 512}
    dqn, actor = learner_of(**options)
    chunks = [actor.rollout(get_weights(dqn.policy), 0)[1] for _ in range(4)]
    for chunk in chunks[:2]:
        chunk.rewards["env"][:] = 0.0
        report = dqn.learn(0, 0, [chunk])
        assert (report["replay/updates"], report["policy/epsilon"]) == (0, 1.0)
    assert chunks[2].rewards["env"].sum() >= 1
    assert dqn.learn(0, 0, [chunks[2]])["replay/updates"] == 4
    assert dqn.learn(0, 0, [chunks[3]])["policy/epsilon"] == pytest.approx(1 - 0.99 * 0.25)


@pytest.mark.parametrize(
    ("fit", "learns"),
    [
        ("linear", ("q.value.2.", "q.advantage.2.")),
        ("critic", ("q.",)),
        ("train_all", ("q.", "network.", "text.")),
    ],
)
def test_only_the_chosen_layers_learn(fit, learns):
    reinit = fit != "train_all"
    dqn, actor = learner_of("toy/Line", "texts", fit=fit, reinit=reinit)
    before = {name: value + np.float32(0.1) for name, value in get_weights(dqn.policy).items()}
    set_weights(dqn.policy, before)
    dqn.begin()
    begun = get_weights(dqn.policy)
    anew = {name for name, value in begun.items() if not np.array_equal(value, before[name])} - {"q.epsilon"}
    assert anew == {name for name in before if reinit and name.startswith(learns)} - {"q.epsilon"}
    assert all(torch.equal(v, dqn.target.state_dict()[n]) for n, v in dqn.policy.state_dict().items())
    live(dqn, actor, 3)
    moved = {n for n, v in get_weights(dqn.policy).items() if not np.array_equal(v, begun[n])} - {"q.epsilon"}
    assert moved == {name for name in before if name.startswith(learns)} - {"q.epsilon"}


@pytest.mark.parametrize("policy", [{}, {"atoms": 11, "v_min": -1.0, "v_max": 2.0}], ids=["values", "distributions"])
def test_with_priorities_the_errors_of_drawn_rows_become_theirs(policy):
    dqn, actor = learner_of(prioritised=True, alpha=1.0, policy=policy)
    live(dqn, actor, 3)
    assert len(np.unique(dqn.replay.tree.leaves.round(6))) > 20
    given, rows, found = [], [], []
    drawn, judge = dqn.drawn, dqn.loss
    dqn.drawn = lambda sample, steps: rows.append(sample.row) or drawn(sample, steps)
    dqn.loss = lambda sample: found.append(judge(sample)) or found[-1]
    dqn.replay.prioritise = lambda row, error: given.append((row, error))
    dqn._steps(1, 1e-3, 0)
    (row, error), (loss, difference, _) = given[0], found[0]
    assert len(row) == 32
    np.testing.assert_array_equal(row, rows[0])
    np.testing.assert_array_equal(error, loss.detach().numpy() if policy else difference.numpy())
    assert len(np.unique(error)) > 1


@pytest.mark.parametrize(
    ("most", "options", "sizes"),
    [
        (128, {}, [128, 128, 64]),
        (1, {}, [32] * 10),
        (128, {"prioritised": True, "alpha": 1.0}, [32] * 10),  # the errors of a step are the next one's priorities
    ],
    ids=["together", "one by one", "priorities"],
)
def test_samples_of_many_steps_are_drawn_together(most, options, sizes, monkeypatch):
    monkeypatch.setattr(update, "MOST_DRAWN", most)
    dqn, actor = learner_of(**options)
    live(dqn, actor, 2)
    counted, before, sample = [], dqn.counts.updates, dqn.replay.sample
    dqn.replay.sample = lambda n, *others: counted.append(n) or sample(n, *others)
    dqn._steps(10, 1e-3, 0)
    assert counted == sizes
    assert dqn.counts.updates == before + 10


def test_gradients_that_are_not_finite_are_an_error_if_all_are():
    dqn, actor = learner_of()
    live(dqn, actor, 2)
    with torch.no_grad():
        dqn.target.q.value[-1].bias.fill_(float("nan"))
    before = get_weights(dqn.policy)
    with pytest.raises(FloatingPointError):
        live(dqn, actor)
    assert all((value == before[name]).all() for name, value in get_weights(dqn.policy).items() if name != "q.epsilon")


def as_one_of_two(rank, address):
    torch.set_num_threads(1)
    dqn, actor = learner_of(group=Group(rank, 2, address), start_steps=300, prioritised=True)
    report = live(dqn, actor, 6)
    total = {name: value.sum(dtype=float) for name, value in get_weights(dqn.policy).items()}
    print(json.dumps([report["replay/updates"], report["learned"], total, dqn.counts.reward]))


@pytest.mark.slow
def test_two_ranks_learn_one_policy_from_two_replays():
    one, other = both("test_dqn", "as_one_of_two")
    assert one[:2] == other[:2] == [40, 128]  # 5 x 256 steps since learning began, in minibatches of 32 over both
    assert one[2] == other[2]
    assert one[3] != other[3]  # they lived different lives


def test_lanes_are_those_of_the_actors_whose_chunks_come():
    setup = LearnerSetup(LearnerConfig(n=2), PolicyConfig(), envs.spec("toy/Line"), SEED, actors=(4, 2))
    assert setup.env_index(0).tolist() == [0, 1, 4, 5]
    assert setup.env_index(1).tolist() == [2, 3, 6, 7]


def test_shaping_is_neither_clipped_nor_taken_for_a_reward_that_was_seen():
    """A clipped F would not telescope, and so could change what is best."""
    dqn, actor = learner_of(n_step=1, start_steps=10_000, train_after_reward=True)
    _, chunk = actor.rollout(get_weights(dqn.policy), 0)
    chunk.rewards["env"][:] = -5.0
    chunk.rewards["shaping"] = np.full_like(chunk.rewards["env"], 3.0)
    dqn.learn(0, 0, [chunk])
    assert not dqn.counts.rewarded
    assert (sample_of(dqn).reward == -1.0 + 3.0).all()
