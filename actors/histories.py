"""Recording learning histories: the learners of many tasks at once, one episode of each after the other.

    env i plays task i repeatedly ──> Histories: learners and their experience ──> shards of an EpisodeStore
                                  shard 00002-00001: tasks 32 to 47, the second block of their episodes

Random numbers derive from (seed, task, number of the episode), and a learner sees only its own task. So the output does
not depend on which tasks are played together. The end of a block depends only on its own 16 tasks, too.

The limit is memory: a historian holds a block for every 16 of its tasks, at most 2**20 steps plus the episode that
exceeded it. A step of a dark room has 7 bytes there, and 22 more while its block is written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import envs
from envs.api import Episodes, Observation, Transition, VectorEnv
from learner.files import Attempt
from learner.histories import TASKS, HistoriesConfig, kept_fields, learner
from learner.store.episodes import EpisodeWriter, Layout, Steps
from learner.store.pieces import COLUMNS, WHOLE, Pieces

NUMBERS, STEPS = 100, 2**20
"""Episodes per task in a shard; fewer if they reach the maximum number of steps together."""
CALL_S = 1.0  # seconds after which a call returns: between two calls, the run can be stopped
DRAWN = 64  # steps per batch of random numbers; the numbers do not depend on it


class Histories:
    """The growing histories of some tasks. Every 16 tasks, in order, are a row.

    Args:
        env: N envs, used only here.
        config: configuration of the learners.
        seed: the run's seed.
        tasks: int64 [N], the tasks.

    Attributes:
        number: episodes of each task so far.
        learner: the learners.
    """

    def __init__(self, env: VectorEnv, config: HistoriesConfig, seed: int, tasks: NDArray[np.int64]) -> None:
        self._env, self._seed, self._tasks, self.number = env, seed, tasks, 0
        spec = env.env_spec
        self.learner = learner(config.learner)(config, env, seed, tasks)
        fields = kept_fields(spec).items()
        self._kinds = {n: _fewest(field.size) if field.kind == "category" else field.dtype for n, field in fields}
        self._action = _fewest(len(spec.action_names)) if spec.discrete else np.dtype(np.float32)
        self._numbers = 1 + (spec.action_shape or (1,))[0]  # random numbers per action
        self._source = np.zeros(len(tasks), np.int64)  # steps of each learner so far
        self._rows = [slice(first, first + TASKS) for first in range(0, len(tasks), TASKS)]
        self._kept: list[list[tuple[Pieces, Steps]]] = [[] for _ in self._rows]  # for each row, episodes of its tasks

    def play(self) -> int:
        """One more episode of every task. Returns the env steps in it."""
        env, who, count = self._env, self.learner, len(self._tasks)
        generators = [np.random.default_rng([self._seed, task, self.number]) for task in self._tasks.tolist()]
        seen: dict[str, list[NDArray[Any]]] = {name: [] for name in self._kinds}
        done: list[NDArray[Any]] = []
        paid: list[NDArray[np.float32]] = []
        lived: list[NDArray[np.bool_]] = []  # for each step: whose episode is running
        ended: list[Episodes] = []
        obs = env.begin(self._tasks)  # the first seeds give the tasks in order
        who.begin(self.number)
        running, at, step = np.ones(count, np.bool_), np.arange(count), 0
        while len(at):
            if step % DRAWN == 0:
                random = np.stack([generator.random((DRAWN, self._numbers)) for generator in generators], 1)
            action = who.act(obs, random[step % DRAWN])
            for name, kind in self._kinds.items():
                seen[name].append(obs[name].astype(kind))
            lived.append(running)
            transition = env.advance(action)
            ended_by = transition.terminated, transition.truncated
            who.learn(at, action, transition.reward, _after(transition), *ended_by)
            done.append(action.astype(self._action))
            paid.append(transition.reward.copy())
            obs, step = transition.obs, step + 1
            if len(over := transition.final_index):  # finished envs play on, in the next seed's episode
                ended.append(transition.episodes.take(running[over]))
                running = running.copy()
                running[over] = False
                at = np.flatnonzero(running)
        episodes = Episodes.concatenate(ended)
        episodes = episodes.take(np.argsort(episodes.env))
        pieces, on = self._pieces(episodes), np.stack(lived, 1)
        every, acted, earned = {n: np.stack(c, 1) for n, c in seen.items()}, np.stack(done, 1), np.stack(paid, 1)
        for own, kept in zip(self._rows, self._kept, strict=True):
            its = on[own]
            steps = Steps({n: c[own][its] for n, c in every.items()}, acted[own][its], earned[own][its])
            kept.append((pieces.take(own), steps))
        self.number += 1
        return int(episodes.length.sum())

    def _pieces(self, episodes: Episodes) -> Pieces:
        """The newest episode of each task, in order of the tasks."""
        self._source = self._source + episodes.length
        found = {name: getattr(episodes, name) for name in WHOLE} | {
            "env": self._tasks.astype(np.int32),
            "episode": np.full(len(self._tasks), self.number),
            "source": self._source,
            "task": self._tasks,
        }
        return Pieces.of(found)

    def held(self, row: int = 0) -> tuple[int, int]:
        """Episodes of each task of a row since the last `take`, and the steps in all of them."""
        return len(self._kept[row]), sum(len(steps.reward) for _, steps in self._kept[row])

    def take(self, row: int = 0) -> tuple[Pieces, Steps]:
        """Remove and return these episodes and their steps, task by task. Categories use few bytes."""
        kept, self._kept[row] = self._kept[row], []
        pieces = Pieces(**{n: np.stack([getattr(p, n) for p, _ in kept], 1).ravel() for n in COLUMNS})
        ends = [np.cumsum(p.length) for p, _ in kept]  # of the tasks' steps in each episode

        def joined(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
            parts = [np.split(column, end[:-1]) for column, end in zip(columns, ends, strict=True)]
            return np.concatenate([part for of_task in zip(*parts, strict=True) for part in of_task])

        obs = {name: joined([steps.obs[name] for _, steps in kept]) for name in self._kinds}
        return pieces, Steps(obs, joined([steps.action for _, steps in kept]), joined([s.reward for _, s in kept]))


def _fewest(size: int) -> np.dtype[Any]:
    """The smallest type that holds every number below `size`."""
    return np.min_scalar_type(size - 1)


def _after(transition: Transition) -> Observation:
    """The observation after a step, in the same episode."""
    if not len(transition.final_index):
        return transition.obs
    obs = {name: column.copy() for name, column in transition.obs.items()}
    for name, column in obs.items():
        column[transition.final_index] = transition.final_obs[name]
    return obs


# ---- the role -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HistorianSetup:
    """Everything that a historian needs. Plain data."""

    env_id: str
    env_options: dict[str, Any]
    config: HistoriesConfig
    seed: int
    tasks: int  # number of all tasks
    folder: Path  # of the store
    about: dict[str, Any]  # metadata from its maker
    attempt: Attempt | None  # the attempt that writes


@dataclass(frozen=True)
class HistoryShare:
    """Tasks for one historian to play at once: the tasks of some rows of shards."""

    rows: tuple[int, ...]
    there: frozenset[str] = frozenset()  # names of these rows' shards that need not be written again


@dataclass(frozen=True)
class Progressed:
    """The progress of a share."""

    number: int  # episodes of each of its tasks so far


def shard(row: int, block: int) -> str:
    """Name of the shard of tasks 16 `row` to 16 `row` + 15 and of a block of their episodes, 0, 1, ..."""
    return f"{row:05d}-{block:05d}"


class Historian:
    """A role. It continues its current share, and starts any other one from its first episode."""

    def __init__(self, setup: HistorianSetup, index: int = 0, incarnation: int = 0, saved: Any = None) -> None:
        self.setup = setup
        self._phase, self._share = "start", HistoryShare(())
        self._histories: Histories
        self._done = {"actor/steps": 0.0, "actor/episodes": 0.0}

    def ready(self) -> bool:
        """True once the constructor has finished."""
        return True

    def heartbeat(self) -> dict[str, Any]:
        return {"phase": self._phase, "pid": os.getpid()}

    def numbers(self) -> dict[str, float]:
        """Its counters since it was built, named as in `cluster.metrics.table.ACTOR`; any thread may call this."""
        return dict(self._done)

    def play(self, share: HistoryShare) -> Progressed:
        """Play a share for about a second, or to its end; write the shards that are complete by then.

        Raises:
            StoreError: the store is of other episodes.
        """
        began, total = time.monotonic(), self.setup.config.episodes
        if share != self._share:
            self._begin(share)
        wrote = False
        while self._histories.number < total and not wrote and time.monotonic() - began < CALL_S:
            self._phase = "play"
            self._done["actor/steps"] += self._histories.play()
            self._done["actor/episodes"] += self._tasks
            wrote = self._write(share, last=self._histories.number == total)
        self._phase = "idle"
        return Progressed(self._histories.number)

    def _begin(self, share: HistoryShare) -> None:
        setup = self.setup
        tasks = np.concatenate([np.arange(TASKS * row, TASKS * (row + 1)) for row in share.rows])
        tasks = tasks[tasks < setup.tasks]
        env = envs.make(setup.env_id, len(tasks), **setup.env_options)
        self._histories, self._share = Histories(env, setup.config, setup.seed, tasks), share
        self._tasks, self._blocks = len(tasks), dict.fromkeys(share.rows, 0)  # blocks of each row so far
        layout = Layout.of(env.env_spec, kept_fields(env.env_spec))
        self._writer = EpisodeWriter(setup.folder, layout, setup.about, setup.attempt, pieces=True)

    def _write(self, share: HistoryShare, last: bool) -> bool:
        """Write the shards of rows whose block ends with this episode; of all rows if it is the last one. Returns
        whether there were any."""
        ends = False
        for i, row in enumerate(share.rows):
            numbers, count = self._histories.held(i)
            if numbers < NUMBERS and count < STEPS and not last:
                continue
            self._phase, ends = "write", True
            pieces, steps = self._histories.take(i)
            if (name := shard(row, self._blocks[row])) not in share.there:
                self._writer.write(name, pieces, steps, {})
            self._blocks[row] += 1
        return ends


def rows_of(tasks: int) -> int:
    """The number of rows of shards for this many tasks."""
    return -(-tasks // TASKS)
