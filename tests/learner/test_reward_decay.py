"""Weights of reward columns that fall over a training: what the learner is paid, and what it reports."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from learner.batch import weigh
from learner.config import LearnerConfig
from learner.group import Learner
from tests.learner.chunks import chunk, setup


@pytest.mark.parametrize(("steps", "goal"), [(0, 0.5), (100, 0.25), (150, 0.125), (200, 0.0), (400, 0.0)])
def test_a_weight_falls_linearly_to_nothing(steps, goal):
    weights = {"goal": 0.5, "env": 2.0}
    config = LearnerConfig(env_steps=400, reward_weights=weights, reward_decay={"goal": 0.5, "shaping": 1.0})
    left = max(0.0, 1 - steps / 400)
    assert config.weights_at(steps) == pytest.approx({"goal": goal, "env": 2.0, "shaping": left})
    assert LearnerConfig(env_steps=400, reward_weights=weights).weights_at(steps) == weights


def rewarded(spec, goal):
    """A chunk that pays by goals."""
    made = chunk(spec, 0)
    return replace(made, rewards=made.rewards | {"goal": np.full_like(made.rewards["env"], goal)})


def test_ppo_learns_from_goals_as_long_as_they_have_a_weight():
    """At the end an update with goals is that without any; before, it is not. Its report says what goals are worth."""
    after = {}
    for steps in (0, 500, 1000):
        for goal in (0, 3):
            plain = {"normalise_advantage": False}
            made = setup("ppo", "mlp", options=plain, env_steps=1000, reward_decay={"goal": 1.0})
            report, weights = Learner(made).update(0, steps, rewarded(made.spec, goal))
            after[steps, goal] = weights["critic.weight"]
            if goal:
                paid, other = (1 - steps / 1000) * 3, chunk(made.spec, 0).rewards["env"].mean()
                assert report["goal/share"] == pytest.approx(paid / (paid + other))
    assert (after[1000, 0] == after[1000, 3]).all()
    assert all((after[steps, 0] != after[steps, 3]).any() for steps in (0, 500))
    assert (after[0, 3] != after[500, 3]).any()


def test_dqn_pays_what_it_replays_by_todays_weights():
    made = setup("dqn", "mlp", env_steps=1000, reward_decay={"goal": 1.0}, reward_weights={"goal": 2.0})
    learner = Learner(made)
    for steps, worth in ((0, 2.0), (250, 1.5), (1000, 0.0)):
        learner.update(0, steps, rewarded(made.spec, 1.0))
        columns = {"goal": np.ones((1, 1), np.float32)}
        assert weigh(columns, learner.algorithm.weights) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("learner.reward_decay.gaol=1", r"learner\.reward_decay\.gaol: there is no such reward: choose from env"),
        ("learner.reward_decay.goal=0", r"learner\.reward_decay\.goal"),
        ("learner.reward_decay.goal=1.5", r"learner\.reward_decay\.goal"),
    ],
)
def test_a_decay_that_is_none_is_refused(word, message):
    with pytest.raises(ConfigError, match=message):
        compose(["env=toy/Line", word])


def test_a_decay_is_a_key_like_any_other():
    assert compose(["env=toy/Line", "learner.reward_decay.goal=0.5"]).learner.reward_decay == {"goal": 0.5}
