"""Learning histories, played: the learners of many tasks side by side, one episode of each after the other.

    env i plays task i, again and again ──> Histories: learners, and what they lived ──> shards of an EpisodeStore
                                  shard 00002-00001: tasks 32 to 47, episodes 100 to 199 of each

Random numbers follow from (seed, task, number of the episode), and a learner sees its own task alone. So who plays
which tasks side by side does not show in what is written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import envs
from envs import registry
from envs.api import EnvSpec, Episodes, Field, Observation, Transition, VectorEnv
from learner.files import Attempt
from learner.histories import HistoriesConfig, QLearning
from learner.store.episodes import EpisodeWriter, Layout, Steps
from learner.store.pieces import COLUMNS, Pieces

TASKS, NUMBERS = 16, 100
"""Tasks of a shard, and episodes of each."""
CALL_S = 1.0  # seconds after which a call returns: between two, the run may be stopped
DRAWN = 64  # steps of which random numbers are drawn at a time; equal whatever it is


class Learner(Protocol):
    """Who learns N tasks, each for itself. `QLearning` says what the arguments are."""

    def begin(self, number: int) -> None: ...
    def act(self, obs: Observation, random: NDArray[np.float64]) -> NDArray[np.int64]: ...
    def learn(
        self,
        at: NDArray[np.intp],
        action: NDArray[np.int64],
        reward: NDArray[np.float32],
        obs: Observation,
        terminated: NDArray[np.bool_],
    ) -> None: ...


class HinderedExpert:
    """The world's planner, of whose actions chance chooses a share that falls from episode to episode: it seems to
    learn (noise distillation, Zisman et al. 2024, arXiv 2312.12275)."""

    def __init__(self, config: HistoriesConfig, env: VectorEnv) -> None:
        self._config, self._env, self._actions = config, env, len(env.env_spec.action_names)
        self._expert = registry.family(env.env_spec.id.partition("/")[0]).Expert()

    def begin(self, number: int) -> None:
        self._epsilon = self._config.epsilon(number)

    def act(self, obs: Observation, random: NDArray[np.float64]) -> NDArray[np.int64]:
        drawn = (random[:, 1] * self._actions).astype(np.int64)
        return np.where(random[:, 0] < self._epsilon, drawn, self._expert.act(self._env))

    def learn(self, *step: Any) -> None:
        """It knows the world already."""


def kept_fields(spec: EnvSpec) -> dict[str, Field]:
    """Fields of a step: all that the world shows a player."""
    return {name: field for name, field in spec.fields.items() if not field.privileged}


class Histories:
    """The histories of some tasks, as they grow.

    Args:
        env: N envs, for this alone.
        config: how is learned.
        seed: of the run.
        tasks: int64 [N], which.

    Attributes:
        number: episodes that each task has had.
        learner: who learns.
    """

    def __init__(self, env: VectorEnv, config: HistoriesConfig, seed: int, tasks: NDArray[np.int64]) -> None:
        self._env, self._seed, self._tasks, self.number = env, seed, tasks, 0
        spec = env.env_spec
        self._fields = tuple(kept_fields(spec))
        self.learner: Learner = (
            QLearning(config, spec, len(tasks)) if config.learner == "q" else HinderedExpert(config, env)
        )
        self._source = np.zeros(len(tasks), np.int64)  # steps that each learner has had
        self._forget()

    def _forget(self) -> None:
        self._ended: list[Episodes] = []  # one for each number, in the order of the tasks
        self._sources: list[NDArray[np.int64]] = []
        self._running: list[NDArray[np.bool_]] = []  # of each step: whose episode is on
        self._obs: dict[str, list[NDArray[Any]]] = {name: [] for name in self._fields}
        self._action: list[NDArray[np.int64]] = []
        self._reward: list[NDArray[np.float32]] = []

    def play(self) -> int:
        """One more episode of every task. Returns the env steps in it."""
        env, learner, count = self._env, self.learner, len(self._tasks)
        generators = [np.random.default_rng([self._seed, task, self.number]) for task in self._tasks.tolist()]
        obs = env.begin(self._tasks)  # the first seeds name the tasks in order
        learner.begin(self.number)
        running, at, step = np.ones(count, np.bool_), np.arange(count), 0
        ended: list[Episodes] = []
        while len(at):
            if step % DRAWN == 0:
                random = np.stack([generator.random((DRAWN, 2)) for generator in generators], 1)
            action = learner.act(obs, random[step % DRAWN])
            for name, column in self._obs.items():
                column.append(obs[name].copy())
            self._running.append(running)
            transition = env.advance(action)
            learner.learn(at, action, transition.reward, _after(transition), transition.terminated)
            self._action.append(action)
            self._reward.append(transition.reward.copy())
            obs, step = transition.obs, step + 1
            if len(over := transition.final_index):  # some that are over play on, in what the next seed names
                ended.append(_rows(transition.episodes, running[over]))
                running = running.copy()
                running[over] = False
                at = np.flatnonzero(running)
        every = Episodes.concatenate(ended)
        every = _rows(every, np.argsort(every.env))
        self._source = self._source + every.length
        self._ended.append(every)
        self._sources.append(self._source)
        self.number += 1
        return int(every.length.sum())

    def take(self) -> tuple[Pieces, Steps]:
        """The episodes since the last call and their steps, task by task; they are forgotten here."""
        numbers, count = len(self._ended), len(self._tasks)
        of = {name: np.stack([getattr(e, name) for e in self._ended], 1).ravel() for name in _TOLD}
        columns: dict[str, NDArray[Any]] = {name: np.zeros(numbers * count, kind) for name, kind in COLUMNS.items()}
        task = np.repeat(self._tasks, numbers)
        columns |= of | {
            "env": task.astype(np.int32),
            "episode": np.tile(np.arange(self.number - numbers, self.number), count),
            "ended": np.ones(len(task), np.bool_),
            "source": np.stack(self._sources, 1).ravel(),
            "task": task,
        }
        lived = np.stack(self._running, 1)
        obs = {name: np.stack(column, 1)[lived] for name, column in self._obs.items()}
        steps = Steps(obs, np.stack(self._action, 1)[lived], np.stack(self._reward, 1)[lived])
        self._forget()
        return Pieces(**columns), steps


_TOLD = ("seed", "length", "total", "success", "kind")


def _rows(episodes: Episodes, which: NDArray[Any]) -> Episodes:
    return Episodes(**{name: getattr(episodes, name)[which] for name in Episodes.__annotations__})


def _after(transition: Transition) -> Observation:
    """What was observed after a step, in the episode that the step was of."""
    if not len(transition.final_index):
        return transition.obs
    obs = {name: column.copy() for name, column in transition.obs.items()}
    for name, column in obs.items():
        column[transition.final_index] = transition.final_obs[name]
    return obs


# ---- the role -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HistorianSetup:
    """All that a historian needs. Plain data."""

    env_id: str
    env_options: dict[str, Any]
    config: HistoriesConfig
    seed: int
    tasks: int  # how many there are in all
    folder: Path  # of the store
    about: dict[str, Any]  # what its maker says of it
    attempt: Attempt | None  # in whose name


@dataclass(frozen=True)
class HistoryShare:
    """Tasks for one historian to play side by side: those of some rows of shards."""

    rows: tuple[int, ...]
    missing: frozenset[str]  # names of the shards that are still to be written


@dataclass(frozen=True)
class Progressed:
    """How far a share is."""

    number: int  # episodes that each of its tasks has had
    entries: Mapping[str, dict[str, Any]]  # shards that were written since the last time, by name


def shard(row: int, block: int) -> str:
    """Name of the shard of tasks 16 `row` to 16 `row` + 15 and episodes 100 `block` to 100 `block` + 99."""
    return f"{row:05d}-{block:05d}"


class Historian:
    """A role. It goes on with the share that it has, and begins any other one from its first episode."""

    def __init__(self, setup: HistorianSetup, index: int = 0, incarnation: int = 0, saved: Any = None) -> None:
        self.setup, self.index = setup, index
        self._phase, self._share = "start", HistoryShare((), frozenset())
        self._histories: Histories
        self._done = {"actor/steps": 0.0, "actor/episodes": 0.0}

    def ready(self) -> bool:
        """True once the constructor is through."""
        return True

    def heartbeat(self) -> dict[str, Any]:
        return {"phase": self._phase, "pid": os.getpid()}

    def numbers(self) -> dict[str, float]:
        """What it has done since it was built, as `cluster.metrics.table.ACTOR` names it; any thread may ask."""
        return dict(self._done)

    def play(self, share: HistoryShare) -> Progressed:
        """Play a share for about a second, or to its end; write the shards that are complete by then.

        Raises:
            StoreError: the store is of other episodes.
        """
        began, total = time.monotonic(), self.setup.config.episodes
        if share != self._share:
            self._begin(share)
        entries: dict[str, dict[str, Any]] = {}
        while self._histories.number < total and (not entries and time.monotonic() - began < CALL_S):
            self._phase = "play"
            self._done["actor/steps"] += self._histories.play()
            self._done["actor/episodes"] += len(self._tasks)
            number = self._histories.number
            if number % NUMBERS == 0 or number == total:
                self._phase = "write"
                entries |= self._write(share, (number - 1) // NUMBERS)
        self._phase = "idle"
        return Progressed(self._histories.number, entries)

    def _begin(self, share: HistoryShare) -> None:
        setup = self.setup
        self._tasks = np.concatenate([np.arange(TASKS * row, TASKS * (row + 1)) for row in share.rows])
        self._tasks = self._tasks[self._tasks < setup.tasks]
        env = envs.make(setup.env_id, len(self._tasks), **setup.env_options)
        self._histories, self._share = Histories(env, setup.config, setup.seed, self._tasks), share
        layout = Layout.of(env.env_spec, kept_fields(env.env_spec))
        self._writer = EpisodeWriter(setup.folder, layout, setup.about, setup.attempt, pieces=True)

    def _write(self, share: HistoryShare, block: int) -> dict[str, dict[str, Any]]:
        """Write what was played of a block, a shard for each row. Returns the entries."""
        pieces, steps = self._histories.take()
        entries = {}
        for row in share.rows:
            if (name := shard(row, block)) in share.missing:
                own = pieces.task // TASKS == row
                at = np.repeat(own, pieces.length)
                some = Pieces(**{column: getattr(pieces, column)[own] for column in COLUMNS})
                kept = Steps({n: c[at] for n, c in steps.obs.items()}, steps.action[at], steps.reward[at])
                entries[name] = self._writer.write(name, some, kept, {})
        return entries


def rows_of(tasks: int) -> int:
    """How many rows of shards so many tasks make."""
    return -(-tasks // TASKS)


def blocks_of(episodes: int) -> Sequence[int]:
    """The blocks of so many episodes."""
    return range(-(-episodes // NUMBERS))
