"""Windows that are computed anew: acting, batches and what is drawn, each against one window at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from learner.context.config import SequenceConfig
from learner.models.sequence.history_steps import HistoryShape
from learner.models.sequence.history_transformer import HistoryTransformer
from tests.learner.histories import SPEC, written
from tests.learner.transformers import CONFIG, LENGTHS, close, fitter, loud

WINDOW = "window"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return written(tmp_path_factory.mktemp("histories") / "store", LENGTHS)


def windowed(store, arm="same_task", **more):
    made = fitter(store, arm, attention=WINDOW, **more)
    loud(made.model)
    return made


def found_by(made, episode, number):
    """A memory of the chunk that an episode's point found, or None."""
    point = made.lookup.first[episode] + number
    columns = [getattr(made.lookup, name)[point : point + 1] for name in ("episode", "start", "stop")]
    return made.model.remember(*made.reader.chunks(*columns)) if columns[0][0] >= 0 else None


def test_acting_is_one_window_at_a_time_and_all_of_it_looks_at_the_newest_chunk(store):
    made = windowed(store)
    rows = np.array([6, 7])  # of nine steps each
    steps, _, lengths = made.reader.episodes(rows)
    window = made.model.ring(2)
    for t in range(9):
        now = torch.tensor([t, lengths[0] + t])
        index = torch.tensor([0, -1]) if t // made.retrieve.every % 2 else torch.tensor([1, 0])
        memory = made.model.remember(*made.reader.chunks(np.array([8, 9]), np.array([0, 1]), np.array([3, 4])))
        with torch.no_grad():
            found = made.model.step(steps.take(now), window, memory, index)
            for row in range(2):
                begin = max(0, t + 1 - CONFIG.band)
                part = torch.arange(begin, t + 1) + row * lengths[0]
                look = index[row].repeat(len(part))
                close(found[row], made.model(steps.take(part), [len(part)], memory, look)[-1])


@pytest.mark.parametrize("arm", ["dt", "radt", "same_task"])
def test_a_batch_is_its_windows_one_by_one(store, arm):
    made = windowed(store, arm)
    rows = np.array([5, 13, 0, 8, 10])
    uniform = np.array([[0.9, 0.99], [0.5, 0.0], [0.0, 0.5], [0.7, 0.5], [0.99, 0.3]])
    ends = [1 + int(u * n) for (_, u), n in zip(uniform, store.length[rows], strict=True)]
    assert made.steps_of(rows, uniform).tolist() == [min(end, CONFIG.band) for end in ends]
    expected, right = 0.0, 0
    for row, end, blind in zip(rows, ends, uniform[:, 0] < made.retrieve.nothing, strict=True):
        steps, action, _ = made.reader.episodes(np.array([row]))
        part = torch.arange(max(0, end - CONFIG.band), end)
        memory = None if arm == "dt" or blind else found_by(made, row, (end - 1) // made.retrieve.every)
        logits = made.model.logits(made.model(steps.take(part), [len(part)], memory)).detach()
        expected -= float(logits.log_softmax(-1)[torch.arange(len(part)), action[part]].sum())
        right += int((logits.argmax(-1) == action[part]).sum())
    found = made.losses(rows, uniform)
    np.testing.assert_allclose(found["loss"].item(), expected, rtol=1e-5)
    assert int(found["hits"]) == right


def test_a_window_remembers_the_chunk_of_its_last_step_alone(store, monkeypatch):
    made, counts = windowed(store, "same_task"), []
    remember = made.model.remember
    monkeypatch.setattr(
        made.model, "remember", lambda steps, lengths: counts.append(len(lengths)) or remember(steps, lengths)
    )
    made.losses(np.array([6, 7]), np.array([[0.99, 0.99], [0.99, 0.5]]))  # each passes several points
    assert counts == [2]


def test_windows_end_anywhere_and_in_validation_where_the_episode_does(store):
    made = windowed(store, "dt")
    long = np.full(2000, np.flatnonzero(store.length == 9)[0])
    drawn = np.random.default_rng(0).random((2000, 2))
    counts = np.bincount(made._ends(long, drawn), minlength=10)
    assert counts[0] == 0
    assert counts[1:].min() > 150
    assert made._ends(np.arange(len(store)), None).tolist() == store.length.tolist()


def test_the_place_in_the_episode_is_told(store):
    made = windowed(store, "dt")
    steps, _, _ = made.reader.episodes(np.array([6]))
    moved = steps.take(torch.arange(3))
    with torch.no_grad():
        one = made.model(moved, [3])
        later = made.model(replace(moved, place=moved.place + 2), [3])
    assert not torch.allclose(one, later)
    assert "own.place.weight" in made.model.state_dict()
    assert "decoder.offsets" not in made.model.state_dict()


def test_a_fit_of_windows_learns(store):
    made = fitter(store, "dt", attention=WINDOW, learning_rate=1e-2)
    rows = made.fit(40)
    assert np.mean([loss for loss, *_ in rows[-5:]]) < np.mean([loss for loss, *_ in rows[:5]])


def test_weights_are_of_one_kind_of_attention(store):
    made = windowed(store, "same_task")
    weights = {name: value.numpy() for name, value in made.model.payload().items()}
    again = HistoryTransformer.of(CONFIG.model_copy(update={"attention": WINDOW}), SPEC, weights)
    assert again.shape == made.model.shape
    with pytest.raises(ValueError, match="these are no weights of a transformer"):
        HistoryTransformer.of(CONFIG, SPEC, weights)
    band = HistoryTransformer(HistoryShape.of(SPEC, CONFIG.band), CONFIG)
    weights = {name: value.numpy() for name, value in band.payload().items()}
    with pytest.raises(ValueError, match="place"):
        HistoryTransformer.of(CONFIG.model_copy(update={"attention": WINDOW}), SPEC, weights)
    assert SequenceConfig(attention=WINDOW).encoding.attention == "band"
