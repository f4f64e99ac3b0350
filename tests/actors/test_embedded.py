"""What an actor has embedded, no learner embeds again."""

from dataclasses import replace

import numpy as np
import pytest

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from learner.algorithms import LearnerSetup
from learner.algorithms.dqn import DQNConfig
from learner.config import LearnerConfig
from learner.group import Learner
from learner.models import PolicyConfig
from llm_service import embed_one, embedding

WORLD = "crafter/Text"


def actor(text="minilm"):
    spec, config = envs.spec(WORLD), PolicyConfig(network="texts", text=text, hidden=8, head="dueling")
    return RolloutActor(ActorSetup(WORLD, {}, spec, ActorsConfig(n=1, envs=4, steps=16), config, 1, True), 0)


def learner(made):
    config = LearnerConfig(algorithm="dqn", minibatch=16)
    setup = made.setup
    options = DQNConfig(capacity=1000, start_steps=16, keep="memory")
    return Learner(LearnerSetup(config, setup.policy, setup.spec, 1, (1, 4), options))


def test_a_chunk_has_the_embeddings_of_texts_that_its_actor_never_named_before():
    made = actor()
    weights = learner(made).ready()
    _, first = made.rollout(weights, 0)
    _, second = made.rollout(weights, 0)
    hashes, vectors = first.embedded
    assert set(hashes.tolist()) == first.texts.keys()
    for key, vector in zip(hashes.tolist(), vectors, strict=True):
        np.testing.assert_array_equal(vector, embed_one(first.texts[key]))
    assert set(second.embedded[0].tolist()) == second.texts.keys() - first.texts.keys()
    _, again = actor().rollout(weights, 0)  # a successor may speak to another learner
    assert again.embedded[0].tolist() == hashes.tolist()


def test_a_learner_embeds_nothing_that_came_with_a_chunk(monkeypatch):
    made = actor()
    rank = learner(made)
    _, chunk = made.rollout(rank.ready(), 0)
    expected = {text: embed_one(text).copy() for text in chunk.texts.values()}

    def learned(given):
        embed_one.cache_clear()
        return learner(made).update(0, chunk.steps, given)[1]

    before = learned(replace(chunk, embedded=None))
    monkeypatch.setattr(embedding, "_minilm", lambda device: pytest.fail("a text is embedded again"))
    after = learned(chunk)
    for name, weights in before.items():
        np.testing.assert_array_equal(weights, after[name])
    assert not np.array_equal(before["network.out.0"], rank.ready()["network.out.0"])
    for text, vector in expected.items():
        np.testing.assert_array_equal(embed_one(text), vector)
    assert not embedding._given


def test_what_is_known_stays(monkeypatch):
    known = embed_one("a cow").copy()
    embedding.remember(["a cow", "a text that nobody embeds"], np.zeros((2, 384), np.float32))
    np.testing.assert_array_equal(embed_one("a cow"), known)
    assert not embed_one("a text that nobody embeds").any()
    assert not embedding._given
    embed_one.cache_clear()


def test_words_that_learn_need_no_embeddings():
    made = actor("learned")
    assert made.rollout(learner(made).ready(), 0)[1].embedded is None
