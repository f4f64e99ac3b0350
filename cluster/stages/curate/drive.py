"""Demonstrations by a driver that follows the routes of behaviours with texts.

    route of a behaviour ──> driver ── wish, + noise ──> robot, from a nearby start ──> what it senses, wish, action
                                └───── wish ────┐
    text, target ──> transformer ── action ─────┴──> robot ──> the same: practice

Noise and practice show how to find back. What drives as near to a tested behaviour as `method.split.margin` is left
out, as in the split. Each shard's random numbers follow from the seed and its behaviours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from actors.behaviours.deploy import pilot
from actors.behaviours.ride import Moment, ride
from cluster.runs.folder import RunError
from cluster.runs.stage import Outcome
from cluster.stages._shared.lgqd import BLOCK, BehaviourStage
from envs.api import Episodes
from learner.behaviours import words
from learner.behaviours.demonstrations import AHEAD, BELIEVED, DRIVEN, SENSED, WISHED
from learner.behaviours.gather import nearby
from learner.behaviours.table import Behaviours
from learner.behaviours.twins import Trajectories
from learner.models.sequence.behaviour_transformer import BehaviourModel
from learner.models.sequence.choice import Choice
from learner.store.episodes import EpisodeWriter, Steps, forget_unfinished

NUMBER = 2**56
"""Each drive of a behaviour draws numbers of its own: those of its id plus so many times this."""
Act = Callable[[Moment, NDArray[np.float64]], NDArray[np.float64]]
"""What is done, given a moment and the driver's wish [N, 2]."""
LEAST = 5
"""Actions of a practised episode that is worth keeping."""


def run(work: BehaviourStage) -> Outcome | None:
    """Drive.

    Raises:
        RunError: no behaviour has a text, the driver arrives nowhere, or there is no transformer to practise with.
    """
    settings, attempt = work.method.drive, work.folder.attempt
    texts, table = work.texts(), Behaviours.load(work.artifact("merge"))
    learned = np.concatenate([work.part(name)[1] for name in ("train", "validation")])
    rows = np.array([row for row in np.sort(learned).tolist() if int(table.id[row]) in texts], np.int64)
    tests = Trajectories(work.poses(table, work.part("test")[1])[..., :2])
    model = work.model() if settings.practice else None
    forget_unfinished(work.place, attempt)
    about = {"map": work.config.env.options["map"], "stride": work.method.sequence.stride}
    about["particles"] = work.method.sequence.particles
    writer = EpisodeWriter(work.place, DRIVEN, about, attempt)
    times, kept, total = settings.times + settings.practice, 0, 0
    for time in range(times):
        for begin in range(0, len(rows), BLOCK):
            if work.stop.reason:
                return None
            drive = _Drive(work, table, rows[begin : begin + BLOCK], time)
            if model is None or time < settings.times:
                drive.noisily()
            else:
                drive.practise(model, [texts[n][0].text for n in drive.behaviour.tolist()])
            episodes, steps = drive.result(tests)
            writer.write(f"{time:02d}-{begin:09d}", episodes, steps, {})
            kept, total = kept + len(episodes), total + len(drive.behaviour)
            work.progress.line(f"drive  episodes {total:,}/{times * len(rows):,}  kept {kept:,}")
    forget_unfinished(work.place, attempt)
    if not kept:
        raise RunError("the driver follows no route to its end: lower method.drive.noise, or describe more behaviours")
    return Outcome({"episodes": kept, "of": total}, lines=(f"drive: {kept:,} of {total:,} episodes kept",))


@dataclass
class _Drive:
    """Robots that drive the routes of behaviours `rows` [N], for the `time`-th time."""

    work: BehaviourStage
    table: Behaviours
    rows: NDArray[np.int64]
    time: int
    moments: list[Moment] = field(default_factory=list)
    wishes: list[NDArray[np.float32]] = field(default_factory=list)
    ahead: list[NDArray[np.float32]] = field(default_factory=list)
    astray: list[NDArray[np.bool_]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.behaviour, self.driver = self.table.id[self.rows], self.work.driver(self.table, self.rows)
        self.numbers = self.behaviour + self.time * NUMBER
        self.actions = -(-self.work.length // self.driver.stride)
        self.practised = False

    def noisily(self) -> None:
        """The driver drives, against noise in its wheels."""
        settings = self.work.method.drive
        noise = settings.noise * self._drawn(4, lambda random: random.normal(size=(self.actions, 2)))
        pushed = np.zeros((len(self.rows), 2))

        def act(now: Moment, wish: NDArray[np.float64]) -> NDArray[np.float64]:
            nonlocal pushed
            pushed = settings.lasting * pushed + noise[:, now.step // self.driver.stride]
            return np.asarray(wish + pushed, np.float64)

        self._ride(act)

    def practise(self, model: BehaviourModel, texts: list[str]) -> None:
        """The transformer drives, asked in these words [N]."""
        work, self.practised = self.work, True
        sequence, stride = work.method.sequence, self.driver.stride
        tokens = words.encode(work.tokenizer(), texts, work.method.tokenize.longest)
        drawn = self._drawn(5, lambda random: random.random((self.actions + 1, 2)))
        untold = drawn[:, -1:, 0] < sequence.forget
        target = np.where(untold, np.float32(np.nan), self.table.descriptor[self.rows])
        decide = pilot(model, tokens, target, stride, Choice("sample"), drawn[:, :-1], sequence.odometry)
        self._ride(lambda now, wish: decide(now).astype(np.float64))

    def _ride(self, act: Act) -> None:
        work, settings = self.work, self.work.method.drive
        start = nearby(work.house, self.numbers, work.config.seed + 2, settings.distance, settings.degrees)

        def decide(now: Moment) -> NDArray[np.float64]:
            wish = self.driver.advise(now.pose, now.step)
            self.moments.append(now)
            self.wishes.append(wish.astype(np.float32))
            self.ahead.append(self.driver.ahead(now.step).astype(np.float32))
            self.astray.append(self.driver.distance(now.pose) > settings.astray)
            return act(now, wish)

        self.pose, self.action = ride(work.house, start, work.length, self.driver.stride, work.sense, decide)

    def result(self, tests: Trajectories) -> tuple[Episodes, Steps]:
        """The episodes that teach something and are unlike the tests."""
        settings, steps = self.work.method.drive, len(self.moments)
        if self.practised:
            astray = np.stack([*self.astray, np.ones(len(self.rows), np.bool_)], 1)
            length = astray.argmax(1)  # until it first went astray, or to the end
        else:
            far = np.linalg.norm(self.pose[:, -1, :2] - self.table.descriptor[self.rows], axis=-1)
            length = np.where(far <= settings.arrive, steps, 0)
        like = [mine for mine, _ in Trajectories(self.pose[..., :2]).near(tests, self.work.method.split.margin)]
        length[np.concatenate([*like, np.zeros(0, np.intp)])] = 0
        kept = length >= min(LEAST, steps)
        used = (np.arange(steps) < length[:, None]) & kept[:, None]

        def flat(parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
            own: NDArray[np.float32] = np.stack(parts, 1)[used].astype(np.float32)
            return own

        count = int(kept.sum())
        episodes = Episodes(
            env=np.zeros(count, np.int32),
            episode=np.zeros(count, np.int64),
            seed=self.behaviour[kept],
            length=length[kept].astype(np.int32),
            total=np.zeros(count, np.float32),
            success=np.zeros(count, np.bool_),
            kind=np.full(count, self.time, np.int16),
            away=np.zeros(count, np.int32),
            counts=np.zeros((count, 0), np.int32),
        )
        obs = {SENSED: flat([now.sensed for now in self.moments]), WISHED: flat(self.wishes)}
        obs[AHEAD] = flat(self.ahead)
        obs[BELIEVED] = flat([now.believed.astype(np.float32) for now in self.moments])
        executed = flat([self.action[:, now.step] for now in self.moments])
        return episodes, Steps(obs, executed, np.zeros(len(executed), np.float32))

    def _drawn(self, stream: int, draw: Callable[[np.random.Generator], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Random numbers of each robot, [N, ...]."""
        seed = self.work.config.seed
        drawn = [draw(np.random.default_rng([seed, stream, number])) for number in self.numbers.tolist()]
        found: NDArray[np.float64] = np.stack(drawn)
        return found
