"""Weights that change within a chunk: each step is recorded with the version and the probability by which it acted."""

import numpy as np
import pytest

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from actors.policy_server import PolicyServer
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from learner.batch import collate
from learner.group import build_policy, get_weights, set_weights
from learner.models.config import remembered
from tests.learner.language_policies import OPTIONS, WORLD, config_of
from tests.learner.setups import ppo_of

STEPS = 8


class Arriving:
    """A server that gets the next version of the weights before some questions, as it does while a learner learns."""

    def __init__(self, config, spec, versions, before):
        self.server, self.asked = PolicyServer(config, spec, 0, False), 0
        self._versions, self._before = versions, dict(before)
        self.server.load(0, versions[0])

    def answer(self, version, asked):
        if (newer := self._before.get(self.asked)) is not None:
            self.server.load(newer, self._versions[newer])
        self.asked += 1
        return self.server.answer(version, asked)


def played(newest, before):
    config = config_of("t5", temperature=8.0, placement="server", newest=newest)
    spec = remembered(config, envs.spec(WORLD, **OPTIONS))
    policies = [build_policy(config, spec, 0) for _ in range(3)]
    random = np.random.default_rng(0)
    for policy in policies:
        other = {name: value + random.normal(0, 0.05, value.shape) for name, value in get_weights(policy).items()}
        set_weights(policy, {name: value.astype(np.float32) for name, value in other.items()})
    server = Arriving(config, spec, [get_weights(p) for p in policies], before)
    setup = ActorSetup(WORLD, OPTIONS, spec, ActorsConfig(n=1, envs=3, steps=STEPS), config, 5, False)
    setup = ActorSetup(**vars(setup) | {"server": server.answer})
    return policies, RolloutActor(setup, 0).rollout(None, 0)[1]


def test_each_step_is_recorded_with_the_weights_that_acted():
    policies, chunk = played(True, {2: 1, 4: 2})
    assert chunk.version == 0
    assert chunk.versions[0] == 0
    assert set(chunk.versions.tolist()) == {0, 1, 2}
    assert (np.diff(chunk.versions) >= 0).all()
    by = []
    for policy in policies:
        batch = collate([chunk], policy, 2, 1.0)
        obs = {name: column.numpy() for name, column in batch.flat_obs.items()}
        logits = policy.decide(obs, batch.texts)[0].log_softmax(-1).numpy()
        by.append(logits[np.arange(chunk.steps), chunk.action.ravel()].reshape(chunk.action.shape))
    near = np.abs(np.stack(by) - chunk.log_prob) < 1e-4
    assert near.any(0).all(), "by one of the three versions"
    first = near.argmax(0)
    changes = np.flatnonzero(np.diff(chunk.versions)) + 1
    for t in range(STEPS):
        inside = t + 1 not in changes  # newer weights came in the middle of the step before a change
        assert (first[t] == chunk.versions[t]).all() or not inside
        assert (first[t] >= chunk.versions[t]).all()
    assert not collate([chunk], policies[2], 0, 1.0).fresh


def test_by_default_a_chunk_is_played_with_the_weights_that_it_began_with():
    _, chunk = played(False, {2: 1, 4: 2})
    assert chunk.versions is None
    assert collate([chunk], build_policy(config_of("t5"), envs.spec(WORLD, **OPTIONS), 0), 0, 1.0).fresh


def test_such_a_chunk_is_learned_from_with_truncated_weights_and_dropped_by_its_mean_age():
    policies, chunk = played(True, {2: 1, 4: 2})
    assert 0 < chunk.mean_version < 2
    policy = policies[0]
    set_weights(policy, get_weights(policies[2]))
    report = ppo_of(policy, 3, None, minibatch=8, epochs=1, anneal=False).learn(2, 0, [chunk])
    assert report["dropped"] == 0
    assert np.isfinite(report["losses/policy"])
    assert report["policy/rho"] != 1
    dropping = ppo_of(policy, 3, None, max_lag=4)
    assert dropping.learn(5, 0, [chunk])["dropped"] == (5 - chunk.mean_version > 4)
    assert dropping.learn(7, 0, [chunk])["dropped"] == 1


@pytest.mark.parametrize("words", [["policy.lm.placement=local"], ["sync=true", "policy.lm.placement=server"]])
def test_weights_that_cannot_change_meanwhile_are_one_sentence(words):
    with pytest.raises(ConfigError, match=r"policy\.lm\.newest=true lets weights change while actors act"):
        compose(["experiment=glam_small", "policy.lm.newest=true", *words])
