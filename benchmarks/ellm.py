"""ellm: env steps per second with learning included, against the published design of ELLM as one loop.

Crafter in words with 139 actions, goals from a language model, rewards by meaning, and a double dueling 3-step DQN
with layers of 512; 16 rows are replayed for each env step. CPU only. Both sides play 5,000 steps before they learn,
and timing starts after that.

    text_with_llm_latency/minibatch_64    a question to the model takes 200 ms; each situation is asked about once
    text/minibatch_64                     a question takes no time
    .../minibatch_512                     as many rows, in minibatches of 512
    .../after_50000                       timing starts after 50,000 steps, when most situations are known
    pixels/minibatch_64                   pictures of 64 x 64 instead of the state in words
    to_4_achievements                     seconds from the start of a run until its agent unlocks 4 achievements an
                                          episode in held-out worlds: ours as `ellm_crafter_small`, the median of five
                                          seeds; the peer (`peers/ellm_climb.py`) once, for 40 minutes at most. Its
                                          note compares achievements after equal env steps

The peer is `peers/ellm_loop.py`: one world, one process, all parts in sequence, with the same minibatch, width and
number of updates. As `published_loop_drawing` it draws two unused pictures in each step, as published; otherwise it
draws only what is used. `published_loop_64` keeps minibatches of 64 beside our 512. Before any timing, both sides play
the same worlds with the same actions: situations, states, achievements, goals and ends must be equal.

Limit: arithmetic of the gradient steps, 16 rows an env step forward and backward. For it both sides have one torch
thread or one for each core, and float32 or, if the processor can, bfloat16 products, whichever is best. In ours,
waiting, worlds and captions overlap with it.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import stats

import envs
from actors.wrappers.goals import Goals
from benchmarks.measure import (
    OWN,
    Case,
    Options,
    OursFailed,
    OutOfTime,
    PeerFailed,
    Report,
    Run,
    Skip,
    assert_equal,
    compare,
    run_peer,
)
from benchmarks.peers.ellm_world import EVENTS, Payment, World
from benchmarks.train import PATIENCE, WARM_UP_UPDATES, Rows, better_of, run_ours, steady
from envs.crafter.rules import SENSIBLE
from learner.goals import GoalsConfig
from learner.optim.precision import has_bfloat16
from llm_service.embedding import embed_one

EXPERIMENT = ("method=ellm", "env=crafter", "env.id=crafter/Text", "env.success=loose")  # the same words as the peer's
ACTORS = ("actors.n=1", "actors.envs=32")  # one core acts, another learns
LATENCY_S = 0.2
MINIBATCH, LARGE_MINIBATCH = 64, 512
PER_STEP = 16  # rows replayed for an env step
ONE, A_CORE = "1", "one a core"  # torch threads
BFLOAT16 = ", bfloat16"
START, LATE_START = 5000, 50_000
CHECKED_WORLDS, CHECKED_STEPS = 4, 200
SECONDS, QUICK_WINDOW = 20.0, 3.0  # length of a measured window
QUICK_SECONDS, QUICK_ROUNDS, QUICK_START = 110.0, 1, 1000


@dataclass(frozen=True)
class Setting:
    """One case, for both sides."""

    latency_s: float = 0.0
    minibatch: int = MINIBATCH
    start: int = START
    pixels: bool = False
    headline: bool = False

    def ours(self, threads: int = 1, autocast: str = "none") -> list[str]:
        """The arguments of a run whose learner has this many torch threads, and these products."""
        words = [
            *EXPERIMENT,
            *ACTORS,
            # Between two updates the learner waits some milliseconds, a tenth of an update of eight large minibatches.
            f"actors.steps={16 if self.minibatch > MINIBATCH else 8}",
            f"llm.latency_s={self.latency_s}",
            f"learner.minibatch={self.minibatch}",
            f"learner.threads={threads}",
            f"learner.autocast={autocast}",
            f"learner.dqn.samples_per_insert={PER_STEP}",
            f"learner.dqn.start_steps={self.start}",
            "learner.env_steps=100000000",
            "evaluate.every=0",
            "cluster.dashboard=false",
        ]
        return words + ["env.observe=[pixels]", "learner.dqn.capacity=50000"] * self.pixels

    def theirs(self, *words: str) -> list[str]:
        """The arguments of the peer's script."""
        start = ["--start", str(self.start), "--latency", str(self.latency_s)]
        return start + ["--pixels"] * self.pixels + list(words)


SETTINGS = {
    "text_with_llm_latency/minibatch_64": Setting(LATENCY_S, headline=True),
    "text/minibatch_64": Setting(headline=True),
    "text_with_llm_latency/minibatch_512": Setting(LATENCY_S, LARGE_MINIBATCH, headline=True),
    "text/minibatch_512": Setting(minibatch=LARGE_MINIBATCH, headline=True),
    "text_with_llm_latency/minibatch_64/after_50000": Setting(LATENCY_S, start=LATE_START),
    "pixels/minibatch_64": Setting(pixels=True),
}
CLIMB = "to_4_achievements"
CASES = (*SETTINGS, CLIMB)
ENOUGH, CAP, SEEDS = 4.0, 2400.0, 5
COMPARED = (100_000, 200_000, 300_000)  # env steps after which achievements are compared
NEAR = 50_000  # env steps to either side, whose looks stand for the peer
Curve = Sequence[tuple[float, float]]  # env steps and achievements of each look


def said(shares: Mapping[str, float]) -> str:
    """Shares of time as text, largest first, without those below 0.5 %."""
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{part} {share:.0%}" for part, share in ordered if share >= 0.005)


class Match:
    """Both sides of a setting, and the notes about them.

    Args:
        slower: for `--quick`, an earlier match in which ours waited for a model. Waiting can only cost time, so its
            speed is reused for ours here.
    """

    def __init__(self, name: str, setting: Setting, options: Options, slower: Match | None = None) -> None:
        self.name, self.setting, self.options, self.slower = name, setting, options, slower
        self.seconds = SECONDS
        if options.quick:
            self.seconds, self.setting = QUICK_WINDOW, replace(setting, start=QUICK_START)
        self.notes: dict[str, str] = {}
        self.said, self.speed = "", 0.0
        self.learn = self._learn()

    def compare(self) -> Report:
        """Compare ours with all peers."""
        headline = frozenset({"published_loop"} if self.setting.headline else ())
        case = Case("ellm", self.name, "env_steps", headline, notes=self.notes)
        return compare(case, self.ours, self._peers(), self.options)

    def _peers(self) -> dict[str, Run]:
        peers = {"published_loop": self._peer("published_loop")}
        if self.options.quick:
            return peers
        peers["published_loop_drawing"] = self._peer("published_loop_drawing", "--drawing")
        if self.setting.headline:
            peers["published_loop_by_sentence"] = self._peer("published_loop_by_sentence", "--by-sentence")
        if self.setting.minibatch != MINIBATCH:
            peers["published_loop_64"] = self._peer("published_loop_64", "--minibatch", str(MINIBATCH))
        return peers

    def _better(self, run: Callable[[str], float], note: Callable[[str], None]) -> Run:
        """At the best setting; with `--quick`, at the first."""
        settings = [ONE, A_CORE, *([ONE + BFLOAT16, A_CORE + BFLOAT16] if has_bfloat16() else [])]
        names = settings[:1] if self.options.quick else settings
        return better_of({name: partial(run, name) for name in names}, note)

    # ---- ours ---------------------------------------------------------------------------------------------------

    def ours(self) -> float:
        if self.slower and self.slower.speed:
            self.said = f"{self.slower.said}, with latency"
            return self.slower.speed
        self.speed = self.learn()
        return self.speed

    def _learn(self) -> Run:
        notes: dict[str, str] = {}

        def run(setting: str) -> float:
            timeout = min(self.seconds + self.setting.start / 500 + PATIENCE, self.options.seconds_left)
            count = 1 if setting.startswith(ONE) else len(os.sched_getaffinity(0))
            words = self.setting.ours(count, "bfloat16" if setting.endswith(BFLOAT16) else "none")
            speed = run_ours(words, self._watch, timeout)
            self.said = notes[setting] = f"{self.said}, torch threads {setting}"
            return speed

        return self._better(run, lambda best: setattr(self, "said", notes[best]))

    def _watch(self, rows: Rows) -> float | None:
        """The steady speed, once learning has lasted long enough."""
        learned = [row for row in rows if row.get("replay/updates", 0) > 0]
        speed = steady(learned, self.seconds)
        if speed is not None:
            measured = learned[WARM_UP_UPDATES:]
            replayed = replayed_per_step(measured, self.setting.minibatch)
            if abs(replayed / PER_STEP - 1) > 0.05:
                raise OursFailed(f"ours replayed {replayed:.1f} rows for each env step, not {PER_STEP}")
            self.said = f"ours, side by side: {said(shares(measured))}"
        return speed

    # ---- the peer -----------------------------------------------------------------------------------------------

    def _peer(self, peer: str, *words: str) -> Run:
        notes: dict[str, str] = {}

        def run(setting: str) -> float:
            threads = ["--threads", "1" if setting.startswith(ONE) else "0"]
            speed, note = self._theirs(*threads, *["--bfloat16"] * setting.endswith(BFLOAT16), *words)
            self.notes[peer] = notes[setting] = f"{self.said}; peer, torch threads {setting}: {note}"
            return speed

        return self._better(run, lambda best: self.notes.update({peer: notes[best]}))

    def _theirs(self, *words: str) -> tuple[float, str]:
        """The peer's speed, and a note about it."""
        timeout = min(self.seconds + self.setting.start / 50 + PATIENCE, self.options.seconds_left)
        size = ["--minibatch", str(self.setting.minibatch)]
        words = (*self.setting.theirs("--seconds", str(self.seconds)), *size, *words)
        answer = run_peer(OWN, "ellm_loop", words, timeout)
        if abs(answer["replayed_per_step"] / PER_STEP - 1) > 0.05:
            raise PeerFailed(f"it replayed {answer['replayed_per_step']:.1f} rows for each env step, not {PER_STEP}")
        news = f"in {answer['env_steps']} steps {answer['asked']} questions and {answer['embedded']} new texts"
        return float(answer["steps_per_second"]), f"{said(answer['shares'])}; {news}"


def shares(rows: Rows) -> dict[str, float]:
    """Means of the metrics' columns `time/*`, by part."""
    names = [name for name in rows[-1] if name.startswith("time/")]
    return {name.removeprefix("time/"): statistics.mean(row.get(name, 0.0) for row in rows) for name in names}


def replayed_per_step(rows: Rows, minibatch: int) -> float:
    """Rows replayed for each env step, from the first row of metrics to the last."""
    first, last = rows[0], rows[-1]
    updates = last["replay/updates"] - first["replay/updates"]
    return float(updates * minibatch / (last["env_steps"] - first["env_steps"]))


def check(worlds: int = CHECKED_WORLDS, steps: int = CHECKED_STEPS) -> int:
    """Both sides play the first `steps` steps of some seeds' first episodes with the same actions and the same oracle
    of goals. Returns how many steps of single worlds were compared.

    Raises:
        DifferentOutputs: at the first difference.
    """
    ours = envs.make("crafter/Text", worlds, engine="native", success="loose")
    goals = Goals(GoalsConfig(source="oracle"), ours, embed=embed_one)
    obs = goals.begin(np.arange(worlds))
    theirs = [World(seed, ordered=True) for seed in range(worlds)]
    pay = Payment(lambda names: np.stack([embed_one(name) for name in names]))
    achieved: list[set[str]] = [set() for _ in theirs]
    random = np.random.default_rng(0)
    # Half of the actions come from these, so that events happen.
    apt = [place for place, event in enumerate(EVENTS) if event.name in SENSIBLE]
    playing, compared = np.ones(worlds, np.bool_), 0
    for step in range(steps):
        choices = random.choice(apt, worlds), random.integers(0, len(EVENTS), worlds)
        actions = np.where(random.random(worlds) < 0.5, *choices)
        situations, told = ours.situations(), []
        for i, world in enumerate(theirs):
            if playing[i]:
                what = f"crafter/Text seed {i} step {step}"
                situation, state = world.look()
                assert_equal(f"{what} situation", ours.texts[int(situations[i])], situation)
                parts = [ours.texts[int(obs[name][i])] for name in ("view", "items", "feelings")]
                assert_equal(f"{what} state", ". ".join(parts), state)
            told.append([goal for goal in world.sensible() if goal not in achieved[i]])
            if playing[i]:
                assert_equal(f"{what} goals", set(goals.goals_of(i) or ()), set(told[i]))
        transition = goals.advance(actions)
        events = [ours.texts[event] if event >= 0 else "" for event in ours.events.tolist()]
        reward = transition.rewards["goal"]
        obs = transition.obs
        for i in np.flatnonzero(playing).tolist():
            what = f"crafter/Text seed {i} step {step}"
            achievement, died = theirs[i].act(int(actions[i]))
            assert_equal(f"{what} achievement", events[i], achievement)
            paid = pay(achievement, told[i], achieved[i])
            assert_equal(f"{what} reward", round(float(reward[i]), 4), round(paid, 4))
            assert_equal(f"{what} end", bool(transition.terminated[i]), died)
        compared += int(playing.sum())
        playing[transition.final_index] = False
    return compared


def to_4_achievements(options: Options) -> Report:
    """A system that does not get there counts as `CAP`: the ratio is then a lower bound."""
    notes: dict[str, str] = {}
    case = Case("ellm", CLIMB, "wall", frozenset({"published_loop"}), lower_is_better=True, notes=notes)
    curves: list[Curve] = []

    def ours() -> float:
        seconds = []
        for seed in range(1, SEEDS + 1):
            words = [
                "experiment=ellm_crafter_small",
                f"seed={seed}",
                "learner.env_steps=2000000",
                *("actors.n=1", "actors.envs=256", "actors.steps=16"),  # as many steps an update, in fewer calls
                "learner.ppo.entropy_coefficient=0.01",  # most agents are there sooner, some never: hence the median
                "evaluate.every=100000",  # looks count: one every 50,000 steps made a run a quarter longer
            ]
            words += ["evaluate.validation_episodes=32", "evaluate.videos=0", "cluster.dashboard=false"]
            climb = Climb()
            try:
                seconds.append(run_ours(words, climb, CAP, "evaluate"))
            except OutOfTime:
                seconds.append(CAP)
            curves.append(climb.curve)
        notes["published_loop"] = f"ours, seeds 1 to {SEEDS}: {', '.join(f'{each:.0f} s' for each in seconds)}"
        return statistics.median(seconds)

    def theirs() -> float:
        # Products in float32: in bfloat16 it takes more steps a second, and did not get there in two runs of two.
        words = ["--until", str(ENOUGH), "--cap", str(CAP), "--threads", "0"]
        answer = run_peer(OWN, "ellm_climb", words, 2 * CAP)
        told = ", ".join(f"{n:.1f} after {seconds:.0f} s" for seconds, _, n in answer["curve"][::4])
        notes["published_loop"] += f"; peer: {told}" + ("" if answer["reached"] else ": it did not get there")
        notes["published_loop"] += at_equal_steps(curves, [(steps, n) for _, steps, n in answer["curve"]])
        return float(answer["seconds"])

    return compare(case, ours, {"published_loop": theirs}, replace(options, rounds=1))


class Climb:
    """Follows one of our runs until it has arrived and its `curve` reaches the last of `COMPARED`."""

    def __init__(self) -> None:
        self.curve: Curve = []
        self._begun, self._arrived = time.monotonic(), 0.0

    def __call__(self, rows: Rows) -> float | None:
        """Seconds until an evaluation in held-out worlds found enough achievements; None: follow it further."""
        self.curve = [(row["env_steps"], row["episodic_return"]) for row in rows]
        if not self._arrived and any(n >= ENOUGH for _, n in self.curve):
            self._arrived = time.monotonic() - self._begun
        return self._arrived if self._arrived and self.curve[-1][0] >= COMPARED[-1] else None


def achieved(curve: Curve, steps: float) -> float:
    """Achievements after so many env steps, between two looks in proportion."""
    looks, counts = zip(*curve, strict=True)
    return float(np.interp(steps, looks, counts))


def at_equal_steps(ours: Sequence[Curve], theirs: Curve) -> str:
    """What ours, several runs, achieve beyond the peer's one after as many env steps, as a note, with 95 % intervals.

    Its looks within `NEAR` stand for it: their mean, and their spread as that of a run. They fell further apart than
    our seeds, and seeds of its own would add to that: the intervals are too narrow rather than too wide. Student's t,
    with as many degrees of freedom as the side with fewer values has.
    """
    told = []
    for steps in COMPARED:
        near = [n for at, n in theirs if abs(at - steps) <= NEAR]
        own = [achieved(curve, steps) for curve in ours if curve and curve[-1][0] >= steps]
        if min(len(own), len(near)) < 2 or theirs[-1][0] < steps:
            continue
        ahead = statistics.mean(own) - statistics.mean(near)
        error = math.sqrt(statistics.variance(own) / len(own) + statistics.variance(near))
        half = stats.t.ppf(0.975, min(len(own), len(near)) - 1) * error
        told.append(f"{ahead:+.1f} (+- {half:.1f}) after {steps:,} env steps")
    return f"; ours ahead by {', '.join(told)}" if told else ""


def run(options: Options) -> Report:
    check()
    report, matches = Report(), dict[str, Match]()
    for name, setting in SETTINGS.items():
        if not options.wants(name):
            continue
        if options.quick and not setting.headline:
            report.skips.append(Skip("ellm", name, "env_steps", "published_loop", "left out of --quick"))
            continue
        slower = matches.get(name.replace("text/", "text_with_llm_latency/")) if options.quick else None
        matches[name] = Match(name, setting, options, slower)
        report.add(matches[name].compare())
    if options.wants(CLIMB):
        if options.quick:
            report.skips.append(Skip("ellm", CLIMB, "wall", "published_loop", "too long for --quick"))
        else:
            report.add(to_4_achievements(options))
    return report
