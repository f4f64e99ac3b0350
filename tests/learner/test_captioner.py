"""A captioner is fitted, measured, kept and refused; noise changes what it says it changes."""

import hashlib
import shutil

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from envs.api import CELLS, FACTS, HELD_OUT_FIRST, Fact
from learner.captions import about
from learner.captions.about import ABOUT, WEIGHTS, About
from learner.captions.accuracy import Accuracy
from learner.captions.captioner import Captioner
from learner.captions.config import CaptionerConfig
from learner.captions.fit import CaptionerFitter, CaptionerSetup
from learner.captions.frames import Recent, Steps, Wanderers
from learner.captions.noise import disturbed
from learner.store.shards import StoreError

ENV = "crafter/Named"
OPTIONS = {"observe": ["pixels", "cells", "facts"], "start": "anywhere", "length": 30}
BRIEF = CaptionerConfig(steps=4, batch=16, players=8, recent=64, width=16, hidden=8)


def fitter(config=BRIEF, seed=0):
    return CaptionerFitter(CaptionerSetup(config, ENV, OPTIONS, seed))


def write(folder, made):
    shape, weights = made.result()
    content = safetensors.numpy.save(weights)
    (folder / WEIGHTS).write_bytes(content)
    told = About(env=ENV, shape=shape, weights=hashlib.sha256(content).hexdigest(), seed=0)
    (folder / ABOUT).write_text(told.model_dump_json())
    return folder


# ---- what it learns from --------------------------------------------------------------------------------------------


def test_a_step_is_the_picture_before_the_one_after_and_what_was_done_also_where_an_episode_ends():
    players = Wanderers(ENV, OPTIONS | {"length": 3}, 4, 7)
    other = envs.make(ENV, 4, 7, **OPTIONS | {"length": 3})
    seen = other.begin()
    players._choice = lambda: np.arange(4) + 1
    for step in range(1, 8):
        found = players.step()
        assert np.array_equal(found.before, seen["pixels"])
        moved = other.advance(np.arange(4) + 1)
        last = moved.final_obs if step % 3 == 0 else moved.obs
        assert np.array_equal(found.after, last["pixels"])
        assert np.array_equal(found.facts, last[FACTS])
        assert np.array_equal(found.cells, last[CELLS])
        told = [other.texts[text] if text >= 0 else None for text in other.events.tolist()]
        assert [[*players.events, None][event] for event in found.event] == told
        seen = moved.obs


def test_held_out_players_play_held_out_episodes_once():
    players = Wanderers(ENV, OPTIONS, 3, 5, held_out=True)
    assert players.env._seed.tolist() == [HELD_OUT_FIRST + 5 + i for i in range(3)]
    steps = 0
    while players.playing.any():
        players.step()
        steps += 1
    assert steps == 30


def test_rare_events_are_drawn_more_often_than_they_happen():
    kept, n = Recent(200), 100
    event = np.array([0] * 96 + [1] * 4)
    blank = np.zeros((n, 1), np.uint8)
    for _ in range(3):  # the first hundred is forgotten
        kept.add(Steps(blank, blank, blank, blank, event))
    drawn = kept.sample(4000, np.random.default_rng(0)).event
    assert (drawn == 1).mean() == pytest.approx(2 / (2 + np.sqrt(96)), abs=0.03)


# ---- the fit --------------------------------------------------------------------------------------------------------


def test_equal_seeds_give_equal_weights_and_other_seeds_do_not():
    one, same, other = fitter(), fitter(), fitter(seed=1)
    for made in (one, other):
        made.fit(4)
    for _ in range(4):
        same.fit(1)
    arrays, again, different = (made.result()[1] for made in (one, same, other))
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)
    assert not np.array_equal(arrays["things.weight"], different["things.weight"])


@pytest.mark.slow
def test_a_minute_of_fitting_beats_the_constant_guess_in_held_out_worlds():
    made = fitter(CaptionerConfig(steps=350))
    made.fit(350)
    found = made.measure(48, OPTIONS)["all"]
    exact, constant = found["exact"], found["constant"]
    assert exact["items"] > constant["items"] + 0.8
    assert exact["feelings"] > constant["feelings"] + 0.5
    assert exact["event"] > constant["event"] + 0.05
    for thing in ("grass", "water", "tree", "stone"):  # always guessed there, or never
        share = found["facts"][thing]["times"] / found["states"]
        assert found["facts"][thing]["precision"] > share + 0.5 * (1 - share)
        assert found["facts"][thing]["recall"] > 0.8


def test_accuracy_of_the_truth_is_1_and_of_a_changed_column_is_counted():
    players = Wanderers(ENV, OPTIONS, 8, 0)
    counts, changed = (Accuracy(players.env, players.events) for _ in range(2))
    for _ in range(10):
        *_, facts, event = players.step()
        wrong = facts.copy()
        wrong[:, 0] = 1 - wrong[:, 0]
        counts.add(facts, event, facts, event)
        changed.add(facts, event, wrong, event)
    table = counts.table()
    assert set(table["all"]["exact"].values()) == {1.0}
    assert table["all"]["states"] == 80 == table["day"]["states"] + table["night"]["states"]
    name = players.env.env_spec.facts[0].name
    found = changed.table()["all"]
    assert found["facts"][name]["recall"] in (0.0, None)
    assert found["exact"]["view"] == 0.0
    assert found["exact"]["items"] == found["exact"]["event"] == 1.0


# ---- on disk --------------------------------------------------------------------------------------------------------


def test_a_loaded_captioner_predicts_what_the_fitted_one_did(tmp_path):
    made = fitter()
    made.fit(4)
    kept, loaded = Captioner(*made.result()), Captioner.load(write(tmp_path, made))
    steps = Wanderers(ENV, OPTIONS, 6, 3).step()
    (facts, codes), (again, same) = kept.states(steps.after), loaded.states(steps.after)
    assert np.array_equal(facts, again)
    assert np.array_equal(codes.numpy(), same.numpy())
    before = loaded.states(steps.before)[1]
    assert np.array_equal(kept.events(before, codes), loaded.events(before, same))


def test_a_wrong_folder_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(StoreError, match=r"holds no captioner\.json: name the folder of a stage captioner"):
        about.read(tmp_path)
    folder = write(tmp_path, fitter())
    about.assert_tells(about.read(folder), envs.spec(ENV, **OPTIONS))
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-1] + b"\0\0")
    with pytest.raises(StoreError, match=r"not the one that captioner\.json tells of; fit the captioner again"):
        about.read(folder)
    (folder / ABOUT).write_text("{}")
    with pytest.raises(StoreError, match="is damaged"):
        about.read(folder)
    shutil.rmtree(folder)
    with pytest.raises(StoreError, match="holds no"):
        about.read(folder)


def test_a_captioner_of_another_environment_is_refused(tmp_path):
    read = about.read(write(tmp_path, fitter()))
    fewer = envs.spec(ENV, **OPTIONS)
    object.__setattr__(fewer, "facts", fewer.facts[1:])
    with pytest.raises(ValueError, match="fitted to the captions of crafter/Named, not to those of crafter/Named"):
        about.assert_tells(read, fewer)


# ---- noise ----------------------------------------------------------------------------------------------------------

KINDS = (*(Fact(f"thing {i}", "seen") for i in range(6)), Fact("faced", "faced", 7), Fact("night", ""))


@st.composite
def states(draw):
    n = draw(st.integers(1, 20))
    columns = [draw(st.lists(st.integers(0, kind.size - 1), min_size=n, max_size=n)) for kind in KINDS]
    return np.array(columns, np.int64).T


@settings(max_examples=50, deadline=None)
@given(states(), st.floats(0, 1), st.integers(0, 9))
def test_noise_keeps_the_range_of_facts_and_what_is_not_told(facts, rate, seed):
    found = disturbed(facts, KINDS, rate, np.random.default_rng(seed))
    assert found.shape == facts.shape
    assert (found[:, -1] == facts[:, -1]).all()
    assert all((found[:, c] >= 0).all() and (found[:, c] < kind.size).all() for c, kind in enumerate(KINDS))
    assert (found[:, :6].sum(1) <= facts[:, :6].sum(1)).all()  # replaced one by one
    assert (found[facts[:, 6] == 6, 6] == 6).all()  # nothing is said where nothing was
    assert np.array_equal(disturbed(facts, KINDS, 0.0, np.random.default_rng(seed)), facts)
    gone = disturbed(facts, KINDS, 1.0, np.random.default_rng(seed))
    assert not ((gone[:, 6] == facts[:, 6]) & (facts[:, 6] < 6)).any()


def test_a_rate_of_noise_is_the_share_that_is_wrong_half_of_it_left_out():
    random = np.random.default_rng(0)
    facts = np.stack([*random.integers(0, 2, (6, 20_000)), random.integers(0, 7, 20_000), np.zeros(20_000)], 1)
    facts[:, 5] = 0  # there is always another that is not told
    facts = facts.astype(np.int64)
    found = disturbed(facts, KINDS, 0.2, random)
    told = facts[:, :6] > 0
    new = (found[:, :6] > 0) & ~told
    assert ((found[:, :6] == 0) & told).sum() / told.sum() == pytest.approx(0.2, abs=0.005)
    assert new.sum() / told.sum() == pytest.approx(0.1, abs=0.01)  # two may be replaced by one and the same
    faced = facts[:, 6] < 6
    assert (found[faced, 6] != facts[faced, 6]).mean() == pytest.approx(0.2, abs=0.01)
    assert (found[faced, 6] == 6).mean() == pytest.approx(0.1, abs=0.01)
