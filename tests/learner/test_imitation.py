"""Fitting a sequence model: windows of steps, batches of sequences, equal weights whoever interrupts or shares."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from envs.api import Episodes, Field
from learner import checkpoint
from learner.behaviours.demonstrations import UNKNOWN, Sequences
from learner.behaviours.imitation import SequenceConfig, SequenceFitter, SequenceSetup
from learner.config import LearnerConfig
from learner.group import get_weights
from learner.models.sequence import behaviour_transformer
from learner.models.sequence.behaviour_config import BehaviourConfig
from learner.models.sequence.behaviour_transformer import BehaviourModel
from learner.models.sequence.choice import Choice
from learner.store.episodes import EpisodeStore, EpisodeWriter, Layout, Steps
from llm_service.errors import UsageError
from tests.learner.ranks import both

LENGTHS = [7, 10, 3, 12, 1, 9, 10, 4]
CENTRES = (np.array([-1, 1], np.float32), np.array([-1, 0, 1], np.float32))


def write_store(folder, lengths=LENGTHS, actions=None, field="observation", parts=2, noise=1.0):
    """Episodes of drawn steps, in shards."""
    random = np.random.default_rng(0)
    writer = EpisodeWriter(Path(folder), Layout({field: Field("vector", (5,))}, (), (2,)), {})
    for part, own in enumerate(np.array_split(np.array(lengths), parts)):
        rows = Episodes(**{n: np.zeros(len(own), column.dtype) for n, column in vars(Episodes.empty()).items()})
        rows.length[:], n = own, own.sum()
        obs = noise * random.uniform(0, 1, (n, 5)).astype(np.float32) * [100, 100, 100, 1, 1]
        acted = random.uniform(-1, 1, (n, 2)) if actions is None else actions[part]
        writer.write(f"{part}", rows, Steps({field: obs}, acted, np.zeros(n, np.float32)), {})
    return Path(folder)


def setup(store, n=1, lengths=LENGTHS, texts=2, model=None, **config):
    random = np.random.default_rng(1)
    size = len(lengths)
    small = {"width": 16, "layers": 2, "heads": 2, "dropout": 0.0, "device": "cpu"} | (model or {})
    config = {"steps": 40, "batch": 3, "warmup": 4, "stride": 3, "clusters": [2, 3]} | config
    return SequenceSetup(
        config=SequenceConfig(model=BehaviourConfig(**small), **config),
        learner=LearnerConfig(n=n),
        seed=5,
        store=store,
        episodes=np.arange(size),
        texts=[[random.integers(0, 30, random.integers(1, 6)) for _ in range(texts)] for _ in range(size)],
        target=random.uniform(0, 600, (size, 2)).astype(np.float32),
        held_out=np.arange(size) == 5,
        vocabulary=30,
        centres=CENTRES,
    )


@pytest.fixture
def store(tmp_path):
    return write_store(tmp_path / "store")


# ---- sequences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 3, 50])
def test_a_step_is_a_window_of_steps(store, stride):
    episodes = EpisodeStore(store)
    which = np.array([6, 2, 3])
    target = np.arange(6, dtype=np.float32).reshape(3, 2)
    texts = [[np.array([i, 9]), np.array([20 + i])] for i in range(3)]
    data = Sequences(episodes, which, texts, target, stride)
    found = data.read(np.array([2, 0]), np.array([0.4, 0.6]))
    sensors, actions = [], []
    for episode in (3, 6):
        rows = episodes.rows(np.arange(episodes.first[episode], episodes.first[episode + 1]))
        for begin in range(0, LENGTHS[episode], stride):
            sensors.append(rows.obs["observation"][begin])
            actions.append(rows.action[begin : begin + stride].mean(0))
    np.testing.assert_array_equal(found.sensors, sensors)
    np.testing.assert_allclose(found.actions, actions, atol=1e-6)
    assert found.steps == [-(-12 // stride), -(-10 // stride)]
    assert found.tokens.tolist() == [2, 9, 20]  # the first of two texts, the second of two
    assert found.texts == [2, 1]
    assert found.target.tolist() == [[4, 5], [0, 1]]
    assert data.longest == (2, -(-12 // stride))


def test_texts_are_blurred_and_targets_forgotten_as_often_as_was_said(store):
    text, count = np.arange(1, 51), 400
    which, target = np.zeros(count, np.int64) + 4, np.ones((count, 2), np.float32)
    data = Sequences(EpisodeStore(store), which, [[text]] * count, target)
    uniform = np.random.default_rng(0).random(count)
    found = data.read(np.arange(count), uniform, blur=0.3, forget=0.25)
    again = data.read(np.arange(count), uniform, blur=0.3, forget=0.25)
    assert found.tokens.tolist() == again.tokens.tolist()
    told = np.split(found.tokens, np.cumsum(found.texts)[:-1])
    for each in told:
        known = each[each != UNKNOWN]
        assert (known[0], known[-1]) == (1, 50)  # first and last are always told
        assert (np.diff(known) > 0).all()
    gone, unknown = (
        np.array([f(each) for each in told]) / 48 for f in (lambda t: 50 - len(t), lambda t: (t == 0).sum())
    )
    assert abs(gone.mean() - 0.15) < 0.01
    assert abs(unknown.mean() - 0.15) < 0.01
    assert (gone + unknown).min() < 0.05
    assert 0.5 < (gone + unknown).max() < 0.85
    assert abs(np.isnan(found.target).all(1).mean() - 0.25) < 0.06
    first = data.read(np.arange(count), None, blur=0.3, forget=0.25)  # of what is held out nothing is hidden
    assert first.texts == [50] * count
    assert not np.isnan(first.target).any()


def test_texts_are_hushed_as_often_as_was_said(store):
    text, count = np.arange(1, 51), 400
    data = Sequences(
        EpisodeStore(store), np.zeros(count, np.int64) + 4, [[text]] * count, np.ones((count, 2), np.float32)
    )
    found = data.read(np.arange(count), np.random.default_rng(0).random(count), hush=0.3)
    told = np.split(found.tokens, np.cumsum(found.texts)[:-1])
    assert {tuple(each.tolist()) for each in told} == {(1, 50), tuple(text.tolist())}
    assert abs((np.array(found.texts) == 2).mean() - 0.3) < 0.06
    assert data.read(np.arange(count), None, hush=0.3).texts == [50] * count


def test_what_does_not_fit_together_is_one_sentence(store, tmp_path):
    episodes = EpisodeStore(store)
    good = {"episodes": np.array([0, 1]), "texts": [[np.array([1])]] * 2, "target": np.zeros((2, 2), np.float32)}
    wrong = [
        ({"stride": 0}, "stride"),
        ({"target": np.zeros((3, 2), np.float32)}, "3 targets"),
        ({"episodes": np.array([0, 8])}, "episodes 0 to 7, not 8"),
        ({"texts": [[np.array([1])], []]}, "episode 1 has no text"),
        ({"texts": [[np.array([1])], [np.zeros(0, np.int32)]]}, "episode 1 has no text, or an empty one"),
        ({"target": np.array([[0, 0], [0, np.nan]], np.float32)}, "target of episode 1"),
    ]
    for change, said in wrong:
        with pytest.raises(UsageError, match=said):
            Sequences(episodes, **(good | change))
    other = EpisodeStore(write_store(tmp_path / "other", field="image"))
    with pytest.raises(UsageError, match="must hold vectors 'observation'"):
        Sequences(other, **good)
    with pytest.raises(UsageError, match=r"episode 1 .* has no steps"):
        Sequences(EpisodeStore(write_store(tmp_path / "empty", [3, 0])), **good)


def test_a_setup_that_does_not_fit_is_one_sentence(store):
    good = setup(store)
    wrong = [
        ({"held_out": np.ones(8, bool)}, "no episode is left"),
        ({"vocabulary": 20}, "token 2[0-9], but the vocabulary has only 20"),
        ({"centres": CENTRES[:1]}, r"centres for \[2\]"),
    ]
    for change, said in wrong:
        with pytest.raises(UsageError, match=said):
            SequenceFitter(replace(good, **change))


# ---- fitting ---------------------------------------------------------------------------------------------------------


def reference(fitter, steps):
    """The same by the book: each batch in one piece, torch's AdamW and clipping."""
    config = fitter.config
    model = BehaviourModel.of(config.model, get_weights(fitter.model))
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, betas=tuple(config.betas))
    losses = []
    for step in range(steps):
        fitter.step = step
        rows = fitter.batch(fitter.step)
        told = fitter.data.read(rows, np.random.default_rng([fitter.seed, 1, step]).random(len(rows)))
        optimiser.zero_grad(set_to_none=False)
        loss = model.loss(told)["loss"] / sum(told.steps)
        loss.backward()
        for parameter in model.parameters():  # torch would leave unused words alone, ours decays them like the others
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip)
        for group in optimiser.param_groups:
            group["lr"] = config.step_size(step)
        optimiser.step()
        losses.append(float(loss.detach()))
    fitter.step = 0
    return get_weights(model), losses


@pytest.mark.parametrize(
    "options",
    [{}, {"weight_decay": 0.0}, {"gradient_clip": 0.05}, {"tokens": 1}, {"betas": [0.5, 0.99]}],
    ids=lambda options: "-".join(options),
)
def test_a_step_is_that_of_plain_pytorch_however_it_is_cut_into_pieces(store, options):
    fitter = SequenceFitter(setup(store, **options))
    (expected, losses), before = reference(fitter, 8), get_weights(fitter.model)
    found = fitter.fit(8)
    assert [loss for loss, _, _ in found] == pytest.approx(losses, rel=1e-4)
    for name, value in get_weights(fitter.model).items():
        np.testing.assert_allclose(value, expected[name], atol=2e-4, err_msg=name)
    assert max(np.abs(expected[name] - before[name]).max() for name in before) > 3e-3


def test_pieces_hold_as_many_tokens_as_they_may(store):
    fitter = SequenceFitter(setup(store, stride=1, tokens=25, batch=7, texts=1))
    rows = fitter.training
    sizes = [int(fitter.data.steps[own].sum()) for own, _ in fitter._pieces(rows)]
    assert sum(sizes) == fitter.data.steps[rows].sum()
    assert len(sizes) > 2
    assert np.concatenate([own for own, _ in fitter._pieces(rows)]).tolist() == rows.tolist()


def test_the_step_size_changes_at_every_step():
    config = SequenceConfig(steps=110, warmup=10, learning_rate=2.0, least_rate=0.5)
    sizes = [config.step_size(step) for step in range(110)]
    assert sizes[:3] == pytest.approx([0.2, 0.4, 0.6])
    assert max(sizes) == sizes[9] == sizes[10] == 2.0
    assert sizes[60] == pytest.approx(1.25)
    assert np.all(np.diff(sizes[10:]) < 0)
    assert 0.5 < sizes[-1] < 0.501


def test_every_sequence_is_learned_from_once_an_epoch_and_held_out_ones_never(store):
    fitter = SequenceFitter(setup(store))
    batches = []
    for fitter.step in range(4):
        batches.append(fitter.batch(fitter.step).tolist())
    assert sorted(batches[0] + batches[1]) == sorted(batches[2] + batches[3]) == [0, 1, 2, 3, 4, 6, 7]
    assert batches[:2] != batches[2:]
    told = fitter.ready()
    assert told == {
        "episodes": 8,
        "steps": int(fitter.data.steps.sum()) - 3,
        "validation_steps": 3,
        "bytes": fitter.parameters.nbytes,
    }


def test_which_text_is_told_changes_from_step_to_step(store):
    fitter, told = SequenceFitter(setup(store)), []
    read = fitter.data.read
    fitter.data.read = lambda rows, which, *more: told.append((rows, which)) or read(rows, which, *more)
    fitter.fit(8)
    seen = {(int(row), int(2 * u)) for rows, which in told for row, u in zip(rows, which, strict=True)}
    assert len(seen) > 10  # of 14 pairs of episode and text


def test_validation_is_a_mean_over_held_out_steps_and_changes_nothing(store):
    fitter = SequenceFitter(setup(store, model={"dropout": 0.5}))
    fitter.fit(2)
    before = get_weights(fitter.model)
    found = fitter.validate()
    fitter.model.eval()
    parts = fitter.model.loss(fitter.data.read(np.array([5])))
    assert found == pytest.approx(
        {
            "fit/validation_loss": parts["loss"].item() / 3,
            "fit/validation_accuracy": parts["hits"].item() / 3,
            "fit/validation_cluster": parts["cluster"].item() / 3,
            "fit/validation_offset": parts["offset"].item() / 3,
        }
    )
    assert all((before[name] == value).all() for name, value in get_weights(fitter.model).items())
    other = SequenceFitter(setup(store, model={"dropout": 0.5}))  # never looked
    assert other.fit(3)[2:] == fitter.fit(1)
    assert SequenceFitter(replace(setup(store), held_out=np.zeros(8, bool))).validate() == {}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_that_is_interrupted_ends_with_the_same_weights_bit_for_bit(store, tmp_path, precision, monkeypatch):
    monkeypatch.setattr(behaviour_transformer, "has_bfloat16", lambda: True)  # slow where the processor has none
    told = setup(store, model={"dropout": 0.2, "precision": precision})
    whole = SequenceFitter(told)
    rows = whole.fit(9)
    first = SequenceFitter(told)
    found = first.fit(4)
    first.save(tmp_path / "checkpoints", {"counters": {"version": 4}}, 2)
    torch.manual_seed(99)  # whatever another process drew
    second = SequenceFitter(told)
    second.restore(checkpoint.latest(tmp_path / "checkpoints").path)
    assert found + second.fit(5) == rows
    for name, value in get_weights(whole.model).items():
        np.testing.assert_array_equal(get_weights(second.model)[name], value, err_msg=name)
    assert second.validate() == whole.validate()


def test_a_checkpoint_of_another_model_is_refused(store, tmp_path):
    fitter = SequenceFitter(setup(store))
    fitter.save(tmp_path, {"counters": {"version": 0}}, 1)
    other = SequenceFitter(setup(store, model={"width": 32}))
    with pytest.raises(ValueError, match="do not fit"):
        other.restore(checkpoint.latest(tmp_path).path)


def fit_as(folder, n, rank, address):
    """Prints the rows of a few steps, what validation finds, and sums of the weights."""
    fitter = SequenceFitter(setup(Path(folder), n=n), rank, address)
    rows = fitter.fit(6)
    sums = [float(np.abs(value).sum()) for value in get_weights(fitter.model).values()]
    print(json.dumps([rows, list(fitter.validate().values()), sums]))


def test_two_ranks_learn_what_one_does(store, capsys):
    fit_as(store, 1, 0, None)
    alone = json.loads(capsys.readouterr().out)
    for rank in both("test_imitation", "fit_as", str(store), 2):
        for found, expected in zip(rank, alone, strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)


def test_a_gradient_that_is_not_finite_is_said(store):
    fitter = SequenceFitter(setup(store))
    with torch.no_grad():
        fitter.model.times.weight[0] = float("nan")
    with pytest.raises(FloatingPointError, match="step 0"):
        fitter.fit(1)


def test_texts_are_followed_where_nothing_else_tells(tmp_path):
    """Two texts, two ways to act; sensors and targets say nothing of which. The text alone decides, or chance does."""
    length, n = 6, 16
    turn = np.repeat(np.arange(n) % 2, length)
    actions = np.stack([np.where(turn, 0.9, -0.9), np.where(turn, 0.9, -0.9)], 1)
    store = write_store(tmp_path / "store", [length] * n, [actions], parts=1, noise=0.0)
    told = replace(
        setup(store, lengths=[length] * n, stride=2, batch=16, learning_rate=5e-3, steps=60, warmup=5),
        texts=[[np.array([1, 7, 3]) if i % 2 else np.array([1, 8, 3])] for i in range(n)],
        target=np.full((n, 2), 300, np.float32),
        held_out=np.zeros(n, bool),
    )
    fitter = SequenceFitter(told)
    losses = [loss for loss, _, _ in fitter.fit(60)]
    assert losses[-1] < 0.05 * losses[0]
    model = fitter.model.eval()
    cache = model.begin([np.array([1, 7, 3]), np.array([1, 8, 3])])
    cache.spread(torch.arange(2), 1)
    code = model.target_code(np.full((2, 2), 300, np.float32))
    sensors = np.zeros((2, 5), np.float32)
    found = model.act(cache, 0, code, sensors, None, Choice("argmax"), np.zeros((2, 2)))
    np.testing.assert_allclose(found, [[0.9, 0.9], [-0.9, -0.9]], atol=0.1)
    model = told.config.model.model_copy(update={"ablate": "text"})
    blind = SequenceFitter(replace(told, config=told.config.model_copy(update={"model": model})))
    _, accuracy, _ = blind.fit(60)[-1]
    assert accuracy <= 5 / 6  # the first of three steps by chance, the others from what was done before
