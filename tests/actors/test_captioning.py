"""The wrapper that tells predicted or disturbed captions in place of the environment's own."""

import hashlib

import numpy as np
import pytest
import safetensors.numpy

import envs
from actors.wrappers import captioning, chosen
from actors.wrappers.captioning import Captioning, Config
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from envs.api import FACTS
from learner.captions.about import ABOUT, WEIGHTS, About
from learner.captions.captioner import Captioner
from learner.captions.config import CaptionerConfig, CaptioningConfig
from learner.captions.fit import CaptionerFitter, CaptionerSetup

TOLD = ("view", "items", "feelings")
OPTIONS = {"observe": ["pixels", *TOLD, FACTS], "length": 12, "start": "anywhere"}
N = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A captioner that has hardly learned anything, and so makes many mistakes."""
    place = tmp_path_factory.mktemp("captioner")
    config = CaptionerConfig(steps=12, batch=32, players=16, width=16, hidden=16)
    options = {"observe": ["pixels", "cells", FACTS], "start": "anywhere", "length": 12}
    made = CaptionerFitter(CaptionerSetup(config, "crafter/Named", options, 0))
    made.fit(12)
    shape, weights = made.result()
    content = safetensors.numpy.save(weights)
    (place / WEIGHTS).write_bytes(content)
    about = About(env="crafter/Named", shape=shape, weights=hashlib.sha256(content).hexdigest(), seed=0)
    (place / ABOUT).write_text(about.model_dump_json())
    return place


def world(seed=4, n=N, **options):
    return envs.make("crafter/Text", n, seed, **OPTIONS | options)


def wrapped(env, captioner=None, noise=0.0, seed=0):
    told = CaptioningConfig(captioner=str(captioner or ""), noise=noise)
    return Captioning(env, captioner and Captioner.load(captioner), Config(captioning=told, seed=seed))


def sensible(random, n=N):
    """Actions that now and then do something."""
    return random.choice([1, 2, 3, 4, 5, *range(20, 60)], n)


class Truth:
    """A captioner that knows: by the picture, the facts."""

    def __init__(self, *options):
        self.facts, self.shape = {}, CaptionerFitter  # its shape is not read but for the events
        self.shape = type("Shape", (), {"events": []})

    def learn(self, obs):
        for picture, facts in zip(obs["pixels"], obs[FACTS], strict=True):
            self.facts[picture.tobytes()] = facts.astype(np.int64)

    def states(self, pictures):
        return np.stack([self.facts[picture.tobytes()] for picture in pictures]), None


def test_without_mistakes_all_that_is_told_is_what_the_environment_tells():
    truth, twin = Truth(), world()
    env = Captioning(world(), truth, Config(captioning=CaptioningConfig(), seed=0))
    seen, random = twin.begin(), np.random.default_rng(0)
    truth.learn(seen)
    obs = env.begin()
    for _ in range(30):
        for name in TOLD:
            assert env.texts.texts(obs[name]) == twin.texts.texts(seen[name])
        assert env.texts.texts(env.situations()) == twin.texts.texts(twin.situations())
        actions = sensible(random)
        moved = twin.advance(actions)
        truth.learn(moved.obs)
        if len(moved.final_index):
            truth.learn(moved.final_obs)
        found = env.advance(actions)
        for name in TOLD if len(moved.final_index) else ():
            assert env.texts.texts(found.final_obs[name]) == twin.texts.texts(moved.final_obs[name])
        assert np.array_equal(found.reward, moved.reward)
        seen, obs = moved.obs, found.obs


def test_captions_are_those_of_predicted_facts_and_events_those_between_two_pictures_also_at_an_end(folder):
    env, twin, captioner = wrapped(world(), folder), world(), Captioner.load(folder)
    obs, seen, random = env.begin(), twin.begin(), np.random.default_rng(1)
    ends, different = 0, 0
    for _ in range(30):
        facts, before = captioner.states(seen["pixels"])
        told = twin.tell(facts)
        for name in TOLD:
            assert env.texts.texts(obs[name]) == twin.texts.texts(told[name])
        assert env.texts.texts(env.situations()) == twin.texts.texts(told["situation"])
        different += (told["view"] != seen["view"]).sum()
        actions = sensible(random)
        moved, found = twin.advance(actions), env.advance(actions)
        last = moved.obs["pixels"].copy()
        last[moved.final_index] = moved.final_obs["pixels"] if len(moved.final_index) else last[:0]
        events = [[*captioner.shape.events, None][i] for i in captioner.events(before, captioner.states(last)[1])]
        assert [env.texts[text] if text >= 0 else None for text in env.events.tolist()] == events
        if len(moved.final_index):
            ends += 1
            said = twin.tell(captioner.states(moved.final_obs["pixels"])[0])
            assert env.texts.texts(found.final_obs["view"]) == twin.texts.texts(said["view"])
        seen, obs = moved.obs, found.obs
    assert ends
    assert different


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("by_network", [False, True])
def test_a_restored_wrapper_goes_on_as_the_first_would_have(folder, noise, by_network):
    def make():
        return wrapped(world(), folder if by_network else None, noise, seed=3)

    first, random = make(), np.random.default_rng(2)
    first.begin()
    for _ in range(17):
        obs = first.advance(sensible(random)).obs
    other = make()
    again = other.restore(first.state())
    for _ in range(16):
        for name in TOLD:
            assert first.texts.texts(obs[name]) == other.texts.texts(again[name])
        assert first.texts.texts(first.situations()) == other.texts.texts(other.situations())
        actions = sensible(random)
        obs, again = first.advance(actions).obs, other.advance(actions).obs
        assert [first.texts[e] if e >= 0 else "" for e in first.events] == [
            other.texts[e] if e >= 0 else "" for e in other.events
        ]


def test_a_rate_of_noise_is_the_share_of_events_that_are_told_wrong():
    n, rate = 200, 0.3
    env = wrapped(world(n=n, length=400, success="any"), noise=rate)
    env.begin()
    random, counts = np.random.default_rng(0), np.zeros(4, int)
    for _ in range(40):
        env.advance(random.integers(0, 139, n))
        true, told = env.env.events, env.events
        there = true >= 0
        assert (told[~there] == -1).all()
        counts += [there.sum(), (told != true).sum(), (told == -1).sum() - (~there).sum(), (true >= 0).sum()]
    assert counts[0] == n * 40
    assert counts[1] / counts[0] == pytest.approx(rate, abs=0.02)
    assert counts[2] / counts[1] == pytest.approx(0.5, abs=0.03)


def test_noise_follows_from_the_seed():
    def told(seed):
        env, random = wrapped(world(), noise=0.5, seed=seed), np.random.default_rng(0)
        env.begin()
        return [env.texts.texts(env.advance(sensible(random)).obs["view"]) for _ in range(5)]

    assert told(1) == told(1) != told(2)


RUN = ["experiment=ellm_crafter_small", "cluster=inline"]


def test_without_noise_and_captioner_there_is_no_wrapper():
    config = compose([*RUN, "method.captioning.noise=0"])
    assert "captioning" not in chosen(config)
    assert captioning.part(config) is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["method.captioning.noise=0.1"], "method.captioning.noise reads the field facts: add it to env.observe"),
        (["method.captioning.captioner={here}"], "captioner reads the field pixels: add it to env.observe"),
        (
            ["method.captioning.captioner=/nowhere", "env.observe=[pixels,view]"],
            "/nowhere holds no captioner.json: name",
        ),
        (["method.captioning.noise=0.1", "env.observe=[facts,around]"], "leave around out of env.observe"),
        (["method.captioning.noise=1.5"], "less than or equal to 1"),
        (["method=ppo", "env=toy/Line", "method.captioning.noise=0.1"], "makes captions of facts: toy/Line does not"),
        (["method=captioner", "env.observe=[pixels]"], "learns from the field cells: add it to env.observe"),
    ],
)
def test_what_cannot_be_told_is_one_sentence(folder, words, sentence):
    words = [word.format(here=folder) for word in words]
    start = [] if any(word.startswith("method=") for word in words) else ["experiment=ellm_crafter_small"]
    more = ["env=crafter"] if words[0] == "method=captioner" else []
    with pytest.raises(ConfigError) as error:
        compose([*start, "cluster=inline", *more, *words])
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_cannot_go_on_with_other_captions():
    one, other = (Config(captioning=CaptioningConfig(noise=noise), seed=0) for noise in (0.1, 0.2))
    assert not np.array_equal(captioning.identity(one), captioning.identity(other))
