"""crafter: env steps per CPU second of the compiled engine against upstream's `crafter.Env`, on one core.

    image    a picture of 64 x 64 pixels of every step
    text     sentences of every step: what is in view and faced, what is held, how the player feels

Ours is 512 worlds, stepped through the interface that our engines use, with texts as ids. The peer is one env, its
only form; Numba, which its landscapes use where it is installed, is installed. For text it draws neither pictures nor
the semantic map, and its sentences are made from its state by the loop that the benchmark `ellm` uses. Actions are
random, the peer plays whole episodes with their resets, and CPU time is counted.

Before any timing both sides play the first episodes of 16 worlds; pictures, sentences, rewards and ends are compared.
Upstream draws night noise from the numbers that move the world, and which creature a full chunk loses follows from
memory addresses (docs/crafter.md): for this check alone, `envs.crafter.reference` sets both right. The peer that is
timed is unchanged.

Limit: a picture is 12,288 bytes, which at 10 GB/s takes 1.2 us to write, and in the dark 3,969 random numbers.
"""

from __future__ import annotations

import time
from typing import Any

import crafter
import numpy as np

import envs
from benchmarks.measure import Case, Options, Report, assert_equal, compare
from benchmarks.peers.ellm_world import World
from envs.crafter.reference import Simulator
from envs.crafter.rules import CRAFTER, GAME_ACTIONS

CASES = ("image", "text")
FIELDS = {"image": ["pixels"], "text": ["view", "items", "feelings"]}
ENVS = 512
CHECKED, CHECKED_STEPS = 16, 320  # it is dark in the last of these steps
SECONDS, QUICK_SECONDS_A_SIDE = 3.0, 1.0
QUICK_ROUNDS = 2


class Ours:
    """Worlds stepped continuously with random actions."""

    def __init__(self, case: str, seconds: float) -> None:
        self.env = envs.make("crafter/Standard", ENVS, observe=FIELDS[case])
        self.actions = np.random.default_rng(0).integers(0, len(GAME_ACTIONS), (1024, ENVS))
        self.seconds, self.at = seconds, 0
        self.env.begin()
        for _ in range(300):  # compiles, and moves the episodes' ends and nights apart, since all worlds begin together
            self.step()

    def step(self) -> None:
        self.env.advance(self.actions[self.at])
        self.at = (self.at + 1) % len(self.actions)

    def speed(self) -> float:
        """Env steps per CPU second, over about `seconds`."""
        begun, steps = time.process_time(), 0
        while time.process_time() - begun < self.seconds:
            self.step()
            steps += self.env.num_envs
        return steps / (time.process_time() - begun)


class Told(World):
    """Sentences of one of upstream's environments, which is only drawn when asked for a picture."""

    def __init__(self, simulator: crafter.Env) -> None:
        self.simulator = simulator

    def look(self) -> tuple[str, str]:
        self.world, self.player = self.simulator._world, self.simulator._player  # a reset makes a new player
        return super().look()


class Theirs:
    """One of upstream's environments, reset when an episode ends."""

    def __init__(self, case: str, seconds: float) -> None:
        self.env = crafter.Env(seed=0)
        if case == "text":
            self.env._obs = self.env._sem_view = tuple  # nobody looks
        self.look = Told(self.env).look if case == "text" else tuple
        self.random, self.seconds = np.random.default_rng(0), seconds

    def speed(self) -> float:
        """Env steps per CPU second, over whole episodes of about `seconds`."""
        begun, steps = time.process_time(), 0
        while time.process_time() - begun < self.seconds:
            self.env.reset()
            self.look()
            done = False
            while not done:
                _, _, done, _ = self.env.step(int(self.random.integers(len(GAME_ACTIONS))))
                self.look()
                steps += 1
        return steps / (time.process_time() - begun)


def check(case: str) -> None:
    """Both sides play the first episodes of some seeds, to their ends or for `CHECKED_STEPS` steps.

    Raises:
        DifferentOutputs: at the first difference.
    """
    ours = envs.make("crafter/Standard", CHECKED, observe=FIELDS[case])
    theirs = [Simulator(CRAFTER) for _ in range(CHECKED)]
    for seed, simulator in enumerate(theirs):
        simulator.begin(seed)
    obs = ours.begin(np.arange(CHECKED))
    running = set(range(CHECKED))
    for i in running:
        _compare(case, f"seed {i} start", ours, obs, i, theirs[i])
    for t, actions in enumerate(np.random.default_rng(1).integers(0, len(GAME_ACTIONS), (CHECKED_STEPS, CHECKED))):
        got = ours.advance(actions)
        for i in sorted(running):
            what = f"crafter seed {i} step {t + 1}"
            _, reward, done, _ = theirs[i].step(int(actions[i]))
            assert_equal(f"{what} reward", got.reward[i], np.float32(reward))
            assert_equal(f"{what} end", bool(got.terminated[i] | got.truncated[i]), bool(done))
            row, seen = (int(np.flatnonzero(got.final_index == i)[0]), got.final_obs) if done else (i, got.obs)
            _compare(case, what, ours, seen, row, theirs[i])
            if done:
                running.remove(i)


def _compare(case: str, what: str, ours: Any, obs: Any, row: int, theirs: Simulator) -> None:
    if case == "image":
        assert_equal(f"{what} picture", obs["pixels"][row], theirs.picture(64))
    else:
        said = ". ".join(ours.texts[int(obs[field][row])] for field in FIELDS[case])
        assert_equal(f"{what} sentences", said, Told(theirs).look()[1])


def run(options: Options) -> Report:
    report = Report()
    seconds = QUICK_SECONDS_A_SIDE if options.quick else SECONDS
    for name in filter(options.wants, CASES):
        check(name)
        case = Case("crafter", name, "env_steps", frozenset({"crafter"}))
        report.add(compare(case, Ours(name, seconds).speed, {"crafter": Theirs(name, seconds).speed}, options))
    return report
