"""Intrinsic rewards against small references; what they are about, and that they resume to the bit."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from cluster import run as controller
from cluster.config import tree as configuration
from cluster.config.tree import compose
from envs.api import EnvSpec, Field
from learner import checkpoint, rewards
from learner.algorithms import LearnerSetup
from learner.algorithms.dqn import DQNConfig
from learner.algorithms.ppo import PPOConfig
from learner.batch import collate
from learner.config import LearnerConfig
from learner.curiosity import reading
from learner.curiosity.reading import Moments
from learner.curiosity.steps import COLUMN, Steps, of_chunks, of_walk
from learner.group import Learner, get_weights
from learner.intrinsic import build_intrinsic, views
from learner.models import PolicyConfig
from learner.optim.collective import Group
from learner.rewards import IntrinsicConfig
from learner.rewards.noveld import Visits
from learner.store.replay import Replay
from llm_service.errors import UsageError
from tests.learner.lives import FIELDS, Lives
from tests.learner.ranks import both

SEED = 3


@pytest.fixture(autouse=True)
def one_thread():
    """What is computed here is small: threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


PLAIN = {"place": Field("vector", (4,))}


def intrinsic_of(name, fields=PLAIN, minibatch=10**6, group=None, **options):
    spec = EnvSpec("toy/Made", dict(fields), ("left", "stay", "right"), words=("text", "1", "2", "3", "4", "5", "6"))
    config = IntrinsicConfig(**{"name": name, "hidden": 16, "learning_rate": 1e-3} | options)
    return build_intrinsic(config, spec, True, minibatch, group or Group(), SEED)


def steps_of(before, after, action=None, live=None):
    """Steps between places [B, D] and [B, n, D] (each walk from its last place on)."""
    after = np.asarray(after, np.float32)
    after = after[:, None] if after.ndim == 2 else after
    walks, n, width = after.shape
    path = np.concatenate([np.asarray(before, np.float32)[:, None], after], 1)
    rows = np.arange(path[..., 0].size).reshape(walks, n + 1)
    return Steps(
        obs={"place": path.reshape(-1, width)},
        texts=lambda names: [],
        before=rows[:, :-1],
        after=rows[:, 1:],
        live=np.ones((walks, n), bool) if live is None else live,
        action=np.zeros(walks, np.int64) if action is None else action,
    )


def places(n, seed=0, shift=0.0, width=4):
    return (np.random.default_rng(seed).normal(size=(n, width)) + shift).astype(np.float32)


def linears(module):
    """Copies of the weights and biases of a network."""
    return [(part.weight.detach().numpy().copy(), part.bias.detach().numpy().copy()) for part in module[::2]]


def apply(layers, x):
    for k, (weight, bias) in enumerate(layers):
        x = x @ weight.T + bias
        x = np.maximum(x, 0) if k < len(layers) - 1 else x
    return x


class Reference:
    """RND and NovelD by the book: NumPy, everything that was ever seen in one list, and PyTorch's Adam."""

    def __init__(self, judge, alpha=None, scale=1.0):
        self.target, self.alpha, self.scale = linears(judge.target), alpha, scale
        modules = [
            module
            for k in range(3)
            for module in (torch.nn.Linear(*reversed(judge.predictor[2 * k].weight.shape)), torch.nn.ReLU())
        ]
        self.predictor = torch.nn.Sequential(*modules[:-1])
        self.predictor.load_state_dict(judge.predictor.state_dict())
        self.adam = torch.optim.Adam(self.predictor.parameters(), lr=1e-3, eps=1e-5)
        self.seen, self.errors = [], []

    def __call__(self, before, after, live):
        """Places [B, D] and [B, n, D], which steps were taken [B, n] -> [B, n]."""
        self.seen += list(after[:, 0].astype(float))
        mean, deviation = np.mean(self.seen, 0), np.std(self.seen, 0)

        def scaled(x):
            return np.clip((x - mean) / deviation, -5, 5).astype(np.float32)

        def error(x):
            guess = apply(linears(self.predictor), scaled(x))
            return np.square(guess - apply(self.target, scaled(x))).mean(-1)

        previous = np.concatenate([before[:, None], after[:, :-1]], 1)
        self.errors += error(after)[live].tolist()
        rewards = error(after) if self.alpha is None else np.maximum(error(after) - self.alpha * error(previous), 0)
        x = torch.from_numpy(scaled(after[:, 0]))
        aim = torch.from_numpy(apply(self.target, x.numpy()))
        self.adam.zero_grad()
        (self.predictor(x) - aim).square().sum(-1).mean().backward()
        self.adam.step()
        return self.scale * rewards / np.std(self.errors) * live


@pytest.mark.parametrize(("name", "alpha"), [("rnd", None), ("noveld", 0.5)])
def test_errors_are_those_of_the_book(name, alpha):
    """Walks of two steps, some of which end after one; three calls, so that what was learned and seen counts."""
    ours = intrinsic_of(name, scale=2.0, **({"alpha": alpha} if alpha else {}))
    theirs = Reference(ours.term.views[0].judge, alpha, 2.0)
    for call in range(3):
        before, after = places(40, call), places(80, call + 10, 0.3 * call).reshape(40, 2, 4)
        live = np.stack([np.ones(40, bool), np.arange(40) % 3 > 0], 1)
        expected = theirs(before, after, live)
        np.testing.assert_allclose(ours(steps_of(before, after, live=live)), expected, rtol=1e-3, atol=1e-4)
        assert (expected > 0).mean() > 0.05
    report = ours.report()
    assert report["intrinsic/reward_mean"] > 0
    assert report["intrinsic/loss"] > 0
    assert ours.report() == {}


def test_what_was_seen_often_bores_and_what_is_new_does_not():
    """New: the last number was never anything but 0."""
    intrinsic = intrinsic_of("rnd", minibatch=32, learning_rate=5e-3)
    judge, reader, found = intrinsic.term.views[0].judge, intrinsic.term.views[0].reader, []
    usual, unusual = np.array([1, 1, 1, 0], np.float32), np.array([0, 0, 0, 1], np.float32)
    for k in range(40):
        intrinsic(steps_of(places(64, 2 * k) * usual, places(64, 2 * k + 1) * usual))
        if k in (0, 39):
            known = places(200, 999) * usual
            asked = (reader.scale(torch.from_numpy(x)) for x in (known, known + unusual))
            found.append([judge.errors(x).mean().item() for x in asked])
    (old_before, new_before), (old, new) = found
    assert old < old_before / 4
    assert new > new_before / 2
    assert new > 10 * old


def test_errors_that_are_all_alike_are_not_blown_up():
    """One place again and again: its errors have no deviation to be divided by."""
    rewards = intrinsic_of("rnd")(steps_of(np.ones((8, 4)), np.ones((8, 4))))
    assert (rewards <= 10.001).all()


# ---- what a reward is about -----------------------------------------------------------------------------------------


def still(name="rnd", **options):
    """Networks that do not move while they judge."""
    return intrinsic_of(name, FIELDS, learning_rate=1e-30, **options)


def about(intrinsic, observe, numbers):
    """What `intrinsic`, right after it was called, says of the observations with these numbers."""
    texts = {int(key): f"text {k}" for k, key in enumerate(observe(np.arange(7))["said"])}
    total = 0.0
    for view in intrinsic.term.views:
        read = view.reader.read(observe(numbers), lambda names: [texts[int(key)] for key in names])
        with torch.no_grad():
            error = view.judge.errors(view.reader.scale(read)).numpy()
        total = total + view.weight * error / view.judge.moments.deviation.item()
    return total


@pytest.mark.parametrize("language", ["both", "none", "only"])
def test_the_reward_of_a_step_is_about_the_observation_after_it(language):
    """Also at the end of an episode, of either kind, and at the end of a chunk; from chunks and from a replay."""
    lives = [Lives(3, actor=actor) for actor in range(2)]
    intrinsic = still(language=language)
    chunks = [life.some(12, 0.4) for life in lives]
    paid = intrinsic.pay_chunks(chunks)
    for life, chunk in zip(lives, paid, strict=True):
        following = np.array([[step.following for step in steps] for steps in life.steps]).T
        np.testing.assert_allclose(
            chunk.rewards[COLUMN], about(intrinsic, life.observe, following.ravel()).reshape(12, 3), rtol=2e-3
        )
        assert set(chunk.rewards) == {"env", "goal", COLUMN}
    life, intrinsic = lives[0], still(language=language)
    replay = Replay(FIELDS, 3, life.env_index, 300, 3)
    replay.insert(chunks[0])
    walk = replay.walk(replay.sample(50, np.random.default_rng(0), 0.9, lambda walk: walk.rewards["env"]).row)
    rewards = intrinsic(of_walk(walk, replay))
    after = walk.observe(walk.row[:, 1:])["number"][..., 0].astype(int)
    expected = about(intrinsic, life.observe, after.ravel()).reshape(after.shape)
    np.testing.assert_allclose(rewards[walk.live], expected[walk.live], rtol=2e-3)
    assert (rewards[~walk.live] == 0).all()
    assert 0 < walk.live.mean() < 1


def test_actions_are_those_of_the_first_steps():
    life = Lives(2)
    replay = Replay(FIELDS, 3, life.env_index, 200, 2)
    chunk = life.some(10)
    replay.insert(chunk)
    done = {step.obs: step.action for steps in life.steps for step in steps}
    row = replay.sample(30, np.random.default_rng(0), 0.9, lambda walk: walk.rewards["env"]).row
    for steps in (of_walk(replay.walk(row), replay), of_chunks([chunk], list(FIELDS))):
        numbers = steps.obs["number"][steps.before[:, 0], 0].astype(int)
        assert [done[number] for number in numbers.tolist()] == steps.action.tolist()


# ---- first visits ---------------------------------------------------------------------------------------------------


def wanderer(env="toy/Line", envs_=5, length=7, **policy):
    """An actor without much of a mind."""
    chosen = PolicyConfig(network="mlp", hidden=8, **policy)
    setup = ActorSetup(env, {}, envs.spec(env), ActorsConfig(envs=envs_, steps=length), chosen, SEED, True)
    actor = RolloutActor(setup, 0)
    return actor, lambda: actor.rollout(learner_weights(chosen, env), 0)[1]


def learner_weights(chosen, env):
    return Learner(LearnerSetup(LearnerConfig(), chosen, envs.spec(env), SEED)).ready()


def test_an_observation_is_new_once_an_episode():
    """Episodes go on from chunk to chunk; state and restore in between; a chunk that comes twice is nothing new."""
    _, play = wanderer()
    visits, shown, found = Visits(["position", "mission"]), {}, []
    for k in range(6):
        chunk = play()
        first = visits.first(chunk)
        ends = {(t, n): row for row, (t, n) in enumerate(chunk.final_index.tolist())}
        for t in range(7):
            for n in range(5):
                known = shown.setdefault((n, int(chunk.episode[t, n])), set())
                obs, row = (chunk.final_obs, ends[t, n]) if (t, n) in ends else (chunk.obs, (t + 1, n))
                known.add((int(chunk.obs["position"][t, n]), int(chunk.obs["mission"][t, n])))
                after = int(obs["position"][row]), int(obs["mission"][row])
                assert first[t, n] == (after not in known), (k, t, n)
                known.add(after)
        found.append(first.mean())
        restored = Visits(visits.fields)
        restored.restore(visits.state())
        assert restored.lives == visits.lives
        visits = restored
        assert not visits.first(chunk).any()
    assert 0.1 < np.mean(found) < 0.9


@pytest.mark.parametrize("first_visit", [True, False])
def test_noveld_pays_nothing_for_a_second_visit(first_visit):
    _, play = wanderer()
    intrinsic = build_intrinsic(
        IntrinsicConfig(name="noveld", hidden=16, alpha=0.0, first_visit=first_visit),
        envs.spec("toy/Line"), True, 64, Group(), SEED,
    )  # fmt: skip
    chunk = intrinsic.mark(play())
    again = chunk.rewards[COLUMN] == 0 if first_visit else np.zeros((7, 5), bool)
    rewards = intrinsic.pay_chunks([chunk])[0].rewards[COLUMN]
    assert (rewards[again] == 0).all()
    assert (rewards[~again] > 0).all()  # alpha 0: of every error something is left
    assert again.any() == first_visit


# ---- neighbours -----------------------------------------------------------------------------------------------------


def test_neighbours_are_those_of_the_book():
    ours = intrinsic_of("apt", neighbours=3)
    before, after = places(20, 1), places(40, 2).reshape(20, 2, 4)
    judge, reader = ours.term.views[0].judge, ours.term.views[0].reader
    trunk = linears(judge.trunk)
    rewards = ours(steps_of(before, after))
    rep = apply(trunk, reader.scale(torch.from_numpy(after)).numpy())
    near = np.array([
        [sorted(np.linalg.norm(rep[b, j] - rep[o, 0]) for o in range(20) if o != b)[:3] for j in range(2)]
        for b in range(20)
    ])  # fmt: skip
    np.testing.assert_allclose(rewards, np.log1p(np.maximum(near / near.mean() - 1e-4, 0).mean(-1)), rtol=1e-3)
    ours(steps_of(before, after))
    assert judge.moments.count.item() == 2 * near.size


def test_who_is_far_from_all_others_is_paid_more_in_whatever_order():
    after, action = places(30, 4) * 0.1, np.arange(30) % 3
    after[7] += 3.0
    order = np.random.default_rng(0).permutation(30)
    rewards = intrinsic_of("apt", neighbours=5)(steps_of(places(30), after, action))[:, 0]
    assert rewards.argmax() == 7
    assert rewards[7] > 2 * np.median(rewards)
    shuffled = intrinsic_of("apt", neighbours=5)(steps_of(places(30)[order], after[order], action[order]))[:, 0]
    np.testing.assert_allclose(shuffled, rewards[order], rtol=1e-3)


def test_the_trunk_learns_to_tell_what_was_done():
    """Actions move along one axis: after a while the inverse model names them, and the loss has fallen."""
    intrinsic, losses = intrinsic_of("apt", neighbours=3), []
    for k in range(150):
        before, action = places(64, k), np.random.default_rng(k).integers(3, size=64)
        after = before.copy()
        after[:, 0] += action - 1
        intrinsic(steps_of(before, after, action))
        losses.append(intrinsic.report()["intrinsic/loss"])
    view = intrinsic.term.views[0]
    with torch.no_grad():
        here, there = (view.judge.trunk(view.reader.scale(torch.from_numpy(x))) for x in (before, after))
        guess = view.judge.inverse(torch.cat([here, there], -1)).argmax(-1).numpy()
    assert (guess == action).mean() > 0.9
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])


# ---- reading --------------------------------------------------------------------------------------------------------


def test_moments_are_those_of_all_that_was_seen():
    moments, parts = Moments(4, Group()), [places(n, n, 5.0) for n in (3, 50, 7)]
    for part in parts:
        moments.update(torch.from_numpy(part))
    np.testing.assert_allclose(moments.mean, np.concatenate(parts).mean(0), rtol=1e-6)
    np.testing.assert_allclose(moments.deviation, np.concatenate(parts).std(0), rtol=1e-5)


def test_every_kind_of_field_is_read(monkeypatch):
    """Pictures, small pictures, categories, sets of texts; MiniLM where the policy reads by it."""
    monkeypatch.setattr(reading, "embed_one", lambda text: np.full(384, len(text), np.float32))
    fields = {
        "picture": Field("pixels", (36, 40, 3)), "icon": Field("pixels", (2, 2, 3)), "kind": Field("category", size=3),
        "said": Field("text"), "goals": Field("text", (2,)),
    }  # fmt: skip
    reader = reading.Reader(fields, None, Group())
    random = np.random.default_rng(0)
    obs = {name: random.integers(0, 255, (5, *fields[name].shape), dtype=np.uint8) for name in ("picture", "icon")}
    obs |= {"kind": np.arange(5) % 3, "said": np.arange(5), "goals": np.array([[0, 4]] * 5)}
    read = reader.read(obs, lambda names: ["x" * (int(name) + 1) for name in names]).numpy()
    assert read.shape == (5, reader.width)
    icon, kind, said, goals = np.split(read, np.cumsum([reader.width - 12 - 3 - 768, 12, 3, 384]), 1)[1:]
    np.testing.assert_array_equal(icon, obs["icon"].reshape(5, 12))
    np.testing.assert_array_equal(kind, np.eye(3)[obs["kind"]])
    assert said[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert (goals == 3).all()  # between 1 and 5 letters
    assert not [p for p in reader.parameters() if p.requires_grad]


def test_texts_are_judged_apart_and_goals_not_at_all():
    fields = {**FIELDS, "goals": Field("text", (4,))}
    assert [(list(part), weight) for part, weight in views(IntrinsicConfig(language_weight=0.3), fields)] == [
        (["number", "kind", "view"], 1.0),
        (["said"], 0.3),
    ]
    only = views(IntrinsicConfig(language="only", reads=["goals", "kind"]), fields)
    assert [(list(part), weight) for part, weight in only] == [(["goals"], 1.0)]


# ---- learners -------------------------------------------------------------------------------------------------------

SMALL = {"noveld": {"alpha": 0.2}, "apt": {"neighbours": 3}}
KINDS = {name: {"name": name} | SMALL.get(name, {}) for name in rewards.names()}


def learner_of(algorithm, intrinsic, folder=None, rank=0, address=None, ranks=1, **learner):
    """A learner of toy/Line and an actor that plays for it."""
    dqn = algorithm == "dqn"
    policy = PolicyConfig(network="mlp", hidden=16, head="dueling" if dqn else "actor_critic")
    config = LearnerConfig(algorithm=algorithm, n=ranks, minibatch=32, learning_rate=1e-3, **learner)
    replay = DQNConfig(capacity=2000, start_steps=64, samples_per_insert=1.0, target_every=320)
    made = IntrinsicConfig(**{"hidden": 16} | intrinsic)
    spec = envs.spec("toy/Line")
    setup = LearnerSetup(config, policy, spec, SEED, (ranks, 8), replay if dqn else PPOConfig(epochs=1), folder, made)
    actor = ActorSetup("toy/Line", {}, spec, ActorsConfig(n=ranks, envs=8, steps=8), policy, SEED, True)
    return Learner(setup, rank, address), RolloutActor(actor, rank)


def live(learner, actor, rounds):
    """Rounds of acting and learning: the chunks, and the last report."""
    chunks = []
    for _ in range(rounds):
        chunks.append(actor.rollout(get_weights(learner.policy), actor.sequence)[1])
        report, _ = learner.update(chunks[-1].sequence, 64 * chunks[-1].sequence, chunks[-1])
    return chunks, report


@pytest.mark.parametrize("intrinsic", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_a_learner_that_stops_goes_on_to_the_bit(tmp_path, algorithm, intrinsic):
    whole, actor = learner_of(algorithm, intrinsic, tmp_path / "whole")
    live(whole, actor, 3)
    path = Path(whole.save(tmp_path / "checkpoints", 3, {}, {}, 9))
    if algorithm == "dqn":
        shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    chunks, report = live(whole, actor, 3)
    resumed, _ = learner_of(algorithm, intrinsic, tmp_path / "parts")
    assert any(not np.array_equal(value, whole.ready()[name]) for name, value in resumed.restore(path).items())
    for chunk in chunks:
        said, _ = resumed.update(chunk.sequence, 64 * chunk.sequence, chunk)
    one, other = (
        checkpoint.read(Path(learner.save(tmp_path / name, 6, {}, {}, 9))).arrays
        for name, learner in (("a", whole), ("b", resumed))
    )
    assert one.keys() == other.keys() >= {"model", "optimiser", "intrinsic"}
    for stem, group in one.items():
        assert group.keys() == other[stem].keys()
        for name, value in group.items():
            np.testing.assert_array_equal(value, other[stem][name], err_msg=f"{stem} {name}")
    timed = {"seconds"}
    assert {k: v for k, v in said.items() if k not in timed} == {k: v for k, v in report.items() if k not in timed}
    assert report["intrinsic/loss"] > 0
    begun = learner_of(algorithm, intrinsic)[0].algorithm.intrinsic.state()["intrinsic"]
    moved = {name for name, value in begun.items() if not np.array_equal(value, one["intrinsic"][name])}
    assert moved
    assert not any("target" in name or "reader.text" in name for name in moved)


def test_a_checkpoint_of_other_networks_is_refused(tmp_path):
    path = learner_of("ppo", KINDS["rnd"])[0].save(tmp_path, 1, {}, {}, 1)
    with pytest.raises(ValueError, match="of other networks"):
        learner_of("ppo", KINDS["apt"])[0].restore(Path(path))
    plain, _ = learner_of("ppo", {})
    learner_of("ppo", KINDS["rnd"])[0].restore(Path(plain.save(tmp_path, 2, {}, {}, 1)))


def test_the_policys_weights_do_not_depend_on_the_intrinsic_reward():
    one, other = (learner_of("dqn", intrinsic)[0].ready() for intrinsic in ({}, KINDS["rnd"]))
    assert all(np.array_equal(value, other[name]) for name, value in one.items())


def as_one_of_two(algorithm, kind, rank, address):
    torch.set_num_threads(1)
    learner, actor = learner_of(algorithm, KINDS[kind], rank=rank, address=address, ranks=2)
    chunks, report = live(learner, actor, 4)
    state = learner.algorithm.intrinsic.state()["intrinsic"]
    lived = float(sum(chunk.action.sum() for chunk in chunks))
    print(json.dumps([{name: float(v.sum(dtype=float)) for name, v in state.items()}, report["intrinsic/loss"], lived]))


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "kind"), [("dqn", "noveld"), ("ppo", "apt")])
def test_two_ranks_have_one_intrinsic_reward(algorithm, kind):
    one, other = both("test_intrinsic", "as_one_of_two", algorithm, kind)
    assert one[0] == other[0]
    assert one[1] != other[1]  # they judged other lives
    assert one[2] != other[2]


# ---- weights of rewards ---------------------------------------------------------------------------------------------


def test_columns_are_weighed_before_they_are_summed():
    weights = {"env": 0.0, "goal": 2.0, COLUMN: 0.5}
    ppo, actor = learner_of("ppo", KINDS["rnd"], reward_weights=weights, reward_scale=3.0)
    chunk = actor.rollout(ppo.ready(), 0)[1]
    chunk.rewards |= {"goal": np.ones((8, 8), np.float32), COLUMN: np.full((8, 8), 4, np.float32)}
    batch = collate([chunk], ppo.policy, 0, 3.0, weights)
    np.testing.assert_array_equal(batch.reward, np.full((8, 8), 3 * (2.0 + 2.0)))
    assert collate([chunk], ppo.policy, 0, 1.0).reward.sum() == chunk.rewards["env"].sum() + 5 * 64


def test_ppo_learns_from_what_it_was_paid(monkeypatch):
    learner, actor = learner_of("ppo", KINDS["rnd"], reward_weights={"env": 0.0, COLUMN: 0.5})
    batches, paid = [], []
    monkeypatch.setattr(learner.algorithm, "update", lambda batch, *given: batches.append(batch) or {})
    pay = learner.algorithm.intrinsic.pay_chunks
    monkeypatch.setattr(learner.algorithm.intrinsic, "pay_chunks", lambda chunks: paid.append(pay(chunks)) or paid[-1])
    live(learner, actor, 1)
    np.testing.assert_allclose(batches[0].reward, 0.5 * paid[0][0].rewards[COLUMN])
    assert (batches[0].reward > 0).all()


@pytest.mark.parametrize("intrinsic", [{}, *KINDS.values()], ids=["none", *KINDS])
def test_dqn_adds_each_step_of_a_walk_after_the_clip(monkeypatch, intrinsic):
    """The discount of step k is that of its own reward, whatever column it is of."""
    dqn, actor = learner_of("dqn", intrinsic, reward_weights={"env": 5.0, COLUMN: 0.25}, reward_scale=2.0)
    live(dqn, actor, 3)
    algorithm, judged = dqn.algorithm, []
    if intrinsic:
        real = algorithm.intrinsic.pay_walk
        monkeypatch.setattr(algorithm.intrinsic, "pay_walk", lambda *w: judged.append(real(*w)) or judged[-1])
    sample = algorithm.replay.sample(40, np.random.default_rng(0), 0.9, algorithm.rewards)
    walk = algorithm.replay.walk(sample.row)
    each = np.clip(10 * walk.rewards["env"], -1, 1) + (0.5 * judged[0][COLUMN] if intrinsic else 0)
    np.testing.assert_allclose(sample.reward, (each * walk.live * 0.9 ** np.arange(3)).sum(1), rtol=1e-5)
    assert 0 < (walk.rewards["env"] > 0).mean() < 1
    if intrinsic:
        assert judged[0][COLUMN][walk.live].std() > 0


def test_what_must_be_seen_before_learning_begins_is_weighed_too():
    for weight, expected in ((0.0, False), (0.001, False), (1.0, True)):
        learner, actor = learner_of("dqn", KINDS["noveld"], reward_weights={"env": weight})
        chunk = actor.rollout(learner.ready(), 0)[1]
        chunk.rewards["env"][:] = 0.5
        learner.update(0, 0, chunk)
        assert learner.algorithm.counts.rewarded is expected
        assert learner.algorithm.counts.reward == pytest.approx(32 * weight)


@pytest.mark.parametrize("method", ["dqn", "ppo"])
def test_a_run_reports_what_it_paid(tmp_path, method):
    words = [
        "env=toy/Line",
        f"method={method}",
        "cluster=inline",
        "stages=[train]",
        "evaluate.every=0",
        "actors.envs=4",
    ]
    words += [
        "actors.steps=8",
        "policy.hidden=8",
        "method.intrinsic.name=rnd",
        "method.intrinsic.hidden=8",
        "learner.env_steps=256",
    ]
    words += [
        "learner.reward_weights.env=0",
        "learner.minibatch=16",
        "learner.dqn.start_steps=64",
        "learner.dqn.keep=memory",
    ]
    assert controller.run(compose([*words, f"run.folder={tmp_path}", "run.name=curious"])) == 0
    rows = [json.loads(line) for line in (tmp_path / "curious/metrics.jsonl").read_text().splitlines()]
    told = [row for row in rows if "intrinsic/reward_mean" in row]
    assert told[-1]["intrinsic/reward_mean"] > 0
    assert told[-1]["intrinsic/loss"] < told[0]["intrinsic/loss"]
    assert "intrinsic" in checkpoint.latest(tmp_path / "curious/checkpoints").arrays


# ---- configuration --------------------------------------------------------------------------------------------------

DQN = ["env=toy/Line", "method=dqn"]


def test_weights_are_set_by_words_and_by_files(tmp_path):
    words = [*DQN, "learner.reward_weights.env=0", "learner.reward_weights.intrinsic=2e-1", "method.intrinsic.name=rnd"]
    found = compose(words)
    assert found.learner.reward_weights == {"env": 0.0, "intrinsic": 0.2}
    assert compose([*words[:2], "learner.reward_weights={env: 0, intrinsic: 0.2}", words[-1]]) == found
    configuration.save(found, tmp_path / "config.yaml")
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["learner"]["reward_weights"]["intrinsic"] == 0.2
    again = configuration.load(tmp_path / "config.yaml")
    assert again == found
    changed = configuration.update(again, ["learner.reward_weights.env=1"])
    assert changed.learner.reward_weights == {"env": 1.0, "intrinsic": 0.2}
    assert configuration.difference(found, changed) == [("learner.reward_weights.env", 0.0, 1.0)]
    assert compose(DQN).learner.reward_weights == {}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["learner.reward_weights.envv=0"], r"learner\.reward_weights\.envv: there is no such reward: choose from env"),
        (["learner.reward_weights.env=low"], r"learner\.reward_weights\.env: expected a number"),
        (["method.intrinsic.name=rndd"], r"intrinsic\.name: there is no 'rndd': did you mean rnd\?"),
        (
            ["method.intrinsic.name=rnd", "method.intrinsic.reads=[picture]"],
            r"names 'picture', but the policy reads position, mission",
        ),
        (
            ["method.intrinsic.name=rnd", "method.intrinsic.reads=[position]", "method.intrinsic.language=only"],
            "leaves nothing to judge",
        ),
        (["method.intrinsic.name=apt", "learner.minibatch=8"], r"intrinsic\.neighbours=12 must be less"),
        (["method.intrinsic.name=apt", "method.intrinsic.particles=12"], r"at most method\.intrinsic\.particles=12"),
        (["method.intrinsic.scale=0"], r"intrinsic\.scale: must be greater than 0"),
        (["method.intrinsic.hidden=0"], r"intrinsic\.hidden: must be at least 1"),
        (["method.intrinsic.alpha=-1"], r"intrinsic\.alpha: must be at least 0"),
    ],
)
def test_what_could_never_run_is_refused_with_the_reason(words, reason):
    with pytest.raises(UsageError, match=reason):
        compose([*DQN, *words])


def test_a_policy_with_memory_may_be_curious():
    words = ["env=toy/Line", "policy.memory=gru", "policy.hidden=8", "actors.envs=4", "actors.steps=8"]
    config = compose([*words, "method.intrinsic.name=noveld", "method.intrinsic.hidden=8", "method.intrinsic.alpha=0"])
    spec = envs.spec("toy/Line")
    learner = Learner(
        LearnerSetup(config.learner, config.policy, spec, SEED, intrinsic=config.method.part(IntrinsicConfig))
    )
    actor = ActorSetup("toy/Line", {}, spec, config.actors, config.policy, SEED, True)
    _, report = live(learner, RolloutActor(actor, 0), 2)
    assert report["intrinsic/reward_mean"] > 0
