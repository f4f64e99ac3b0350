"""Cloning is maximum likelihood by AdamW, whoever shares the work and however often it is interrupted."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import envs
from envs.api import Episodes, Field
from envs.text import text_hash
from envs.toy import MISSIONS
from learner import checkpoint
from learner.config import LearnerConfig
from learner.fit import FitSetup, Fitter, assert_suits, forward, held_out
from learner.group import build_policy, get_weights, set_weights
from learner.models import PolicyConfig
from learner.parts import FitConfig
from learner.store.episodes import EpisodeStore, EpisodeWriter, Layout, Steps, StoreError
from tests.learner.ranks import both

SPEC = envs.spec("toy/Line")
POLICY = PolicyConfig(network="mlp", hidden=16)
LEARNER = LearnerConfig()


def write_store(folder, episodes=40, length=3, wrong=0.0):
    """Episodes of three steps in which the recorded action goes where the mission says; some of them are `wrong`."""
    writer = EpisodeWriter(Path(folder), Layout.of(SPEC, SPEC.fields), {})
    random = np.random.default_rng(0)
    for part in range(4):
        n = episodes // 4
        mission = np.repeat(random.integers(0, 2, n), length)
        action = np.where(random.random(n * length) < wrong, 1, 2 * mission)
        hashes = np.array([text_hash(text) for text in MISSIONS])
        rows = Episodes(**{name: np.zeros(n, column.dtype) for name, column in vars(Episodes.empty()).items()})
        rows.seed[:], rows.length[:] = random.integers(0, 10**6, n), length
        obs = {"position": random.integers(0, 3, n * length), "mission": hashes[mission]}
        steps = Steps(obs, action, random.random(n * length).astype(np.float32))
        writer.write(f"{part}", rows, steps, dict(zip(hashes.tolist(), MISSIONS, strict=True)))
    return Path(folder)


def setup(store, n=1, **config):
    config = {"steps": 40, "batch": 32, "warmup": 5, "validation": 0.2, "learning_rate": 3e-3} | config
    return FitSetup(FitConfig(**config), LearnerConfig(n=n), POLICY, SPEC, 7, store)


@pytest.fixture
def store(tmp_path):
    return write_store(tmp_path / "store", wrong=0.1)


def reference(fitter, steps):
    """The same by the book: torch's AdamW and clipping, on the very batches that the fitter takes."""
    config, policy = fitter.config, build_policy(POLICY, SPEC, 7)
    set_weights(policy, get_weights(fitter.policy))
    matrices = [p for p in policy.parameters() if p.ndim > 1]
    vectors = [p for p in policy.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, eps=1e-5)
    for step in range(steps):
        fitter.step = step
        rows = fitter.store.rows(fitter.batch(fitter.step))
        logits = torch.cat([logits for _, logits in forward(policy, fitter.store, rows)])
        optimiser.zero_grad(set_to_none=False)
        cross_entropy(logits, torch.from_numpy(rows.action)).backward()
        for parameter in policy.parameters():  # torch would leave the critic alone, ours decays it like the others
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.nn.utils.clip_grad_norm_(policy.parameters(), config.gradient_clip)
        for group in optimiser.param_groups:
            group["lr"] = config.step_size(step)
        optimiser.step()
    fitter.step = 0
    return get_weights(policy)


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.3}, {"gradient_clip": 0.01}], ids=["", "decay", "clip"])
def test_a_step_is_that_of_plain_pytorch(store, options):
    fitter = Fitter(setup(store, **options))
    expected, before = reference(fitter, 12), get_weights(fitter.policy)
    fitter.fit(12)
    found = get_weights(fitter.policy)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=2e-6, err_msg=name)
    assert max(np.abs(found[name] - before[name]).max() for name in before) > 0.01


def test_the_step_size_rises_and_falls():
    config = FitConfig(steps=110, warmup=10, learning_rate=2.0)
    sizes = [config.step_size(step) for step in range(110)]
    assert sizes[:3] == pytest.approx([0.2, 0.4, 0.6])
    assert max(sizes) == sizes[9] == sizes[10] == 2.0
    assert sizes[60] == pytest.approx(1.0)
    assert np.all(np.diff(sizes[10:]) < 0)
    assert 0 < sizes[-1] < 0.001
    assert [FitConfig(steps=3, warmup=0).step_size(0), FitConfig(steps=3, warmup=9).step_size(2)] > [0, 0]


def test_every_step_is_learned_from_once_an_epoch_and_held_out_ones_never(store):
    fitter = Fitter(setup(store))
    seen = []
    parts = max(1, round(len(fitter.training) / 32))
    for fitter.step in range(2 * parts):
        seen.append(fitter.batch(fitter.step))
    first, second = np.concatenate(seen[:parts]), np.concatenate(seen[parts:])
    assert sorted(first) == sorted(second) == fitter.training.tolist()
    assert first.tolist() != second.tolist()
    kept = np.repeat(held_out(fitter.store.seed, 0.2), fitter.store.length)
    assert 0 < kept.sum() < fitter.store.steps
    assert not kept[fitter.training].any()
    assert kept[fitter.validation].all()
    assert len(fitter.training) + len(fitter.validation) == fitter.store.steps


def test_which_episodes_are_held_out_is_a_property_of_their_seeds():
    seeds = np.random.default_rng(0).integers(0, 10**9, 20_000)
    fifth, tenth = held_out(seeds, 0.2), held_out(seeds, 0.1)
    assert abs(fifth.mean() - 0.2) < 0.01
    assert abs(tenth.mean() - 0.1) < 0.01
    assert not (tenth & ~fifth).any()
    np.testing.assert_array_equal(held_out(seeds[::-1], 0.2), fifth[::-1])
    assert not held_out(seeds, 0.0).any()


def test_stopped_and_continued_is_bitwise_the_same(store, tmp_path):
    whole = Fitter(setup(store))
    first = whole.fit(25)
    one, record = Fitter(setup(store)), {"counters": {"version": 11}}
    found = one.fit(3) + one.fit(8)
    one.validate()  # looking does not matter
    one.save(tmp_path / "checkpoints", record, 3)
    two = Fitter(setup(store))
    two.restore(checkpoint.latest(tmp_path / "checkpoints").path)
    found += two.fit(1) + two.fit(13)
    assert found == first
    assert two.step == whole.step == 25
    for name, value in get_weights(whole.policy).items():
        np.testing.assert_array_equal(get_weights(two.policy)[name], value, err_msg=name)
    for name, value in whole.adam.state().items():
        np.testing.assert_array_equal(two.adam.state()[name], value, err_msg=name)
    assert two.validate() == whole.validate()


def fit_ranks(store, size, rank, address):
    """One rank of `size` fits and validates; prints what it has."""
    fitter = Fitter(setup(Path(store), size, steps=8, batch=25), rank, address)  # 25: ranks get unequal shares
    report = fitter.fit(8)
    weights = np.concatenate([value.ravel() for value in get_weights(fitter.policy).values()])
    print(json.dumps({"report": report, "validation": fitter.validate(), "weights": weights.tolist()}))


@pytest.mark.slow
def test_two_ranks_do_what_one_does(store, capsys):
    fit_ranks(store, 1, 0, None)
    alone = json.loads(capsys.readouterr().out.splitlines()[-1])
    ranks = both("test_fit", "fit_ranks", str(store), 2)
    np.testing.assert_array_equal(ranks[0]["weights"], ranks[1]["weights"])
    for rank in ranks:
        np.testing.assert_allclose(rank["weights"], alone["weights"], atol=1e-5)
        np.testing.assert_allclose(rank["report"], alone["report"], atol=1e-5)
        assert rank["validation"] == pytest.approx(alone["validation"], abs=1e-5)


def test_learns_what_is_recorded_and_knows_its_doubt(tmp_path):
    """Right nine times of ten: the best a policy can do is to say so."""
    fitter = Fitter(setup(write_store(tmp_path / "store", 1600, wrong=0.1), steps=300, learning_rate=1e-2))
    before = fitter.validate()
    fitter.fit(300)
    found = fitter.validate()
    right = (fitter.store.rows(fitter.validation).action != 1).mean()
    assert 0.85 < right < 0.95
    assert before["fit/validation_loss"] == pytest.approx(np.log(3), abs=0.1)
    assert found["fit/validation_accuracy"] == pytest.approx(right)
    assert found["fit/validation_loss"] == pytest.approx(-right * np.log(0.9) - (1 - right) * np.log(0.1), abs=0.03)


def test_the_critic_is_left_alone(store):
    fitter = Fitter(setup(store))
    before = get_weights(fitter.policy)
    fitter.fit(10)
    after = get_weights(fitter.policy)
    assert np.array_equal(before["critic.weight"], after["critic.weight"])
    assert not np.array_equal(before["actor.weight"], after["actor.weight"])


def test_micro_batches_of_a_language_policy_add_up(tmp_path):
    """A tiny language model: one gradient from many micro-batches and from few."""
    found = {}
    for budget in (1, 4096):
        lm = {"folder": "tiny-t5", "budget": budget}
        policy = PolicyConfig(network="language_model", prompt={"observation": ["mission"], "observations": 1}, lm=lm)
        store = write_store(tmp_path / str(budget))
        own = FitSetup(FitConfig(batch=24, validation=0.0), LEARNER, policy, SPEC, 7, store)
        fitter = Fitter(own)
        rows = fitter.store.rows(fitter.batch(fitter.step))
        pieces = len(list(forward(fitter.policy, fitter.store, rows)))
        assert (pieces > 1) == (budget == 1)
        before = fitter.parameters.clone()
        report = fitter.fit(1)
        found[budget] = fitter.gradient.clone(), report
        assert not torch.equal(before, fitter.parameters)
    np.testing.assert_allclose(found[1][0], found[4096][0], atol=1e-4)
    assert found[1][1][0] == pytest.approx(found[4096][1][0], abs=1e-4)


@pytest.mark.parametrize(
    ("fields", "config", "sentence"),
    [
        (SPEC.fields | {"caption": Field("text")}, {}, "does not hold 'caption' as the policy reads it, but position,"),
        (SPEC.fields | {"position": Field("category", size=4)}, {}, "does not hold 'position' as the policy reads it"),
        ({}, {"validation": 1.0}, "holds 40 episodes, all for validation: lower method.fit.validation"),
    ],
)
def test_what_does_not_fit_is_one_sentence(store, fields, config, sentence):
    with pytest.raises(StoreError, match=sentence):
        assert_suits(EpisodeStore(store), fields, SPEC, FitConfig(**config))


def test_other_actions_and_an_empty_store_are_told(store, tmp_path):
    with pytest.raises(StoreError, match="is of the actions left, stay, right, but babyai/GoToLocal has turn left"):
        assert_suits(EpisodeStore(store), {}, envs.spec("babyai/GoToLocal"), FitConfig())
    EpisodeWriter(tmp_path / "empty", Layout.of(SPEC, SPEC.fields), {})
    with pytest.raises(StoreError, match="holds no steps"):
        assert_suits(EpisodeStore(tmp_path / "empty"), SPEC.fields, SPEC, FitConfig())


def test_a_gradient_that_is_not_finite_is_an_error(store):
    fitter = Fitter(setup(store))
    fitter.parameters.fill_(np.nan)
    with pytest.raises(FloatingPointError, match="gradient of step 0 is not finite"):
        fitter.fit(1)
