"""A model of preferences: what it learns, what it must not know, and that a window's score is its own."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.api import EnvSpec, Field
from learner.knowledge import fitted_preference
from learner.knowledge.fitted_preference import About, FittedPreference
from learner.knowledge.prefer_config import PreferConfig
from learner.knowledge.preference_fit import PreferenceFitter, PreferenceSetup, measured, shape_of
from learner.knowledge.preferences import Preferences
from learner.knowledge.segments import Segments
from learner.models.sequence.segment_scores import SegmentScores
from learner.models.sequence.segment_transformer import Column, Encoded, SegmentTransformer
from learner.models.weights import get_weights
from learner.potentials import PotentialSetup, ShapingConfig, potential
from learner.store.episodes import StoreError
from learner.windows import NO_ACTION, Windows

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {"view": Field("grid", (4, 3, 3)), "facing": Field("category", size=4), "held": Field("vector", (2,))}
SPEC = EnvSpec("small/World", FIELDS | {"mission": Field("text")}, ("left", "right", "forward"))
K = 4


def segments(n=400, seed=0):
    """Views of few things, some of which began with their episode."""
    random = np.random.default_rng(seed)
    view = random.choice(4, size=(n, K, 4, 3, 3), p=[0.85, 0.05, 0.05, 0.05]).astype(np.uint8)
    obs = {"view": view, "facing": random.integers(4, size=(n, K)), "held": random.normal(3, 2, (n, K, 2))}
    obs["held"] = obs["held"].astype(np.float32)
    actions = random.integers(3, size=(n, K - 1))
    for s in range(0, n, 5):
        age = s // 5 % K  # steps since the episode began
        for column in obs.values():
            column[s, : K - 1 - age] = column[s, K - 1 - age]
        actions[s, : K - 1 - age] = NO_ACTION
    zeros = np.zeros(n, np.int64)
    return Segments(obs, actions, zeros, zeros, zeros, random.random(n).astype(np.float32), [[]] * n)


def worth(found):
    """Planted: linear in which things are in view, how far to the right, and in what the last action has led to."""
    view, right = found.obs["view"][..., 0], np.arange(4)[:, None]
    ahead = (view == 1).sum((1, 2, 3)) - 0.7 * (view == 2).sum((1, 2, 3)) + (right * (view == 3)).sum((1, 2, 3)) / 3
    outcome = (view[:, -1] == 1).sum((1, 2)) * 2.0
    return ahead + outcome + (found.actions[:, -1] == 2)


def preferences(found, pairs, seed=0, ties=0.0):
    first, second = np.random.default_rng(seed).integers(len(found), size=(2, pairs))
    value = worth(found)
    probability = 0.5 + 0.5 * np.sign(value[first] - value[second])
    probability[np.random.default_rng(1).random(pairs) < ties] = 0.5
    return Preferences(first, second, probability.astype(np.float32))


def fitter(found, told, **options):
    config = PreferConfig(**{"steps": 100, "width": 32, "batch": 32} | options)
    return PreferenceFitter(PreferenceSetup(config, shape_of(found, FIELDS, 3, config.width), found, told, 0))


def fitted(found, told, **options):
    made = fitter(found, told, **options)
    made.fit(10**6)
    return made.result()


def scores_of(found, seed=0, width=32):
    """A model with drawn weights, as it is fitted and as it is used."""
    shape = shape_of(found, FIELDS, 3, width)
    torch.manual_seed(seed)
    model = SegmentTransformer(shape)
    with torch.no_grad():
        model.bias.normal_()
        model.up.bias.normal_()
        model.norm.weight.uniform_(0.5, 2)
    return model, SegmentScores(shape, get_weights(model))


def take(windows, rows):
    return Windows(windows.rows, windows.index[rows], windows.actions[rows])


# ---- what is learned ---------------------------------------------------------------------------------------------


def test_a_planted_linear_preference_is_found():
    found = segments(1500)
    made = fitter(found, preferences(found, 6000), steps=200, batch=64)
    made.fit(200)  # the twin that is measured: what is kept would take as long again
    report = made.result().report
    assert report["measured_on"] > 300
    assert report["accuracy"] >= 0.95
    assert report["log_loss"] < 0.2 < report["undecided"]


def test_labels_that_are_dealt_anew_teach_nothing():
    found = segments()
    told = preferences(found, 1200)
    report = fitted(found, told, permute=True).report
    assert 0.3 < report["accuracy"] < 0.7
    one, other = fitter(found, told, permute=True)._all, fitter(found, told)._all
    assert sorted(one.probability) == sorted(other.probability)
    assert 0.3 < (one.probability == other.probability).mean() < 0.7


def test_ties_count_as_half():
    """A pair of ties alone draws two segments together; half of the labels as ties leave the rest to be learned."""
    found = segments()
    told = preferences(found, 1500, ties=0.5)
    report = fitted(found, told).report
    assert report["accuracy"] > 0.7
    assert 600 < report["ties"] < 900
    tied = Preferences(told.first, told.second, np.full(1500, 0.5, np.float32))
    made = fitter(found, tied, weight_decay=0.0)
    steps = np.array(made.fit(10**6))
    assert np.isfinite(steps).all()
    assert steps[-10:, 0].mean() == pytest.approx(np.log(2), abs=0.02)
    assert steps[:10, 0].mean() > steps[-10:, 0].mean()
    result = made.result()
    assert result.report["accuracy"] is None
    json.dumps(result.report, allow_nan=False)


def test_no_segment_that_it_is_measured_on_was_learned_from():
    found = segments()
    told = preferences(found, 1200)
    made = fitter(found, told)
    twin, kept = made._fits
    learned = {int(s) for p in twin.training for s in (told.first[p], told.second[p])}
    assert len(made._held_out) > 20
    assert not learned & {*made._held_out.first.tolist(), *made._held_out.second.tolist()}
    assert len(kept.training) == len(told)  # what is kept learns from all


def test_what_is_fitted_depends_on_the_seed_alone():
    found = segments(100)
    told = preferences(found, 200)
    whole, parts = fitter(found, told, steps=30), fitter(found, told, steps=30)
    torch.manual_seed(1)
    whole.fit(60)
    for steps in (7, 30, 1, 22):
        assert len(parts.fit(steps)) == steps
    assert parts.fit(5) == []
    one, other = whole.result(), parts.result()
    assert one.report == other.report
    for name, value in one.weights.items():
        np.testing.assert_array_equal(value, other.weights[name])


def test_calibration_says_what_came_of_what_was_said():
    scores = np.array([0.0, 3.0, -3.0], np.float32)
    told = Preferences(np.array([1, 1, 2, 0]), np.array([0, 0, 0, 0]), np.array([1, 0.5, 1, 0.5], np.float32))
    found = measured(told, scores)
    table = found["calibration"]
    assert [row["pairs"] for row in table] == [1, 1, 2]
    assert [row["first"] for row in table] == [1.0, 0.5, 0.75]
    np.testing.assert_allclose([row["predicted"] for row in table], 1 / (1 + np.exp([3, 0, -3])), atol=1e-6)
    p = 1 / (1 + np.exp(-3.0))
    expected = [-np.log(p), -(np.log(p) + np.log(1 - p)) / 2, -np.log(1 - p), np.log(2)]
    assert found["log_loss"] == pytest.approx(np.mean(expected), abs=1e-6)
    assert (found["accuracy"], found["decided"]) == (0.5, 2)


# ---- what a score is ---------------------------------------------------------------------------------------------


def test_used_as_it_is_fitted():
    found = segments()
    model, scores = scores_of(found)
    with torch.no_grad():
        expected = model(Encoded(model.shape, found.windows()), torch.arange(len(found))).numpy()
    assert expected.std() > 0.1
    np.testing.assert_allclose(scores.of(found.windows()), expected, atol=2e-5)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 60))
def test_a_score_is_the_same_to_the_bit_whatever_else_is_asked(seed, m):
    found = segments()
    windows, scores = found.windows(), scores_of(found)[1]
    whole, rows = scores.of(windows), np.random.default_rng(seed).integers(len(found), size=m)
    np.testing.assert_array_equal(scores.of(take(windows, rows)), whole[rows])
    np.testing.assert_array_equal(scores.of(found.windows(rows)), whole[rows])


def test_a_score_is_the_same_in_another_process(tmp_path):
    code = """
import sys
import numpy as np
from tests.learner.test_preference import scores_of, segments
np.save(sys.argv[1], scores_of(segments())[1].of(segments(seed=3).windows(np.arange(0, 400, 7))))
"""
    path = tmp_path / "scores.npy"
    subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, check=True)
    np.testing.assert_array_equal(np.load(path), scores_of(segments())[1].of(segments(seed=3).windows())[::7])


def test_every_part_of_a_window_counts_the_outcome_of_the_last_action_too():
    found = segments(50)
    scores = scores_of(found)[1]
    before = scores.of(found.windows())

    def changed(place, **fields):
        obs = {name: column.copy() for name, column in found.obs.items()}
        for name, value in fields.items():
            obs[name][:, place] = value
        return scores.of(replace(found, obs=obs).windows()) != before

    for place in range(K):
        assert changed(place, view=found.obs["view"][:, place] ^ 1).all()
        assert changed(place, facing=(found.obs["facing"][:, place] + 1) % 4).all()
        assert changed(place, held=found.obs["held"][:, place] + 1).all()
    for step in range(K - 1):
        actions = found.actions.copy()
        actions[:, step] = (actions[:, step] + 2) % 4 - 1  # another, or none
        assert (scores.of(replace(found, actions=actions).windows()) != before).all()


def test_an_episode_s_first_window_is_one_observation_that_nothing_led_to():
    found = segments()
    young = (found.actions == NO_ACTION).all(1)
    assert 10 < young.sum() < 40
    scores = scores_of(found)[1]
    alone = {name: column[young][:, -1:] for name, column in found.obs.items()}
    index = np.repeat(np.arange(young.sum())[:, None], K, 1)
    windows = Windows({name: column[:, 0] for name, column in alone.items()}, index, found.actions[young])
    np.testing.assert_array_equal(scores.of(windows), scores.of(found.windows())[young])


def test_what_was_never_seen_is_one_unknown_value_that_says_nothing():
    found = segments()
    scores = scores_of(found)[1]

    def with_view(value, channel=0):
        view = found.obs["view"].copy()
        view[:, -1, 1, 1, channel] = value
        return scores.of(replace(found, obs=found.obs | {"view": view}).windows())

    np.testing.assert_array_equal(with_view(4), with_view(255))
    assert (with_view(4) != with_view(3)).all()
    assert (with_view(4, 1) != with_view(4, 2)).any()  # the other channels of the cell still count
    facing = found.obs["facing"] * 0 - 1
    assert np.isfinite(scores.of(replace(found, obs=found.obs | {"facing": facing}).windows())).all()
    held = found.obs["held"] * np.float32(1e30)
    assert np.isfinite(scores.of(replace(found, obs=found.obs | {"held": held}).windows())).all()


def test_codes_tell_apart_what_is_known_up_to_the_largest_byte():
    column = Column(kind="grid", shape=(1, 2, 2), sizes=(2, 256))
    values = np.array([[[[0, 255], [1, 0]]], [[[2, 7], [200, 7]]]], np.uint8)
    np.testing.assert_array_equal(column.codes(values), [[255, 257], [2 * 257 + 7, 2 * 257 + 7]])
    assert column.symbols == 3 * 257


def test_one_observation_is_a_window_too():
    found = segments(30)
    short = replace(found, obs={n: c[:, -1:] for n, c in found.obs.items()}, actions=found.actions[:, :0])
    model, scores = scores_of(short)
    with torch.no_grad():
        expected = model(Encoded(model.shape, short.windows()), torch.arange(30)).numpy()
    np.testing.assert_allclose(scores.of(short.windows()), expected, atol=2e-5)


@pytest.mark.parametrize(
    ("obs", "sentence"),
    [
        ({"view": np.zeros((5, K, 3, 4, 3), np.uint8)}, r"hold view \[3, 4, 3\], which this world does not show"),
        ({"map": np.zeros((5, K), np.int64)}, r"hold map \[\], which this world does not show"),
        ({"photo": np.zeros((5, K, 8, 8, 3), np.uint8)}, "the segments hold none of them"),
    ],
)
def test_segments_that_cannot_be_read_are_one_sentence(obs, sentence):
    found = segments(5)
    fields = FIELDS | {"photo": Field("pixels", (8, 8, 3))}
    with pytest.raises(StoreError, match=sentence):
        shape_of(replace(found, obs=obs), fields, 3, 32)
    with pytest.raises(StoreError, match="hold action 2, and this world has only 2"):
        shape_of(found, fields, 2, 32)
    coloured = replace(found, obs={"view": found.obs["view"] + np.uint8(60)})
    with pytest.raises(StoreError, match="view has 274,625 symbols in 12 places: a table of 3,295,500 rows"):
        shape_of(coloured, FIELDS, 3, 32)
    seen = replace(found, obs=found.obs | {"photo": np.zeros((5, K, 8, 8, 3), np.uint8)})
    assert set(shape_of(seen, fields, 3, 32).columns) == {*FIELDS}


# ---- the potential -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a stage leaves."""
    path, found = tmp_path_factory.mktemp("prefer"), segments()
    result = fitted(found, preferences(found, 600), steps=30)
    safetensors.numpy.save_file(result.weights, path / fitted_preference.WEIGHTS)
    about = About(
        shape=shape_of(found, FIELDS, 3, 32),
        mean=result.mean,
        spread=result.spread,
        weights=fitted_preference.sha256(path / fitted_preference.WEIGHTS),
        labels={},
        prefer=PreferConfig(),
        seed=0,
    )
    (path / fitted_preference.ABOUT).write_text(about.model_dump_json())
    return path


def test_phi_is_the_score_on_a_fixed_scale(folder):
    found = segments()
    made = potential("preference")(PotentialSetup(ShapingConfig(window=K, preference=str(folder)), FIELDS, 0))
    assert set(made.fields) == {*FIELDS}
    phi = made.phi(found.windows())
    assert phi.dtype == np.float32
    assert phi.mean() == pytest.approx(0, abs=0.02)
    assert phi.std() == pytest.approx(1 / 3, abs=0.02)
    assert np.abs(phi).max() <= 1
    assert FittedPreference.load(folder).scores.of(found.windows())[np.argmax(phi)] == pytest.approx(
        FittedPreference.load(folder).scores.of(found.windows()).max()
    )
    np.testing.assert_array_equal(made.phi(found.windows(slice(3, 9))), phi[3:9])


@pytest.mark.parametrize(
    ("options", "spec", "sentence"),
    [
        ({"preference": ""}, SPEC, "set method.shaping.preference to the folder of a stage prefer"),
        ({"preference": "/nowhere"}, SPEC, "^method.shaping.preference: /nowhere holds no preference.json: name the"),
        ({"preference": "~nobody-of-that-name/prefer"}, SPEC, "holds no preference.json: name the folder"),
        ({"window": 5}, SPEC, f"windows of {K} observations: set method.shaping.window={K}"),
        ({}, replace(SPEC, fields={"view": FIELDS["view"]}), "reads facing, a category .*small/World does not show"),
        ({}, replace(SPEC, fields=FIELDS | {"view": Field("grid", (5, 3, 3))}), r"reads view, a grid \[4, 3, 3\]"),
        ({}, replace(SPEC, action_names=("left", "right")), "knows 3 actions, and small/World has 2"),
        ({}, replace(SPEC, action_names=("a", "b", "c", "d")), "knows 3 actions, and small/World has 4"),
    ],
)
def test_another_world_or_window_is_refused_in_one_sentence(folder, options, spec, sentence):
    chosen = ShapingConfig(**{"window": K, "preference": str(folder)} | options)
    with pytest.raises(ValueError, match=sentence) as raised:
        potential("preference").check(chosen, spec)
    assert "\n" not in str(raised.value)
    potential("preference").check(ShapingConfig(window=K, preference=str(folder)), SPEC)


def test_damage_is_seen(folder, tmp_path):
    for name in (fitted_preference.ABOUT, fitted_preference.WEIGHTS):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    weights = tmp_path / fitted_preference.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(StoreError, match=r"not the one that preference\.json tells of; run its stage again"):
        FittedPreference.load(tmp_path)
    chosen = ShapingConfig(window=K, preference=str(tmp_path))
    with pytest.raises(ValueError, match=r"^method\.shaping\.preference: .*run its stage again"):
        potential("preference").check(chosen, SPEC)  # before anything starts
    weights.unlink()
    with pytest.raises(ValueError, match=r"^method\.shaping\.preference: .*run its stage again"):
        potential("preference").check(chosen, SPEC)
    about = tmp_path / fitted_preference.ABOUT
    about.write_text(about.read_text()[:-9])
    with pytest.raises(StoreError, match=r"preference\.json is damaged: .*; run its stage again") as raised:
        FittedPreference.load(tmp_path)
    assert "\n" not in str(raised.value)
