"""The compiled engine with exact levels is Minigrid: every number and every sentence, over episodes' ends."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import envs
from envs.babyai import Expert, describe, names
from envs.babyai.grammar import NOTHING
from envs.babyai.levels import build
from envs.babyai.reference import cells_to_target
from envs.native.babyai import motion
from envs.native.babyai.layout import empty_rows
from envs.native.babyai.packing import pack

WALK = np.array([0.15, 0.15, 0.3, 0.12, 0.1, 0.15, 0.03])  # meets, moves and opens things


def told(simulator, obs):
    """What Minigrid shows, and what the reference engine tells beside it."""
    return obs | {"cells": cells_to_target(simulator)}


class Reference:
    """Plain Minigrid environments, one an env, reset where an episode ends, to the seed that the contract names."""

    def __init__(self, level, seeds):
        self.simulators = [build(level) for _ in seeds]
        self.roots, self.episode = list(seeds), [0] * len(seeds)
        self.obs = [told(s, s.reset(seed=seed)[0]) for s, seed in zip(self.simulators, seeds, strict=True)]

    def step(self, actions):
        """Rewards, ends, and the last observation of each env whose episode ended."""
        rewards, terminated, truncated, last = [], [], [], {}
        for i, (simulator, action) in enumerate(zip(self.simulators, actions.tolist(), strict=True)):
            obs, reward, *ends, _ = simulator.step(action)
            self.obs[i] = told(simulator, obs)
            rewards.append(np.float32(reward))
            terminated.append(bool(ends[0]))
            truncated.append(bool(ends[1]))
            if any(ends):
                last[i] = self.obs[i]
                self.episode[i] += 1
                seed = envs.episode_seed(self.roots[i], i, self.episode[i])
                self.obs[i] = told(simulator, simulator.reset(seed=seed)[0])
        return rewards, terminated, truncated, last


def assert_same(env, obs, expected):
    """Observations of our env are these of Minigrid, with the captions of `describe`."""
    images = np.stack([o["image"] for o in expected])
    assert np.array_equal(obs["image"], images)
    assert obs["direction"].tolist() == [o["direction"] for o in expected]
    assert env.texts.texts(obs["mission"]) == [o["mission"] for o in expected]
    assert obs["distance"][:, 0].tolist() == [np.float32(min(o["cells"] / env.room, 1)) for o in expected]
    captions = [". ".join(sentences) or NOTHING["en"] for sentences in describe(images)]
    assert env.texts.texts(obs["caption"]) == captions


def play_beside(level, seeds, steps):
    env = envs.make(f"babyai/{level}", len(seeds), levels="exact", captions=True, distance=True, language="en")
    reference = Reference(level, seeds)
    actions = np.random.default_rng(sum(map(ord, level)))
    obs = env.begin(np.array(seeds))
    for _ in range(steps):
        assert_same(env, obs, reference.obs)
        taken = actions.choice(7, len(seeds), p=WALK)
        transition = env.advance(taken)
        rewards, terminated, truncated, last = reference.step(taken)
        assert transition.reward.tolist() == rewards
        assert transition.terminated.tolist() == terminated
        assert transition.truncated.tolist() == truncated
        assert transition.final_index.tolist() == list(last)
        if last:
            assert_same(env, transition.final_obs, list(last.values()))
        obs = transition.obs
    return env


@pytest.mark.parametrize("level", names())
def test_is_minigrid(level):
    play_beside(level, seeds=range(3), steps=40)


@pytest.fixture(scope="module")
def long_plays(request):
    """The levels that were asked for, played on all cores: {level: its play}. Most of the time is Minigrid's."""
    asked = [i for i in request.session.items if getattr(i, "originalname", "") == "test_is_minigrid_for_long"]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        yield {level: pool.submit(play_long, level) for level in (item.callspec.params["level"] for item in asked)}
        pool.shutdown(cancel_futures=True)


def play_long(level):
    play_beside(level, seeds=range(200), steps=200)


@pytest.mark.slow
@pytest.mark.parametrize("level", names())
def test_is_minigrid_for_long(level, long_plays):
    long_plays[level].result()


def test_is_minigrid_over_many_episodes():
    env = play_beside("GoToObjS4", seeds=range(7, 10), steps=120)
    assert (env.episode >= 3).all()


def follow_bot(level, seeds, noise=0.1, steps=300):
    """Episodes that get somewhere: Minigrid's bot, with some random actions; both verifiers after each step."""
    simulator = build(level)
    rows = empty_rows(1, simulator.width, simulator.height)
    reward, terminated, truncated = np.zeros(1, np.float32), np.zeros(1, bool), np.zeros(1, bool)
    solved = failed = 0
    for seed in seeds:
        env = envs.make(f"babyai/{level}", 1, engine="minigrid")
        env.begin(np.array([seed]))
        pack(env.simulator(0), rows[0])
        expert, random = Expert(), np.random.default_rng(seed)
        for step in range(steps):
            action = expert.act(env)
            if random.random() < noise:
                action = random.integers(0, 6, 1)
            limit = np.array([env.simulator(0).max_steps], np.int32)
            motion.advance(rows, np.array([step], np.int32), limit, action, 6, reward, terminated, truncated)
            transition = env.advance(action)
            assert transition.reward == reward, (seed, step)
            assert (transition.terminated[0], transition.truncated[0]) == (terminated[0], truncated[0]), (seed, step)
            if terminated or truncated:
                solved += reward[0] > 0
                failed += terminated[0] and reward[0] == 0
                break
    return solved, failed


@pytest.mark.parametrize("level", ["PutNextLocal", "BossLevel", "MixedTrainLocal", "UnlockPickup", "SynthSeq"])
def test_missions_are_accomplished_when_minigrid_says_so(level):
    solved, failed = follow_bot(level, range(5))
    assert solved >= 4
    assert failed == 0


def test_strict_missions_fail_when_minigrid_says_so():
    solved, failed = follow_bot("OpenDoorsOrderN4Debug", range(12))
    assert solved + failed == 12
    assert failed >= 3


@pytest.mark.slow
@pytest.mark.parametrize("level", names())
def test_missions_are_accomplished_when_minigrid_says_so_everywhere(level):
    follow_bot(level, range(20))


# ---- the same streams however they are cut ---------------------------------------------------------------------------


def stream(levels, n, first=0, steps=90, only=None, level="GoToLocal"):
    """What envs `only` of n see and get, by actions that depend on the global index of an env."""
    env = envs.make(f"babyai/{level}", n, 5, first, levels=levels, captions=True)
    only = np.arange(n) if only is None else only
    actions = np.random.default_rng(3).integers(0, 7, (steps, 5000))[:, first : first + n]
    obs = env.begin()
    seen = []
    for action in actions:
        t = env.advance(action)
        said = [env.texts.texts(obs[name][only]) for name in ("mission", "caption")]
        got = [column[only].tolist() for column in (t.reward, t.terminated, t.truncated)]
        seen.append((obs["image"][only].tobytes(), *said, *got))
        obs = t.obs
    return seen


@pytest.mark.parametrize("levels", ["native", "exact"])
def test_one_env_or_thousands_are_the_same_streams(levels):
    steps = 90 if levels == "native" else 20
    few = stream(levels, 3, first=2, steps=steps)
    assert stream(levels, 5, steps=steps, only=np.array([2, 3, 4])) == few
    many = 4096 if levels == "native" else 64
    assert stream(levels, many, steps=steps, only=np.array([2, 3, 4])) == few
    one_by_one = [stream(levels, 1, first=i, steps=steps) for i in (2, 3, 4)]
    assert [tuple(map(_joined, zip(*parts, strict=True))) for parts in zip(*one_by_one, strict=True)] == few


def _joined(parts):
    return b"".join(parts) if isinstance(parts[0], bytes) else [item for part in parts for item in part]


@pytest.mark.slow
def test_thousands_of_exact_envs_are_the_same_streams():
    few = stream("exact", 3, first=4093, steps=70)
    assert stream("exact", 4096, steps=70, only=np.array([4093, 4094, 4095])) == few


@pytest.mark.parametrize("levels", ["native", "exact"])
def test_a_restored_env_goes_on_as_if_nothing_had_been(levels):
    def make_env():
        return envs.make("babyai/MixedTrainLocal", 6, 1, levels=levels, captions=True)

    env, other = make_env(), make_env()
    actions = np.random.default_rng(0).choice(7, (150, 6), p=WALK)
    env.begin(np.arange(6) + 100)
    for action in actions[:100]:
        env.advance(action)
    obs = other.restore(env.state())
    for name, value in env._observe(slice(None)).items():
        texts = name in ("mission", "caption")
        assert np.array_equal(obs[name], value) or texts
        assert not texts or other.texts.texts(obs[name]) == env.texts.texts(value)
    for action in actions[100:]:
        a, b = env.advance(action), other.advance(action)
        assert np.array_equal(a.obs["image"], b.obs["image"])
        assert np.array_equal(a.reward, b.reward)
        assert np.array_equal(a.episodes.seed, b.episodes.seed)
        assert env.texts.texts(a.obs["mission"]) == other.texts.texts(b.obs["mission"])
