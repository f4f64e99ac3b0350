"""babyai: env steps per second of the compiled engine against Minigrid, level by level, on one core.

    <level>/native     episodes from the compiled generator, which training uses
    <level>/exact      episodes from Minigrid's generator, made on the same core when they are needed
    symbolic           image, direction and mission of every step
    text               the same with the caption of every image

Ours is 1,024 worlds, stepped through the interface that our engines use, with texts as ids (`/gymnasium`: through
Gymnasium's interface, with texts as strings). The peer is one Minigrid env, its fastest form: a vector of envs makes
each step slower. Actions are random, every episode's end and reset is included, and CPU time is counted. Before any
timing, both sides play the first episodes of 64 worlds. Images, directions, missions, captions, rewards and ends are
compared.

Limit: writing the 147 bytes of an image takes 15 ns at 10 GB/s; finding the hidden cells takes about 60 ns. With exact
levels the limit is Minigrid's generator: 0.3 to 3 ms a level.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import envs
from benchmarks.measure import Case, Options, Report, Skip, assert_equal, compare
from benchmarks.peers.babyai_text import captions_of
from envs.babyai.levels import build

LEVELS = (
    "GoToLocal",
    "GoToRedBall",
    "GoTo",
    "GoToSeq",
    "PickupLoc",
    "PutNextLocal",
    "OpenDoor",
    "Unlock",
    "MixedTrainLocal",
    "PickUpSeqGoToLocal",
    "Text-GoToLocal-Pretraining-S20",
    "BossLevel",
)
CASES = (
    "GoToLocal/native",
    "GoToLocal/native/gymnasium",
    "GoToLocal/exact",
    *(f"{level}/{levels}" for level in LEVELS[1:] for levels in ("native", "exact")),
)
HEADLINES = (("GoToLocal", "native"), ("GoToLocal", "exact"))
QUICK_ROUNDS, QUICK_SECONDS = 2, 38.0
SECONDS, QUICK_SECONDS_A_SIDE = 0.5, 0.2
ACTIONS = 7
NATIVE_ENVS, EXACT_ENVS, CHECKED_ENVS = 1024, 128, 64


class Ours:
    """Worlds stepped continuously with random actions."""

    def __init__(self, level: str, face: str, text: bool) -> None:
        levels, _, gymnasium_face = face.partition("/")
        n = NATIVE_ENVS if levels == "native" else EXACT_ENVS
        self.env = envs.make(f"babyai/{level}", n, engine="native", levels=levels, captions=text)
        self.actions = np.random.default_rng(0).integers(0, ACTIONS, (4096, n))
        self.step: Callable[[Any], Any] = self.env.step if gymnasium_face else self.env.advance
        self.at = 0
        self.seconds = SECONDS
        if gymnasium_face:
            self.env.reset()
        else:
            self.env.begin()
        self.run(64)  # compiles, and moves the episodes' ends apart, since all worlds begin together

    def run(self, steps: int) -> float:
        """CPU seconds of this many steps of all worlds."""
        begun = time.process_time()
        for _ in range(steps):
            self.step(self.actions[self.at])
            self.at = (self.at + 1) % len(self.actions)
        return time.process_time() - begun

    def speed(self) -> float:
        """Env steps per CPU second, over about `seconds`."""
        steps, spent = 0, 0.0
        while spent < self.seconds:
            spent += self.run(16)
            steps += 16
        return steps * self.env.num_envs / spent


class Theirs:
    """One Minigrid env stepped continuously, and reset when an episode ends."""

    def __init__(self, level: str, text: bool, once: bool = True) -> None:
        self.env = build(level)
        self.text, self.once = text, once
        self.random = np.random.default_rng(0)
        self.seed = 0
        self.seconds = SECONDS

    def speed(self) -> float:
        """Env steps per CPU second, over about `seconds`; every caption is one string."""
        with contextlib.redirect_stdout(io.StringIO()):  # Minigrid prints the levels it rejects
            self.env.reset(seed=self.seed)
            begun, steps = time.process_time(), 0
            while time.process_time() - begun < self.seconds:
                for action in self.random.integers(0, ACTIONS, 64).tolist():
                    obs, _, terminated, truncated, _ = self.env.step(action)
                    if self.text:
                        ". ".join(captions_of(self.env, None if self.once else obs))
                    if terminated or truncated:
                        self.seed += 1
                        obs, _ = self.env.reset(seed=self.seed)
                        if self.text:
                            ". ".join(captions_of(self.env, None if self.once else obs))
                steps += 64
            return steps / (time.process_time() - begun)


def check(level: str, steps: int = 64) -> None:
    """Both sides play the first episodes of some seeds to their ends.

    Raises:
        DifferentOutputs: at the first difference.
    """
    ours = envs.make(f"babyai/{level}", CHECKED_ENVS, engine="native", captions=True)
    actions = np.random.default_rng(1).integers(0, ACTIONS, (steps, CHECKED_ENVS))
    obs = ours.begin(np.arange(CHECKED_ENVS))
    transitions: list[tuple[Any, Any]] = [(obs, None)]
    ended = np.full(CHECKED_ENVS, steps)
    for t, action in enumerate(actions):
        transition = ours.advance(action)
        transitions.append((transition.obs, transition))
        ended[transition.final_index] = np.minimum(ended[transition.final_index], t + 1)
    with contextlib.redirect_stdout(io.StringIO()):
        for i in range(CHECKED_ENVS):
            theirs = build(level)
            first, _ = theirs.reset(seed=i)
            _check_observation(f"{level} seed {i} start", ours, transitions[0][0], i, first, theirs)
            for t in range(1, ended[i] + 1):
                want, reward, terminated, truncated, _ = theirs.step(int(actions[t - 1, i]))
                obs, transition = transitions[t]
                what = f"{level} seed {i} step {t}"
                assert_equal(f"{what} reward", transition.reward[i], np.float32(reward))
                assert_equal(f"{what} terminated", bool(transition.terminated[i]), bool(terminated))
                assert_equal(f"{what} truncated", bool(transition.truncated[i]), bool(truncated))
                row, seen = i, obs
                if terminated or truncated:
                    row, seen = int(np.flatnonzero(transition.final_index == i)[0]), transition.final_obs
                _check_observation(what, ours, seen, row, want, theirs)


def _check_observation(what: str, ours: Any, obs: Any, row: int, theirs: Any, simulator: Any) -> None:
    assert_equal(f"{what} image", obs["image"][row], theirs["image"])
    assert_equal(f"{what} direction", int(obs["direction"][row]), int(theirs["direction"]))
    assert_equal(f"{what} mission", ours.texts[int(obs["mission"][row])], theirs["mission"])
    caption = ". ".join(captions_of(simulator, theirs)) or "You see nothing in front"
    assert_equal(f"{what} caption", ours.texts[int(obs["caption"][row])], caption)


def run(options: Options) -> Report:
    report = Report()
    for level in LEVELS:
        headline = level == "GoToLocal"
        for face in ("native", "exact", "native/gymnasium"):
            case = f"{level}/{face}"
            if case not in CASES or not options.wants(case):
                continue
            if options.quick and not headline and face == "exact":
                report.skips.append(Skip("babyai", case, "symbolic", "minigrid", "left out of --quick"))
                continue
            if face == "native":
                check(level)
            report.add(symbolic(level, face, options))
            if headline or not options.quick:
                report.add(text(level, face, options))
    return report


def symbolic(level: str, face: str, options: Options) -> Report:
    headline = frozenset({"minigrid"} if (level, face) in HEADLINES else ())
    case = Case("babyai", f"{level}/{face}", "symbolic", headline)
    return _compare(case, Ours(level, face, False), {"minigrid": Theirs(level, False)}, options)


def text(level: str, face: str, options: Options) -> Report:
    headline = frozenset({"minigrid_text"} if (level, face) == HEADLINES[0] else ())
    notes = {
        "minigrid_text": "each caption walks the agent's view once more, as the published one does",
        "minigrid_text_once": "each caption is read off the image that the step returned",
    }
    case = Case("babyai", f"{level}/{face}", "text", headline, notes=notes if level == "GoToLocal" else {})
    peers = {"minigrid_text": Theirs(level, True), "minigrid_text_once": Theirs(level, True, once=False)}
    return _compare(case, Ours(level, face, True), peers, options)


def _compare(case: Case, ours: Ours, peers: dict[str, Theirs], options: Options) -> Report:
    ours.seconds = QUICK_SECONDS_A_SIDE if options.quick else SECONDS
    for side in peers.values():
        side.seconds = ours.seconds
    return compare(case, ours.speed, {peer: side.speed for peer, side in peers.items()}, options)
