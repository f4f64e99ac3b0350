"""Who acts: found by name, one face in training and evaluation, and a further player is one module."""

import dataclasses
import importlib
import sys

import numpy as np
import pytest

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor, players
from actors.collect import Collector, Share, collect_seeds
from actors.players import Player
from actors.players.policy import TorchPlayer
from learner.group import build_policy, get_weights
from learner.models import PolicyConfig
from learner.parts import CollectConfig
from learner.store.episodes import EpisodeStore

PACER = '''
"""Walks to the right, whatever it is told; its memory counts the steps of each episode."""

import numpy as np

from actors.players import Acted, Player


def suits(setup):
    return setup.policy.hidden == 77


def make(setup, caller):
    return Pacer(setup, caller)


class Pacer(Player):
    fields = ("position",)

    def __init__(self, setup, caller):
        self.setup, self.caller, self.ended, self.judged = setup, caller, 0, None

    def begin(self, env, seeds=None):
        self.env, self.judged = env, seeds is not None
        return np.zeros((env.num_envs, 1), np.float32)

    def act(self, obs, state, random):
        n = len(state)
        return Acted(np.full(n, 2), np.zeros(n, np.float32), state[:, 0].copy(), state + 1)

    def value(self, obs, state):
        return state[:, 0].copy()

    def observe(self, transition):
        self.ended += len(transition.final_index)

    def explain(self, obs, i, action):
        return {"why": "it walks"}

    def twin(self, elsewhere=None):
        return Pacer(self.setup, self.caller)
'''


@pytest.fixture
def pacer(tmp_path, monkeypatch):
    """The module of a new player, beside ours."""
    (tmp_path / "pacer.py").write_text(PACER)
    monkeypatch.setattr(players, "__path__", [*players.__path__, str(tmp_path)])
    yield importlib.import_module("actors.players.pacer")
    del sys.modules["actors.players.pacer"]
    del players.pacer


def setup(**policy):
    config = PolicyConfig(**{"network": "mlp", "reads": ["position"]} | policy)
    return ActorSetup("toy/Line", {}, envs.spec("toy/Line"), ActorsConfig(n=1, envs=4, steps=6), config, 5, True)


def test_a_new_player_is_one_module_and_plays_evaluations_by_its_name(pacer):
    played = RolloutActor(setup(), 3).evaluate(None, 0, envs.HELD_OUT_FIRST + np.arange(4), "pacer", True, 2)
    assert played.episodes.length.tolist() == [1] * 4
    assert played.episodes.success.tolist() == [False, True, False, True]
    assert [[step["why"] for step in steps] for steps in played.trajectories] == [["it walks"]] * 2


def test_a_new_player_collects(pacer, tmp_path):
    made, config = setup(), CollectConfig(episodes=4)
    share = Share(tmp_path, {}, "000000", collect_seeds(0, 4), config.model_copy(update={"player": "pacer"}))
    entry = Collector(made, 0).collect(None, share)
    assert (entry["episodes"], entry["steps"]) == (4, 4)
    assert len(EpisodeStore(tmp_path)) == 4


def test_a_new_player_acts_by_the_policies_that_suit_it(pacer):
    actor = RolloutActor(setup(hidden=77, memory="gru"), 0)
    assert type(actor.player) is pacer.Pacer
    summary, chunk = actor.rollout(None, 1)
    assert (chunk.action == 2).all()
    assert set(chunk.obs) == {"position"}
    np.testing.assert_array_equal(chunk.value, 0)  # each episode is one step: what it remembers ends with it
    np.testing.assert_array_equal(chunk.final_value, 1)
    assert actor.player.ended == len(summary.episodes) == 24
    assert not actor.player.judged
    assert actor._who("policy", None, 1) is not actor.player


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (setup(hidden=8), "mlp"),
        (setup(hidden=8, memory="gru"), "policy"),
        (setup(hidden=8, reads=[]), "policy"),  # it reads the mission
        (dataclasses.replace(setup(network="language_model"), server=print), "served"),
        (setup(network="language_model"), "language_policy"),
    ],
)
def test_one_player_suits_a_policy(made, expected):
    assert players.suited(made) == expected


@pytest.mark.parametrize("name", players.names())
def test_every_player_publishes_its_face(name):
    module = players.module(name)
    assert callable(module.make)
    made = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
    for face in (each for each in made if issubclass(each, Player)):
        assert face.begin.__annotations__.keys() <= {"env", "seeds", "return"}
        assert face.act.__annotations__.keys() == {"obs", "state", "random", "return"}


def test_two_players_that_suit_one_policy_are_refused(pacer):
    with pytest.raises(ValueError, match="mlp, pacer"):
        players.make(players.POLICY, setup(hidden=77), "test")


@pytest.mark.parametrize("name", ["random", "expert"])
def test_players_without_weights_act_within_the_rules(name):
    made = dataclasses.replace(setup(), env_id="babyai/GoToLocal", spec=envs.spec("babyai/GoToLocal"))
    player, world, seeds = players.make(name, made, "test"), envs.make(made.env_id, 3), np.arange(3)
    obs = world.begin(seeds)
    state = player.begin(world, seeds)
    for _ in range(20):
        action, log_prob, value, state = player.act(obs, state, None)
        assert log_prob.shape == value.shape == (3,)
        transition = world.advance(action)
        player.observe(transition)
        obs = transition.obs


def test_a_twin_has_the_weights_and_leaves_training_as_it_is():
    made = setup(hidden=8)
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    undisturbed, actor = RolloutActor(made, 0), RolloutActor(made, 0)
    seeds = envs.HELD_OUT_FIRST + np.arange(4)
    for _ in range(3):
        expected, found = undisturbed.rollout(weights, 1)[1], actor.rollout(weights, 1)[1]
        np.testing.assert_array_equal(expected.action, found.action)
        assert len(actor.evaluate(weights, 1, seeds, "policy", False, 0).episodes) == 4


@pytest.mark.parametrize("alone", [False, True])
def test_what_the_last_weights_read_is_computed_at_once_for_new_ones(alone):
    world = envs.make("crafter/Text", 4)
    config = PolicyConfig(network="texts", hidden=8)
    policy = build_policy(config, world.env_spec, 0)
    player, calls = TorchPlayer(policy, alone), list[list[int]]()
    real = policy.of_texts
    policy.of_texts = lambda prepared, sizes: calls.append(list(sizes)) or real(prepared, sizes)
    obs, random = world.begin(np.arange(4)), np.random.default_rng(0)
    seen = [obs, *(world.advance(random.integers(0, 139, 4)).obs for _ in range(30))]
    player.begin(world)
    told = []
    for version in (1, 2):
        player.load(get_weights(build_policy(config, world.env_spec, version)), version)
        calls.clear()
        fresh = TorchPlayer(build_policy(config, world.env_spec, version), alone)
        fresh.begin(world)
        for one in seen:
            for found, expected in zip(player.step(one)[:2], fresh.step(one)[:2], strict=True):
                np.testing.assert_allclose(found, expected, rtol=0 if alone else 1e-4, atol=0 if alone else 1e-6)
        told.append(calls.copy())
    first, second = told
    assert np.sum(first, 0).tolist() == np.sum(second, 0).tolist()  # every text once, by either weights
    assert len(second) == (len(first) if alone else len(policy.text_fields))
    assert len(first) > len(policy.text_fields)
    for version in (3, 4):  # what only weights before the last ones read is not carried along
        player.load(get_weights(build_policy(config, world.env_spec, version)), version)
        calls.clear()
        player.step(seen[0])
    assert np.sum(calls) == sum(len(np.unique(seen[0][name])) for name in policy.text_fields)
