"""Histories whose actions are vectors: told, predicted and judged as numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from learner.config import LearnerConfig
from learner.context.config import ARMS, RetrieveConfig, SequenceConfig
from learner.context.fit import HistoryFitter, HistorySetup
from learner.context.reader import Reader
from learner.models.sequence.history_steps import HistoryShape, StepInputs
from learner.models.sequence.history_transformer import HistoryTransformer
from learner.models.weights import get_weights
from tests.learner.histories import SPEC, VECTORS, written

LENGTHS = [[7, 9, 4], [9] * 3, [8, 1]]
CONFIG = SequenceConfig(
    width=24, layers=2, heads=3, band=4, bins=8, skip=1, steps=150, batch=6, learning_rate=3e-3, device="cpu"
)
RETRIEVE = RetrieveConfig(every=3, past=2, future=3, pool=3, nearest=4, minimum=3)


def aimed(obs):
    """Actions that follow from what is observed."""
    return np.stack([obs["sensors"][:, 0] - obs["sensors"][:, 1], 3 * obs["sensors"][:, 2]], 1).astype(np.float32)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return written(tmp_path_factory.mktemp("histories") / "store", LENGTHS, action=aimed, spec=VECTORS)


def model(**config):
    torch.manual_seed(0)
    made = HistoryTransformer(HistoryShape.of(VECTORS, 4, True, (3.0,), 5), CONFIG.model_copy(update=config))
    for weight in made.parameters():
        weight.data.copy_(torch.randn_like(weight) * (0.3 if weight.ndim > 1 else 1.0))
    return made.eval()


def fitter(store, arm="same_task", **config):
    settings = CONFIG.model_copy(update=config)
    made = HistoryFitter(HistorySetup(settings, RETRIEVE, ARMS[arm], VECTORS, LearnerConfig(), 7, store.folder))
    made.look_up()
    return made


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_the_last_action_is_the_whole_vector_and_none_where_an_episode_begins(store):
    steps, action, lengths = Reader(store).episodes(np.array([0, 4]))
    assert lengths == [7, 9]
    np.testing.assert_array_equal(action, aimed({"sensors": steps.obs["sensors"].numpy()}))
    first = [0, 7]
    assert steps.last_action[first].isnan().all()
    rest = np.setdiff1d(np.arange(16), first)
    np.testing.assert_array_equal(steps.last_action[rest], action[rest - 1])


def test_a_step_at_a_time_is_one_pass(store):
    reader, made = Reader(store), model()
    memory = made.remember(*reader.chunks(np.array([3, 5]), np.array([0, 2]), np.array([4, 7])))
    steps, _, lengths = reader.episodes(np.array([1]))
    index = torch.arange(9) // 3 % 3 - 1
    expected, ring = made(steps, lengths, memory, index), made.ring(1)
    assert expected.isfinite().all()
    for t in range(9):
        now = StepInputs(
            {name: column[t : t + 1] for name, column in steps.obs.items()},
            *(getattr(steps, name)[t : t + 1] for name in ("to_go", "last_action", "last_reward")),
        )
        close(made.step(now, ring, memory, index[t : t + 1]), expected[t : t + 1])


def test_no_action_is_another_thing_than_the_action_of_zeros(store):
    steps, _, lengths = Reader(store).episodes(np.array([1]))
    made, still = model(), replace(steps, last_action=steps.last_action.nan_to_num(0.0))
    assert not torch.allclose(made(steps, lengths)[0], made(still, lengths)[0])


def test_rewards_are_told_in_the_scale_that_weights_say(store):
    """A model of a scale, told rewards, is the one without, told their quotients."""
    reader = Reader(store)
    steps, _, lengths = reader.episodes(np.array([0, 4]))
    chunks, sizes = reader.chunks(np.array([3]), np.array([0]), np.array([4]))
    scaled, plain = model(reward_scale=200.0), model()
    assert get_weights(scaled).keys() - get_weights(plain).keys() == {"reward_scale"}
    less = replace(steps, last_reward=steps.last_reward / 200), replace(chunks, reward=chunks.reward / 200)
    found = scaled(steps, lengths, scaled.remember(chunks, sizes), torch.zeros(16, dtype=torch.int64))
    close(found, plain(less[0], lengths, plain.remember(less[1], sizes), torch.zeros(16, dtype=torch.int64)))
    assert not torch.allclose(found, plain(steps, lengths, plain.remember(chunks, sizes), torch.zeros(16).long()))
    other = HistoryTransformer.of(CONFIG.model_copy(update={"reward_scale": 3.0}), VECTORS, get_weights(scaled))
    assert float(other.reward_scale) == 200
    with pytest.raises(ValueError, match="reward_scale"):
        HistoryTransformer.of(CONFIG, VECTORS, get_weights(scaled))


@pytest.mark.parametrize("arm", ["same_task", "dt", "ad"])
def test_the_loss_is_the_mean_squared_error_of_a_step(store, arm):
    made = fitter(store, arm)
    made.model.eval()
    episodes, expected = np.array([1, 4, 6]), 0.0
    with torch.no_grad():
        found = made.losses(episodes, None)
        for episode in episodes:
            steps, action, lengths = made.reader.episodes(made._sequences(np.array([episode])))
            memory = made._memory(np.array([episode]), np.zeros(1, np.bool_))
            predicted = made.model.logits(made.model(steps, [sum(lengths)], *memory))
            for one, other in zip(predicted, action, strict=True):
                expected += sum((float(a) - float(b)) ** 2 for a, b in zip(one, other, strict=True)) / 2
    assert float(found["loss"]) == pytest.approx(expected, rel=1e-5)
    assert found["hits"].isnan()


def test_what_others_did_is_learned_and_no_accuracy_is_told(store):
    made = fitter(store, "dt", validation=0.3)
    before, losses = made.validate(), made.fit(150)
    after = made.validate()
    assert before.keys() == after.keys() == {"fit/validation_loss"}
    assert after["fit/validation_loss"] < 0.2 * before["fit/validation_loss"]
    assert np.isnan([hits for _, hits, _ in losses]).all()
    assert np.mean([loss for loss, *_ in losses[-10:]]) < 0.1 * losses[0][0]


def test_vectors_without_bounds_are_refused():
    with pytest.raises(ValueError, match="needs the bounds of actions, and nowhere/Room tells none"):
        HistoryShape.of(replace(VECTORS, action_bounds=()), 4)
    assert HistoryShape.of(SPEC, 4).bounds == ()
