"""What a run's potential says along recorded episodes is what it says of each state by itself, and changes nothing."""

import io
import json

import numpy as np
import pytest
from PIL import Image

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor, trace
from actors.evaluate import play
from actors.players import Acted, Player
from actors.wrappers import shaping
from cluster import run as controller
from cluster.config.tree import compose
from learner import potentials
from learner.group import build_policy, get_weights
from learner.hashing import uniform
from learner.models import PolicyConfig
from learner.potentials import Potential, PotentialSetup, ShapingConfig
from learner.windows import NO_ACTION, Windows

GAMMA, SCALE, WINDOW, N, RECORDED = 0.9, 0.25, 3, 6, 4
TOY = ("toy/Line", {})
BABYAI = ("babyai/GoToLocal", {"captions": True, "distance": True, "max_steps": 7, "levels": "native"})
NEAR = "def potential(observations, actions):\n    return 1.0 * observations[-1][3][5][0] + 0.125 * actions[-1]\n"


class Woven(Potential):
    """Tells every window from every other, texts by what is written: all observations and actions of it count."""

    def __init__(self, setup):
        self.fields = ("caption", "mission") if "caption" in setup.fields else ("position",)
        self.texts = setup.texts

    def phi(self, windows):
        seen = [windows.obs(name) for name in self.fields]
        seen = [self.texts.hashes(ids) for ids in seen] if "caption" in self.fields else seen
        entries = np.concatenate([*seen, windows.actions], 1)
        return uniform((entries + 2) @ 7 ** np.arange(entries.shape[1])).astype(np.float32)


@pytest.fixture(params=[("woven", TOY), ("woven", BABYAI), ("oracle", BABYAI), ("code", BABYAI), ("random", TOY)])
def shaped(request, monkeypatch):
    """The part of a configuration, and the world."""
    name, world = request.param
    if name == "woven":
        monkeypatch.setattr(potentials, "potential", lambda _: Woven)
        name = "random"
    options = {"program": NEAR} if name == "code" else {}
    chosen = ShapingConfig(**{"potential": name, "window": WINDOW, "scale": SCALE} | options)
    return shaping.Config(shaping=chosen, discount=GAMMA, seed=7), world


class Scripted(Player):
    """Acts as it is told, step by step."""

    def __init__(self, actions):
        self.actions = iter(actions)

    def act(self, obs, state, random):
        nothing = np.zeros(N, np.float32)
        return Acted(next(self.actions), nothing, nothing, None)


def lived(part, world, seeds, actions):
    """Of the first episode of each env: phi of every state, each window put together and judged by itself; rewards; and
    whether it terminated."""
    env = envs.make(world[0], N, **world[1])
    setup = PotentialSetup(part.shaping, env.env_spec.fields, part.seed, env.texts, env.env_spec.action_names)
    potential = potentials.potential(part.shaping.potential)(setup)
    obs = env.begin(seeds)
    seen = [[{name: obs[name][i].copy() for name in potential.fields}] for i in range(N)]
    rewards, terminated = [[] for _ in range(N)], [None] * N
    for action in actions:
        t = env.advance(action)
        for i in (i for i in range(N) if terminated[i] is None):
            ended = np.flatnonzero(t.final_index == i)
            obs, row = (t.final_obs, ended[0]) if len(ended) else (t.obs, i)
            seen[i].append({name: obs[name][row].copy() for name in potential.fields})
            rewards[i].append(t.reward[i])
            terminated[i] = bool(t.terminated[i]) if len(ended) else None

    def judged(i, step):
        steps = [max(step - back, 0) for back in range(WINDOW - 1, -1, -1)]
        obs = {name: np.stack([seen[i][s][name] for s in steps])[None] for name in potential.fields}
        done = [actions[s][i] if s >= 0 else NO_ACTION for s in range(step - WINDOW + 1, step)]
        return potential.phi(Windows.of(obs, np.array([done])))[0] * np.float32(SCALE)

    phi = [np.array([judged(i, step) for step in range(len(seen[i]))], np.float32) for i in range(N)]
    return phi, rewards, terminated


@pytest.mark.parametrize("steps", [1, 4, 128])
def test_phi_along_an_episode_is_that_of_its_windows_by_hand(shaped, steps, monkeypatch):
    """However many steps are judged together."""
    monkeypatch.setattr(trace, "STEPS", steps)
    part, world = shaped
    seeds = envs.HELD_OUT_FIRST + np.arange(N)
    actions = np.random.default_rng(0).integers(3, size=(200, N))
    phi, rewards, terminated = lived(part, world, seeds, actions)
    env = envs.make(world[0], N, **world[1])
    played = play(env, Scripted(actions), seeds, record=RECORDED, shaped=part)
    assert len(played.recordings) == RECORDED
    for i, recording in enumerate(played.recordings):
        found = recording.trace
        np.testing.assert_array_equal(found.phi, phi[i])
        np.testing.assert_array_equal(found.reward, rewards[i])
        after = found.phi[1:].astype(np.float64)
        after[-1] *= not terminated[i]
        np.testing.assert_allclose(found.paid, GAMMA * after - found.phi[:-1], atol=1e-6)
        assert len(found.paid) == recording.length == len(found.phi) - 1
        with Image.open(io.BytesIO(recording.gif)) as gif:
            assert gif.n_frames == recording.length + 1
    assert len(np.unique(np.concatenate(phi[:RECORDED]))) > 1
    if world is TOY:
        assert len({recording.length for recording in played.recordings}) > 1
        assert set(terminated[:RECORDED]) == {True}


def test_what_the_world_alone_tells_is_minus_the_distance():
    chosen = ShapingConfig(potential="oracle", scale=1.0)
    env, seeds = envs.make(BABYAI[0], N, **BABYAI[1]), envs.HELD_OUT_FIRST + np.arange(N)
    distance = env.begin(seeds)["distance"][:, 0].copy()
    part = shaping.Config(shaping=chosen, discount=GAMMA, seed=0)
    played = play(env, Scripted(np.ones((20, N), np.int64)), seeds, record=2, shaped=part)
    assert [recording.trace.phi[0] for recording in played.recordings] == (-distance[:2]).tolist()


def actor(part):
    config = PolicyConfig(network="mlp", hidden=8)
    stack = {"shaping": part} if part else {}
    return RolloutActor(
        ActorSetup(*TOY, envs.spec("toy/Line"), ActorsConfig(n=1, envs=4, steps=4), config, 5, True, wrappers=stack), 0
    )


@pytest.mark.parametrize("greedy", [True, False])
def test_an_evaluation_is_the_same_with_it_and_without(greedy):
    part = shaping.Config(shaping=ShapingConfig(potential="random"), discount=GAMMA, seed=7)
    seeds, made = envs.HELD_OUT_FIRST + np.arange(8), actor(part)
    weights = get_weights(build_policy(made.setup.policy, made.setup.spec, 0))
    shown, plain = (a.evaluate(weights, 1, seeds, "policy", greedy, 2) for a in (made, actor(None)))
    for name, column in vars(plain.episodes).items():
        np.testing.assert_array_equal(column, getattr(shown.episodes, name))
    assert shown.report == plain.report == {}
    assert all(recording.trace for recording in shown.recordings)
    assert not any(recording.trace for recording in plain.recordings)


def test_where_nothing_is_recorded_no_potential_is_made(monkeypatch):
    part = shaping.Config(shaping=ShapingConfig(potential="random"), discount=GAMMA, seed=7)
    made = actor(part)
    weights = get_weights(build_policy(made.setup.policy, made.setup.spec, 0))
    monkeypatch.setattr(shaping, "Watch", None)
    assert len(made.evaluate(weights, 1, envs.HELD_OUT_FIRST + np.arange(4), "policy", True, 0).episodes) == 4
    with pytest.raises(TypeError):
        made.evaluate(weights, 1, envs.HELD_OUT_FIRST + np.arange(4), "policy", True, 1)


WORDS = ["env=toy/Line", "cluster=inline", "actors.envs=4", "actors.steps=8", "learner.minibatch=16"]
WORDS += ["learner.env_steps=64", "evaluate.every=0", "evaluate.episodes=6", "evaluate.videos=3", "seed=3"]
WORDS += ["method.shaping.scale=0.5"]


@pytest.mark.parametrize("potential", ["random", "none"])
def test_a_run_leaves_it_beside_its_videos(potential, tmp_path):
    words = [*WORDS, f"run.folder={tmp_path}", "run.name=a", f"method.shaping.potential={potential}"]
    assert controller.run(compose(words)) == 0
    videos = json.loads((tmp_path / "a/stages/evaluate/results.json").read_text())["videos"]
    assert len(videos) == 3
    if potential == "none":
        assert not any("trace" in video for video in videos)
        assert not list((tmp_path / "a/videos").glob("*.json"))
        return
    made = potentials.potential("random")(PotentialSetup(ShapingConfig(), envs.spec("toy/Line").fields, 3))
    places = Windows.of({"position": np.arange(3)[:, None]}, np.zeros((3, 0), np.int64))
    of_place = (made.phi(places) * np.float32(0.5)).tolist()
    start = envs.make("toy/Line", 3).begin(np.array([video["seed"] for video in videos]))["position"]
    for video, place in zip(videos, start.tolist(), strict=True):
        found = json.loads((tmp_path / "a" / video["trace"]).read_text())
        assert set(found["phi"]) <= set(of_place)
        assert found["phi"][0] == of_place[place]
        assert len(found["phi"]) - 1 == len(found["paid"]) == len(found["reward"]) == video["length"]
        assert sum(found["reward"]) == pytest.approx(video["return"])
