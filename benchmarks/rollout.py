"""rollout: env steps per second of our vector env against Gymnasium's own over Minigrid's own env.

One process, 16 envs of GoToLocal, the same levels and actions on both sides, in turn. CPU time is counted, because one
thread does all the work. Every timed output is compared: images, directions, missions, rewards, ends, last
observations.

Limit: Minigrid computes a view cell by cell, about 90 of its 105 microseconds a step; a level costs 0.4 ms once in
about 50 steps, on both sides.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

import envs
from benchmarks.measure import Case, Options, Report, assert_equal, compare

CASES = ("GoToLocal", "GoToLocal/dense")
STOCK_ID = "BabyAI-GoToLocal-v0"
OUR_ID = "babyai/GoToLocal"
ENVS = 16

Step = tuple[Any, Any, Any, Any, Any]  # obs, reward, terminated, truncated, info


class SameEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Resets without a seed start the episode that our contract names, so that both sides play the same levels."""

    def __init__(self, env: gymnasium.Env[Any, Any], index: int) -> None:
        super().__init__(env)
        self.index = index
        self.root = 0
        self.episode = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is None:
            self.episode += 1
            return self.env.reset(seed=envs.episode_seed(self.root, self.index, self.episode), options=options)
        self.root, self.episode = seed, 0
        return self.env.reset(seed=seed, options=options)


def make_stock(num_envs: int = ENVS) -> SyncVectorEnv:
    """Gymnasium's vector env over Minigrid's env, without the checker, which costs time in each step."""
    import minigrid  # noqa: F401  registers the ids

    def maker(i: int) -> Callable[[], gymnasium.Env[Any, Any]]:
        return lambda: SameEpisodes(gymnasium.make(STOCK_ID, disable_env_checker=True), i)

    return SyncVectorEnv([maker(i) for i in range(num_envs)], autoreset_mode=AutoresetMode.SAME_STEP)


def play(env: Any, seed: int, actions: NDArray[np.int64]) -> tuple[float, list[Step]]:
    """CPU seconds of the steps, and their outputs. The first reset is not timed."""
    with contextlib.redirect_stdout(io.StringIO()):  # Minigrid prints the levels it rejects
        env.reset(seed=seed)
        begun = time.process_time()
        steps = [env.step(action) for action in actions]
        return time.process_time() - begun, steps


def play_dense(env: envs.VectorEnv, seed: int, actions: NDArray[np.int64]) -> float:
    """CPU seconds of the same steps through the interface that engines use. No output is kept, so none is copied."""
    with contextlib.redirect_stdout(io.StringIO()):
        env.begin(np.arange(seed, seed + env.num_envs))
        begun = time.process_time()
        for action in actions:
            env.advance(action)
        return time.process_time() - begun


def check(ours: list[Step], theirs: list[Step]) -> None:
    """Every output of every step must be equal, byte for byte.

    Raises:
        DifferentOutputs: at the first step with a difference.
    """
    for t, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        _check_observation(f"step {t}", a[0], b[0])
        assert_equal(f"step {t} reward", a[1].astype(np.float32), b[1].astype(np.float32))
        assert_equal(f"step {t} terminated", a[2], b[2])
        assert_equal(f"step {t} truncated", a[3], b[3])
        ended = np.flatnonzero(a[2] | a[3])
        for i in ended.tolist():
            _check_observation(f"step {t} env {i} last", a[4]["final_obs"][i], b[4]["final_obs"][i])


def _check_observation(what: str, ours: Any, theirs: Any) -> None:
    assert_equal(f"{what} keys", sorted(ours), sorted(theirs))
    assert_equal(f"{what} image type", ours["image"].dtype, theirs["image"].dtype)
    for key in ("image", "direction"):
        assert_equal(f"{what} {key}", ours[key], theirs[key])
    assert_equal(f"{what} mission", ours["mission"], theirs["mission"])


def check_dense(env: envs.VectorEnv, seed: int, actions: NDArray[np.int64], steps: list[Step]) -> None:
    """The dense interface must return the same as Gymnasium's interface did."""
    with contextlib.redirect_stdout(io.StringIO()):
        env.begin(np.arange(seed, seed + env.num_envs))
        for t, (action, step) in enumerate(zip(actions, steps, strict=True)):
            transition = env.advance(action)
            for key in ("image", "direction"):
                assert_equal(f"step {t} {key}", transition.obs[key], step[0][key])
            assert_equal(f"step {t} mission", tuple(env.texts.texts(transition.obs["mission"])), step[0]["mission"])
            assert_equal(f"step {t} reward", transition.reward, step[1].astype(np.float32))
            assert_equal(f"step {t} terminated", transition.terminated, step[2])
            assert_equal(f"step {t} truncated", transition.truncated, step[3])


class Match:
    """Both sides on the same episodes: either of our interfaces plays the next ones, then the peer repeats them."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.ours, self.stock = envs.make(OUR_ID, ENVS), make_stock()
        self.seed = 0
        self.actions = np.zeros((steps, ENVS), np.int64)
        self.expected: list[Step] | None = None  # outputs of our Gymnasium interface; None: the dense one played

    def next_episodes(self) -> None:
        self.seed += ENVS
        self.actions = np.random.default_rng(self.seed).integers(0, 7, (self.steps, ENVS))

    def play_ours(self) -> float:
        self.next_episodes()
        seconds, self.expected = play(self.ours, self.seed, self.actions)
        return self.actions.size / seconds

    def play_dense(self) -> float:
        self.next_episodes()
        self.expected = None
        return self.actions.size / play_dense(self.ours, self.seed, self.actions)

    def play_stock(self) -> float:
        seconds, steps = play(self.stock, self.seed, self.actions)
        if self.expected is None:
            check_dense(self.ours, self.seed, self.actions, steps)
        else:
            check(self.expected, steps)
        return self.actions.size / seconds


def run(options: Options) -> Report:
    match = Match(150 if options.quick else 600)
    for warm_up in (match.play_ours, match.play_dense, match.play_stock):
        warm_up()
    report = Report()
    for case, ours in (("GoToLocal", match.play_ours), ("GoToLocal/dense", match.play_dense)):
        if options.wants(case):
            headline = frozenset({"gymnasium_sync"}) if case == "GoToLocal" else frozenset[str]()
            peers = {"gymnasium_sync": match.play_stock}
            report.add(compare(Case("rollout", case, "env_steps", headline), ours, peers, options))
    return report
