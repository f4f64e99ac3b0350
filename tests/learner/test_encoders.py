"""Encoders: what a row is asked with while it acts is what its episode is found by, whatever makes keys."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from learner.context import encoders
from learner.context.config import RetrieveConfig, SequenceConfig
from learner.context.encoders import hopfield
from learner.context.encoders.merged import Merged, projection
from learner.context.lookup import keys_by
from learner.context.reader import Reader
from learner.models.sequence.history_steps import HistoryShape, StepInputs
from learner.models.sequence.history_transformer import HistoryTransformer
from learner.models.weights import get_weights
from llm_service.embedding import Encoder, minilm_folder
from tests.learner.histories import SPEC, written

SEQUENCE = SequenceConfig(width=24, layers=2, heads=3, bins=8, device="cpu")
ROOM = replace(SPEC, fields={"cell": SPEC.fields["cell"]})  # a world of few different steps
NAMES = ["fitted", "hopfield", "random"]
POOL = 4


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return Reader(written(tmp_path_factory.mktemp("histories") / "store", [[7, 9, 9, 4], [9, 9, 1, 8]]))


def encoder(name, spec=SPEC, scale=1.0, **retrieve):
    torch.manual_seed(0)
    sequence = SEQUENCE.model_copy(update={"reward_scale": scale})
    made = HistoryTransformer(HistoryShape.of(spec, 4), sequence)
    weights = get_weights(made) if name == "fitted" else {}
    config = RetrieveConfig(encoder=name, pool=POOL, **retrieve)
    return encoders.make(sequence, config, spec, weights, 3.0)


@pytest.fixture(scope="module", params=NAMES)
def each(request):
    return encoder(request.param)


def whole(reader, episodes=(1, 2, 4, 5)):
    """Episodes, and the numbers of all their steps."""
    steps, _, lengths = reader.episodes(np.array(episodes))
    return steps, lengths, torch.arange(sum(lengths))


def rows_of(steps, at):
    return StepInputs(
        {name: column[at] for name, column in steps.obs.items()},
        *(column[at] for column in (steps.to_go, steps.last_action, steps.last_reward)),
    )


def close(found, expected):
    """As keys are compared: by direction."""
    found, expected = (torch.nn.functional.normalize(vectors, dim=-1) for vectors in (found, expected))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_what_is_streamed_are_the_vectors_of_whole_episodes(reader, each):
    """Two rows, each of two episodes; the second row begins its second one later."""
    steps, lengths, every = whole(reader, (1, 2, 0, 4))
    expected = each.of(steps, lengths, every)
    assert expected.shape == (34, each.width)
    assert expected.dtype == torch.float32
    begins = torch.tensor([0, 18])
    stream = each.stream(2)
    assert not stream.vectors(torch.tensor([0, 1])).any()
    for t in range(16):
        stream.restart(torch.tensor([t == 9, t == 7]))
        stream.add(rows_of(steps, begins + t))
        close(stream.vectors(torch.tensor([0, 1])), expected[begins + t])
        close(stream.vectors(torch.tensor([1])), expected[[18 + t]])


def test_a_vector_is_of_the_last_steps_of_its_episode_alone(reader, each):
    """Nor does it matter which others are asked for, but for the last bits."""
    steps, lengths, every = whole(reader)
    found = each.of(steps, lengths, every)
    close(each.of(steps, lengths, every[3::5]), found[3::5])
    alone, own, those = whole(reader, (2,))
    close(each.of(alone, own, those), found[9:18])
    if not isinstance(each, encoders.Fitted):  # whose hidden states know what was before
        cut = rows_of(alone, those[2:])
        later = torch.arange(POOL - 1, 7)
        close(each.of(cut, [7], later), found[9 + 2 + later])


def test_keys_are_the_vectors_of_each_episode_s_steps(reader, each):
    at = [np.array([2, 0]), np.array([], np.int64), np.array([6])]
    steps, lengths, every = whole(reader, (0, 3, 5))
    expected = each.of(steps, lengths, every)[[2, 0, 7 + 4 + 6]]
    found = keys_by(each, reader)(np.array([0, 3, 5]), at)
    close(torch.from_numpy(found), expected)


@pytest.mark.parametrize("name", ["hopfield", "random"])
def test_equal_windows_have_a_cosine_of_one_and_others_less(reader, name):
    """Wherever they lie, whatever is asked beside them, and whatever was asked before."""
    made = encoder(name, ROOM)
    steps, _, every = whole(reader, (1,))
    twice = rows_of(steps, torch.cat([every, every[:6], every]))
    found = torch.nn.functional.normalize(made.of(twice, [9, 6, 9], torch.tensor([8, 14, 23, 20])))
    again = torch.nn.functional.normalize(made.of(steps, [9], torch.tensor([8, 5])))
    cosines = found @ again.T
    np.testing.assert_allclose(cosines[[0, 2], 0], 1, atol=1e-6)
    np.testing.assert_allclose(cosines[[1, 3], 1], 1, atol=1e-6)
    assert (cosines[[1, 3], 0] < 0.9999).all()
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("name", ["hopfield", "random"])
def test_the_seed_of_the_projection_and_nothing_else_is_chance(reader, name):
    steps, lengths, every = whole(reader)
    first = encoder(name)
    torch.manual_seed(5)
    assert torch.equal(first.of(steps, lengths, every), encoder(name).of(steps, lengths, every))
    other = encoder(name, projection=1).of(steps, lengths, every)
    assert not torch.allclose(first.of(steps, lengths, every), other, atol=1e-3)


@pytest.mark.parametrize("name", ["hopfield", "random"])
def test_all_that_is_told_matters_and_returns_are_told_on_demand(reader, name):
    steps, lengths, every = whole(reader)
    made = encoder(name)
    found = made.of(steps, lengths, every)
    unknown = replace(steps, to_go=torch.full_like(steps.to_go, torch.nan))
    assert torch.equal(made.of(unknown, lengths, every), found)
    changed = [replace(steps, **{name: getattr(steps, name).roll(1)}) for name in ("last_action", "last_reward")]
    changed += [replace(steps, obs=steps.obs | {name: steps.obs[name].roll(1, 0)}) for name in steps.obs]
    for each in changed:
        assert not torch.allclose(made.of(each, lengths, every), found, atol=1e-4)
    told = encoder(name, told=True)
    wanted = replace(steps, to_go=steps.to_go.roll(1))
    assert not torch.allclose(told.of(wanted, lengths, every), told.of(steps, lengths, every), atol=1e-4)


def test_steps_are_merged_side_by_side(reader):
    steps, _, _ = whole(reader)
    merged = Merged(HistoryShape.of(SPEC, 1), 8, 3.0, 4.0)
    x = merged(steps)
    assert x.shape == (len(steps.to_go), merged.size)
    for s, row in enumerate(x.tolist()):
        expected = np.zeros(merged.size)
        expected[int(steps.last_action[s]) + 1] = 1  # the first is none
        expected[4] = steps.last_reward[s] / 4
        expected[5 + int(steps.obs["cell"][s])] = 1
        expected[10:13] = steps.obs["sensors"][s]
        expected[13 + round(min(float(steps.to_go[s]), 3.0) / 3 * 7)] = 1
        np.testing.assert_allclose(row, expected)


@pytest.mark.parametrize("name", ["random", "hopfield"])
def test_rewards_are_scaled_as_the_models(reader, name):
    steps, lengths, _ = whole(reader, (1, 5))
    at = torch.arange(len(steps.to_go))
    scaled = encoder(name, scale=4.0).of(steps, lengths, at)
    four_times = replace(steps, last_reward=4 * steps.last_reward)
    torch.testing.assert_close(encoder(name, scale=16.0).of(four_times, lengths, at), scaled)
    assert not torch.allclose(encoder(name).of(steps, lengths, at), scaled, atol=1e-4)


def test_the_projection_has_the_published_variance():
    drawn = projection(96, 384, 0)
    assert drawn.shape == (384, 96)
    assert drawn.std().item() == pytest.approx((96 / 384) ** 0.5, rel=0.02)
    assert abs(drawn.mean().item()) < 0.01


@pytest.mark.parametrize("beta", [3.0, 30.0])
def test_a_step_becomes_the_words_that_the_formula_says(reader, beta):
    steps, _, _ = whole(reader, (1,))
    made = encoder("hopfield", beta=beta)
    merged = Merged(HistoryShape.of(SPEC, 1, False), 8, 3.0)
    x = merged(steps)
    words = Encoder(minilm_folder()).model.get_input_embeddings().weight.detach().double().numpy()
    assert words.shape == (30522, 384)
    drawn = x.double().numpy() @ projection(merged.size, 384, 0).double().numpy().T
    scores = beta * (drawn @ words.T) / np.linalg.norm(drawn, axis=1)[:, None] / np.linalg.norm(words, axis=1)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    expected = weights / weights.sum(1, keepdims=True) @ words
    np.testing.assert_allclose(made.mix(x), expected, atol=1e-6)


def test_a_window_is_read_as_a_text_of_these_words(reader):
    """Both ways, and its hidden states averaged: by the model alone, a window at a time."""
    made = encoder("hopfield")
    steps, lengths, _ = whole(reader, (1, 5))
    at = torch.tensor([0, 2, 8, 9 + 6])
    model, mixes = Encoder(minilm_folder()).model, made.mix(made.merged(steps))
    for vector, begin, last in zip(made.of(steps, lengths, at), (0, 0, 5, 12), at.tolist(), strict=True):
        with torch.no_grad():
            hidden = model(inputs_embeds=mixes[None, begin : last + 1]).last_hidden_state[0]
        close(vector, hidden.mean(0))


def test_what_a_step_becomes_does_not_depend_on_its_company(reader):
    steps, _, _ = whole(reader)
    made = encoder("hopfield")
    x = made.merged(steps)
    together = made.mix(x)
    for n in (0, 5, 21):
        assert torch.equal(made.mix(x[[n]])[0], together[n])
    assert torch.equal(made.mix(x.flip(0)).flip(0), together)


def test_steps_that_were_seen_are_not_computed_again(reader, monkeypatch):
    made, mix, asked = encoder("hopfield", ROOM), hopfield.Hopfield.mix, []
    monkeypatch.setattr(hopfield.Hopfield, "mix", lambda self, x: asked.append(len(x)) or mix(self, x))
    steps, lengths, every = whole(reader)
    found = made.of(steps, lengths, every)
    distinct = len(torch.unique(made.merged(steps), dim=0))
    assert sum(asked) == distinct < len(every)
    assert torch.equal(made.of(steps, lengths, every), found)
    assert sum(asked) == distinct
    monkeypatch.setattr(hopfield, "MOST", 3)  # more are there: all are forgotten, and nothing else changes
    assert torch.equal(made.of(steps, lengths, every), found)
    assert sum(asked) > distinct
