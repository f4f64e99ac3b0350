"""What stands beside a world: found by name, stacked in order, and a further one is one module."""

import importlib
import sys

import numpy as np
import pytest

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor, wrappers
from actors.wrappers import Setting
from cluster.config.tree import compose
from envs.api import Wrapper
from envs.config import Part
from learner.group import build_policy, get_weights
from learner.models import PolicyConfig

CLOCK = '''
"""Tells how long an episode has lasted, pays each step, and the whole chunk."""

import dataclasses

import numpy as np

from envs.api import Field, Wrapper
from envs.config import Part

after = ("goals", "history")
training_only = False


class Config(Part):
    """A clock."""

    worth: float = 0.5
    """Of a step."""


def part(config):
    clock = getattr(config.method, "clock", None)
    return clock if clock and clock.worth > 0 else None


def spec(config, spec):
    return dataclasses.replace(spec, fields=spec.fields | {"clock": Field("vector", (1,))})


def make(config, env, setting):
    return Clock(env, config.worth)


class Clock(Wrapper):
    def __init__(self, env, worth):
        super().__init__(env)
        self.worth, self.steps, self.played = worth, np.zeros((env.num_envs, 1), np.float32), 0

    def begin(self, seeds=None):
        self.steps[:] = 0
        return self.env.begin(seeds) | {"clock": self.steps.copy()}

    def advance(self, actions):
        transition = self.env.advance(actions)
        self.steps += 1
        self.played += len(actions)
        transition.rewards["clock"] = np.full(len(actions), self.worth, np.float32)
        transition.final_obs["clock"] = self.steps[transition.final_index]
        self.steps[transition.final_index] = 0
        transition.obs["clock"] = self.steps.copy()
        return transition

    def state(self):
        return self.env.state() | self._named({"steps": self.steps.copy()})

    def restore(self, state):
        obs = self.env.restore(state)
        self.steps = self._own(state)["steps"].copy()
        return obs | {"clock": self.steps.copy()}

    def finish(self, chunk):
        self.env.finish(chunk)
        chunk.rewards["shaping"] = np.cumsum(chunk.rewards["clock"], 0)

    def report(self):
        played, self.played = self.played, 0
        return self.env.report() | {self.name: {"steps": [played]}}
'''


class Method(Part):
    """A method with a further part."""

    clock: Part


@pytest.fixture
def clock(tmp_path, monkeypatch):
    """The module of a new wrapper, beside ours."""
    (tmp_path / "clock.py").write_text(CLOCK)
    monkeypatch.setattr(wrappers, "__path__", [*wrappers.__path__, str(tmp_path)])
    yield importlib.import_module("actors.wrappers.clock")
    del sys.modules["actors.wrappers.clock"]
    del wrappers.clock


def setup(stack, **policy):
    spec = wrappers.seen(stack, envs.spec("toy/Line"))
    config = PolicyConfig(network="mlp", hidden=8, **policy)
    return ActorSetup("toy/Line", {}, spec, ActorsConfig(n=1, envs=4, steps=12), config, 5, True, None, stack)


def test_a_new_wrapper_is_one_module_and_the_loop_stays_as_it_is(clock):
    made = setup({"clock": clock.Config(worth=0.25)}, reads=["position", "clock"])
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    actor = RolloutActor(made, 0)
    summary, chunk = actor.rollout(weights, 1)
    assert chunk.obs["clock"].shape == (13, 4, 1)
    ends = dict(zip(map(tuple, chunk.final_index.tolist()), chunk.final_obs["clock"][:, 0], strict=True))
    assert ends
    steps = np.zeros(4)
    for t in range(12):
        np.testing.assert_array_equal(chunk.obs["clock"][t, :, 0], steps)
        steps += 1
        for n in range(4):
            if (t, n) in ends:
                assert ends[t, n] == steps[n]
                steps[n] = 0
    assert (chunk.rewards["clock"] == 0.25).all()
    np.testing.assert_allclose(chunk.rewards["shaping"][-1], 3.0)
    assert set(chunk.rewards) == {"env", "clock", "shaping"}
    assert summary.report == {"clock": {"steps": [48]}}

    _, lost = actor.rollout(weights, 1)
    _, again = RolloutActor(made, 0, 1, summary.state).rollout(weights, 1)
    for name, column in lost.obs.items():
        np.testing.assert_array_equal(column, again.obs[name])
    np.testing.assert_array_equal(lost.action, again.action)


def test_evaluation_has_the_same_stack_without_what_only_training_pays(clock, monkeypatch):
    made = setup({"clock": clock.Config()}, reads=["position", "clock"])
    weights = get_weights(build_policy(made.policy, made.spec, 0))
    actor = RolloutActor(made, 0)
    seeds = envs.HELD_OUT_FIRST + np.arange(4)
    played = actor.evaluate(weights, 1, seeds, "policy", True, 0)
    assert played.report["clock"]["steps"][0] >= played.episodes.length.sum()
    monkeypatch.setattr(clock, "training_only", True)
    assert actor.evaluate(None, 0, seeds, "random", True, 0).report == {}


def test_a_stack_follows_from_the_configuration(clock):
    config = compose(["method=glam", "env=babyai/GoToLocal", "env.captions=true"])
    assert list(wrappers.chosen(config)) == ["history"]

    def with_clock(**options):
        return config.model_copy(update={"method": Method(clock=clock.Config(**options))})

    assert wrappers.chosen(with_clock()) == {"history": config.policy, "clock": clock.Config()}
    seen = with_clock().spec
    assert [name for name in seen.fields if name in ("history", "clock")] == ["history", "clock"]
    assert list(wrappers.chosen(with_clock(worth=0.0))) == ["history"]


def test_wrappers_stand_in_the_order_that_they_ask_for(clock):
    order = wrappers.names()
    assert set(order) >= {"goals", "task", "history", "clock"}
    for name in order:
        for nearer in wrappers.module(name).after:
            assert order.index(nearer) < order.index(name)
    world = envs.make("babyai/GoToLocal", 2, captions=True)
    policy = PolicyConfig(network="language_model", prompt={"observations": 2})
    env = wrappers.wrap(world, {"clock": clock.Config(), "history": policy}, Setting("test"))
    assert (env.name, env.env.name) == ("clock", "history")
    assert env.env.env is world


@pytest.mark.parametrize("name", wrappers.names())
def test_every_wrapper_publishes_its_face(name):
    module = wrappers.module(name)
    assert issubclass(module.Config, Part)
    assert isinstance(module.training_only, bool)
    assert isinstance(module.after, tuple)
    assert all(callable(each) for each in (module.part, module.spec, module.make))


def test_a_wrapper_that_changes_nothing_is_its_world():
    plain, wrapped = envs.make("toy/Line", 3, 1), Wrapper(envs.make("toy/Line", 3, 1))
    np.testing.assert_array_equal(plain.begin()["position"], wrapped.begin()["position"])
    for _ in range(5):
        one, other = plain.advance(np.array([0, 1, 2])), wrapped.advance(np.array([0, 1, 2]))
        np.testing.assert_array_equal(one.reward, other.reward)
        np.testing.assert_array_equal(plain.episode, wrapped.episode)
    for name, value in plain.state().items():
        np.testing.assert_array_equal(value, wrapped.state()[name])
    assert wrapped.report() == {} == wrapped.seconds()
    assert wrapped.goals_of(0) is None
