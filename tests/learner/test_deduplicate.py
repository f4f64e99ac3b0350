"""Each thing once: DQN's losses and gradients against plain passes over every row; what is remembered of texts."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor, wrappers
from envs.api import Field
from learner.algorithms.dqn import DQN, DQNConfig
from learner.algorithms.dqn.deduplicate import Remembered, deduplicate, texts_of
from learner.algorithms.dqn.update import judge
from learner.config import LearnerConfig
from learner.goals import GoalsConfig
from learner.group import build_policy, get_weights
from learner.models import PolicyConfig
from learner.optim import precision
from learner.optim.adam import Adam, DecayingAdam, optimiser_step
from learner.optim.collective import Group
from learner.optim.precision import arithmetic
from tests.learner.setups import rank_of

WORLDS = {
    "sets of texts": ("crafter/Text", {}, {"network": "texts", "text": "minilm"}, GoalsConfig(source="oracle")),
    "texts and pictures": (
        "crafter/Text",
        {"observe": ["view", "items", "counts", "pixels"]},
        {"network": "texts"},
        None,
    ),
    "numbers": ("toy/Line", {}, {"network": "mlp"}, None),
    "grid and text": ("babyai/GoToLocal", {}, {"network": "film"}, None),
}
DISTRIBUTIONS = {"atoms": 51, "v_min": -1.0, "v_max": 1.0}


def learner_of(world, chosen=None, autocast="none", **options):
    """A DQN that has heard of 8 envs x 32 steps, and whose target differs from its policy."""
    env, env_options, policy, goals = WORLDS[world] if isinstance(world, str) else world
    beside = {"goals": goals} if goals else {}
    spec = wrappers.seen(beside, envs.spec(env, **env_options))
    config = PolicyConfig(hidden=16, head="dueling", **policy, **chosen or {})
    actor = RolloutActor(
        ActorSetup(env, env_options, spec, ActorsConfig(n=1, envs=8, steps=32), config, 1, True, None, beside), 0
    )
    dqn = DQN(
        rank_of(
            LearnerConfig(algorithm="dqn", minibatch=64, autocast=autocast),
            build_policy(config, spec, 1),
            1,
            options=DQNConfig(capacity=4000, start_steps=10**9, keep="memory", **options),
            env_index=np.arange(8),
        )
    )
    dqn.learn(0, 0, [actor.rollout(get_weights(dqn.policy), 0)[1]])
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in (*dqn.policy.parameters(), *dqn.target.parameters()):
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return dqn


def sample_of(dqn, n=64, seed=0):
    return dqn.replay.sample(n, np.random.default_rng(seed), 0.99, dqn.rewards)


def parted(sample, rows):
    """Some rows of a sample."""
    values = {name: getattr(sample, name) for name in ("row", "action", "reward", "discount", "weight")}
    parts = {name: value[rows] for name, value in values.items()}
    seen = {name: {key: value[rows] for key, value in getattr(sample, name).items()} for name in ("obs", "following")}
    return dataclasses.replace(sample, **parts, **seen)


def plain(dqn, policy, obs):
    """Outputs [B, A, atoms] of `policy` for all rows, each text of each row encoded anew."""
    names = policy.text_fields
    ids = np.concatenate([obs[name].ravel() for name in names]) if names else np.zeros(0, int)
    codes = policy.codes(policy.prepare([dqn.replay.texts[int(i)] for i in ids]))
    named = torch.arange(len(ids)).split([obs[name].size for name in names])
    seen = {name: torch.from_numpy(value) for name, value in obs.items()}
    seen |= {name: rows.view(obs[name].shape) for name, rows in zip(names, named, strict=True)}
    return policy.q(*policy.network(policy.inputs(seen), codes))


def plain_loss(dqn, sample):
    q, each = dqn.q, np.arange(len(sample.row))
    chosen = plain(dqn, dqn.policy, sample.obs)[each, sample.action]
    with torch.no_grad():
        theirs = plain(dqn, dqn.target, sample.following)
        favoured = plain(dqn, dqn.policy, sample.following) if dqn.dqn.double else theirs
        expected = theirs[each, q.mean(favoured).argmax(-1)]
        reward, discount = torch.from_numpy(sample.reward), torch.from_numpy(sample.discount)
        target = reward + discount * q.mean(expected)
    if q.atoms == 1:
        return torch.nn.functional.smooth_l1_loss(chosen[:, 0], target, reduction="none")
    moved = (reward[:, None] + discount[:, None] * q.support).clamp(q.support[0], q.support[-1])
    near = (1 - (moved[:, :, None] - q.support).abs() / (q.support[1] - q.support[0])).clamp(min=0)
    aim = torch.einsum("ba,bac->bc", expected.softmax(-1), near)
    return -(aim * chosen.log_softmax(-1)).sum(-1)


@pytest.mark.parametrize("double", [True, False], ids=["double", "single"])
@pytest.mark.parametrize("chosen", [{}, DISTRIBUTIONS], ids=["values", "distributions"])
@pytest.mark.parametrize("world", WORLDS)
def test_losses_and_gradients_are_those_of_passes_over_every_row(world, chosen, double):
    dqn = learner_of(world, chosen, double=double)
    for seed in range(2):  # in the second, texts are remembered
        sample = sample_of(dqn, seed=seed)
        ours, theirs = dqn.loss(next(dqn.drawn(sample)))[0], plain_loss(dqn, sample)
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
        found, wanted = (torch.autograd.grad(x.mean(), dqn.moved, materialize_grads=True) for x in (ours, theirs))
        size = max(float(part.abs().max()) for part in wanted if part.numel())
        assert size > 1e-4
        for own, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(own, other, atol=1e-5 * size, rtol=1e-3)


@pytest.mark.parametrize("world", WORLDS)
def test_steps_that_are_drawn_together_learn_what_each_alone_would(world):
    dqn = learner_of(world)
    together = sample_of(dqn, n=60)
    alone = [parted(together, slice(begin, begin + 20)) for begin in (0, 20, 40)]
    made = list(dqn.drawn(together, 3))
    assert len({each.numbers["action"].numpy().tobytes() for each in made}) == 3
    for drawn, part in zip(made, alone, strict=True):
        (only,) = dqn.drawn(part)
        assert drawn.own == only.own
        assert drawn.keys == only.keys
        assert [sorted(ids) for ids in drawn.ids] == [sorted(ids) for ids in only.ids]
        torch.testing.assert_close(dqn.loss(drawn)[0], plain_loss(dqn, part), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("world", WORLDS)
def test_a_minibatch_may_lead_nowhere_new(world):
    """What follows may all be among what came before, as in the first minute of a world of few sentences."""
    dqn = learner_of(world)
    sample = sample_of(dqn)
    still = dataclasses.replace(sample, following=sample.obs)
    torch.testing.assert_close(dqn.loss(next(dqn.drawn(still)))[0], plain_loss(dqn, still), atol=1e-5, rtol=1e-4)


def test_observations_come_once_in_the_order_of_their_first_appearance():
    random = np.random.default_rng(0)
    fields = {"said": Field("text"), "told": Field("text", (2,)), "kind": Field("category", size=2)}
    parts = [
        {
            "said": random.integers(2, size=30).astype(np.int32),
            "told": random.integers(2, size=(30, 2)).astype(np.int32),
            "kind": random.integers(2, size=30),
        }
        for _ in range(2)
    ]
    found, rows, keys = deduplicate(fields, parts)
    assert len(keys) == len(set(keys)) == len(found["kind"])
    assert len({tuple(np.hstack(row)) for row in zip(*found.values(), strict=True)}) == len(found["kind"]) <= 16
    for part, row in zip(parts, rows, strict=True):
        for name, value in part.items():
            np.testing.assert_array_equal(found[name][row], value)
    flat = rows.ravel().tolist()
    assert list(dict.fromkeys(flat)) == list(range(len(found["kind"])))


@settings(max_examples=60)
@given(rows=st.integers(1, 300), width=st.integers(1, 9), levels=st.integers(1, 300), seed=st.integers(0, 2**31))
def test_equal_observations_have_one_number(rows, width, levels, seed):
    value = np.random.default_rng(seed).integers(0, levels, (rows, width)).astype(np.int32)
    found, numbers, keys = deduplicate({"told": Field("text", (width,))}, [{"told": value}])
    place: dict[bytes, int] = {}
    assert numbers[0].tolist() == [place.setdefault(row.tobytes(), len(place)) for row in value]
    assert keys == list(place)
    np.testing.assert_array_equal(found["told"][numbers[0]], value)


def test_what_follows_in_many_steps_is_computed_ahead():
    """Each step then only looks up the target's outputs, the same to the last bit."""
    dqn, other = learner_of("sets of texts"), learner_of("sets of texts")
    sample = sample_of(dqn, n=60)
    made, alone = list(dqn.drawn(sample, 3)), list(other.drawn(sample, 1))
    dqn.remembered = None  # not asked any more
    theirs = [dqn.theirs(drawn)[drawn.numbers["place"]] for drawn in made]
    assert torch.equal(torch.cat(theirs), other.theirs(alone[0])[alone[0].numbers["place"]])


def test_no_step_learns_from_a_target_that_is_no_more():
    dqn = learner_of("sets of texts", target_every=12)
    assert dqn.copy_every == 3
    take, targets = dqn._step, []

    def step(rate, row, drawn):
        targets.append(torch.cat([p.flatten() for p in dqn.target.parameters()]))
        texts = dqn.target.of_texts(drawn.texts, [*map(len, drawn.ids)])
        wanted = judge(dqn.target, drawn.seen, drawn.numbers["needed"], texts)
        torch.testing.assert_close(dqn.theirs(drawn), wanted, atol=1e-5, rtol=1e-4)
        return take(rate, row, drawn)

    dqn._step = step
    dqn._steps(8, 1e-2, 0)
    assert [int(not torch.equal(one, other)) for one, other in itertools.pairwise(targets)] == [0, 0, 1, 0, 0, 1, 0]


def test_pictures_are_all_taken_to_differ():
    parts = [{"picture": np.zeros((3, 4, 4, 1), np.uint8)}] * 2
    found, rows, keys = deduplicate({"picture": Field("pixels", (4, 4, 1))}, parts)
    assert found["picture"].shape == (6, 4, 4, 1)
    assert rows.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not keys


def test_texts_are_named_by_their_rows_field_after_field():
    obs = {"said": np.array([7, 3, 7]), "told": np.array([[3, 9], [9, 9], [3, 1]]), "number": np.zeros((3, 1))}
    named, ids = texts_of(["said", "told"], obs)
    assert [part.tolist() for part in ids] == [[3, 7], [1, 3, 9]]
    assert named["said"].tolist() == [1, 0, 1]
    assert named["told"].tolist() == [[3, 4], [4, 4], [3, 2]]
    assert named["number"] is obs["number"]


@pytest.mark.parametrize("world", ["sets of texts", "grid and text"])
def test_what_is_remembered_of_a_text_does_not_depend_on_its_company(world):
    dqn = learner_of(world)
    _, ids = texts_of(dqn.policy.text_fields, sample_of(dqn).obs)
    together = dqn.remembered.texts(ids)
    policy, texts = dqn.target, [dqn.replay.texts[i] for part in ids for i in part.tolist()]
    torch.testing.assert_close(together, policy.of_texts(policy.prepare(texts), [*map(len, ids)]), atol=1e-6, rtol=1e-5)
    other = Remembered(policy, lambda text_id: dqn.replay.texts[text_id])
    for part in ([part[::2] for part in ids], [part[::-1] for part in ids]):
        other.texts(part)
    assert torch.equal(other.texts(ids), together)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("world", ["sets of texts", "grid and text"])
def test_what_is_remembered_of_an_observation_does_not_depend_on_its_company(world, half, monkeypatch):
    """So a run that is resumed, and remembers nothing yet, learns the same to the last bit."""
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    dqn = learner_of(world, autocast="bfloat16" if half else "none")
    dqn.refresh()
    drawn = [next(dqn.drawn(sample_of(dqn, seed=seed))) for seed in range(3)]
    alone = []
    with arithmetic(half):
        for each in drawn:
            dqn.remembered.forget()
            alone.append(dqn.remembered(each.seen, each.numbers["needed"], each.ids, each.keys))
        dqn.remembered.forget()
        for each, outputs in zip(drawn, alone, strict=True):  # from the second on, some are remembered
            before = len(dqn.remembered.rows)
            assert torch.equal(dqn.remembered(each.seen, each.numbers["needed"], each.ids, each.keys), outputs)
            assert len(dqn.remembered.rows) < before + len(each.keys) or not before
            assert bool(dqn.remembered.rows) == (world == "sets of texts"), "film shares work among rows"


def test_nothing_is_remembered_of_a_target_that_is_no_more():
    dqn = learner_of("sets of texts")
    sample = sample_of(dqn)
    before = dqn.loss(next(dqn.drawn(sample)))[0]
    dqn.begin()  # the target becomes the policy
    after = dqn.loss(next(dqn.drawn(sample)))[0]
    assert not torch.allclose(before, after, atol=1e-4)
    torch.testing.assert_close(after, plain_loss(dqn, sample), atol=1e-5, rtol=1e-4)


def test_moments_that_decay_to_nothing_are_nothing():
    """In denormal numbers the processor counts several times as slowly."""
    adam, gradient = Adam(torch.ones(4)), torch.tensor([1.0, 0.0, 1e-4, 1e-20])
    adam.step([gradient], 1e-2)
    assert (adam.mean[[0, 2]] > 0).all()
    assert adam.square[0] > 0
    assert adam.square[3] == 0
    before = adam.parameters.clone()
    for _ in range(1000):
        adam.step([torch.zeros(4)], 1e-2)
    assert (adam.mean == 0).all()
    assert adam.square[0] > 0
    assert adam.parameters[1] == before[1] == 1
    moved = adam.parameters.clone()
    adam.step([torch.zeros(4)], 1e-2)
    assert torch.equal(adam.parameters, moved)


def test_gradients_in_parts_make_the_step_of_their_whole():
    torch.manual_seed(0)
    gradients = [torch.randn(3, 4), torch.zeros(0), torch.randn(5), torch.randn(4, 2).T]
    whole = torch.cat([part.flatten() for part in gradients])
    moved = []
    for each_step in ((gradients, gradients), ([whole], [whole]), (gradients, [whole])):
        adam = Adam(torch.ones(len(whole)))
        for parts in each_step:
            norm, usable = optimiser_step(adam, parts, Group(), 0.5, 1e-2)
        assert usable
        assert norm == pytest.approx(float(whole.norm()))
        moved.append((adam.parameters, adam.mean))
    for parameters, mean in moved[1:]:
        np.testing.assert_allclose(parameters, moved[0][0], rtol=1e-5)
        np.testing.assert_allclose(mean, moved[0][1], rtol=1e-5)
    clipped = (whole * (0.5 / (whole.norm() + 1e-6))).numpy()
    np.testing.assert_allclose(moved[0][1], 0.19 * clipped, rtol=1e-4)


@settings(deadline=None)
@given(
    st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=200),
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=200),
)
def test_gradients_in_bfloat16_make_the_step_of_the_same_numbers_and_copies_are_rounded(values, slopes):
    parameters = torch.tensor(values)
    gradient = torch.tensor([slopes[i % len(slopes)] for i in range(len(values))]).bfloat16()
    copies = [parameters.bfloat16(), parameters[:3].clone()]
    rest = torch.ones(len(copies[1]))
    halved = Adam(torch.cat([parameters, rest]), copies)
    whole = Adam(torch.cat([parameters, rest]))
    for rate in (0.0, 0.5):
        norm, usable = optimiser_step(halved, [gradient, rest], Group(), 0.5, rate)
        other, _ = optimiser_step(whole, [torch.cat([gradient.float(), rest])], Group(), 0.5, rate)
        assert usable
        assert norm == pytest.approx(other, rel=1e-5)
        for name in ("parameters", "mean", "square"):
            torch.testing.assert_close(getattr(halved, name), getattr(whole, name), rtol=1e-4, atol=1e-6)
        assert torch.equal(copies[0], halved.parameters[: len(values)].bfloat16())
        assert torch.equal(copies[1], parameters[:3]), "what is in float32 is not written"


@pytest.mark.parametrize("make", [Adam, lambda parameters: DecayingAdam(parameters, (0.9, 0.95))])
def test_other_devices_take_the_same_steps(make):
    gradients = torch.randn(5, 100, generator=torch.Generator().manual_seed(0))
    here, there = make(torch.ones(100)), make(torch.ones(100))
    for number, gradient in enumerate(gradients):
        if number == 2:  # one that is not finite changes nothing, nor is it counted
            bad = [torch.full((60,), torch.inf), torch.zeros(40)]
            there.step_there(bad, 1e-2, torch.tensor(2.0), torch.tensor(1.0))
        here.step([gradient], 1e-2, 0.5)
        there.step_there([*gradient.clone().split([60, 40])], 1e-2, torch.tensor(2.0), torch.tensor(0.0))
    for one, other in ((here.parameters, there.parameters), (here.mean, there.mean), (here.square, there.square)):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    assert there._taken == here.steps == 5
    assert (here.parameters - 1).abs().min() > 1e-4
