"""Trials: tasks played repeatedly with fixed weights, and their returns.

    row = (seed, task)   all rows' first episode, their second, ... ──> returns [row, trial]
      act    step ──> model with a ring of its last steps ──> logits ──> sample one of the better actions ──> env
      look   every few steps: encoder ──> query ──> Memories ──> the chunk that the model attends to until the next
      keep   an episode ends ──> Memories

A target return is given at the start, and reduced by rewards (Schmied et al. 2024, arXiv 2410.07071, section 3.3). A
model without returns and retrieval (algorithm distillation, Laskin et al. 2022, arXiv 2210.14215) has no memory but its
ring, which continues across episodes. The upper bound for retrieval gets an episode of the planner before its first
trial, and never retrieves its own.

Random numbers derive from (seed of the run, seed, task, trial, step), and a row sees only its own episodes. So the
other rows do not matter, except for the last bits of products; and the configuration determines which rows play
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from actors.memories import Lived, Memories
from actors.paths import Paths
from envs.api import HELD_OUT_FIRST, EnvSpec, Observation, VectorEnv
from learner.context.config import RetrieveConfig, TrialsConfig
from learner.context.encoders import Encoder
from learner.models.sequence.cache import Held, Ring
from learner.models.sequence.history_steps import NO_ACTION, StepInputs
from learner.models.sequence.history_transformer import HistoryTransformer
from learner.models.sequence.memory import Memory
from learner.optim.device import read

DRAWN = 64  # steps per batch of random numbers; the numbers do not depend on it
RETRIEVED = ("queries", "found", "similarity", "return", "age", "task")
"""Statistics of retrieval, sums over an episode: queries; queries that found something; and of the found chunks the
cosine, nan without a search, the return of the chunk's episode, its age in trials, nan for a demonstration, and whether
it is from the row's own task."""

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]


def tasks_of(spec: EnvSpec, training: bool) -> Integers:
    """Tasks of training seeds, or held-out tasks; all, if the environment holds none out."""
    free = spec.tasks - spec.held_out
    return np.arange(free) if training or not spec.held_out else np.arange(free, spec.tasks)


def seeds_of(spec: EnvSpec, tasks: Integers) -> Integers:
    """A seed for each task."""
    free = spec.tasks - spec.held_out
    return np.where(tasks < free, tasks, HELD_OUT_FIRST + tasks - free)


def choose(logits: Floats, uniform: NDArray[np.float64], temperature: float, keep: float) -> Integers:
    """Actions [B] of logits [B, A].

    uniform: in [0, 1), [B].
    temperature: divides the logits; 0: the most probable action.
    keep: actions with logits below the quantile 1 - `keep` of their row are left out; 0.5 keeps those at the median
        or above, 1 keeps all.
    """
    if not temperature:
        best: Integers = logits.argmax(1)
        return best
    least = np.quantile(logits, 1 - keep, axis=1, keepdims=True)
    scaled = np.where(logits >= least, logits.astype(np.float64), -np.inf) / temperature
    reached = np.exp(scaled - scaled.max(1, keepdims=True)).cumsum(1)
    chosen: Integers = (reached > uniform[:, None] * reached[:, -1:]).argmax(1)
    return chosen


def around(mean: Floats, uniform: NDArray[np.float64], noise: float, bounds: Sequence[tuple[float, float]]) -> Floats:
    """Vector actions [B, D]: the mean, [B, D], plus Gaussian noise, clipped to the bounds [D].

    uniform: in [0, 1), [B, D]; its quantiles are the noise.
    noise: standard deviation, in halves of the range; 0: none.
    """
    low, high = np.array(bounds, np.float32).T
    drawn = torch.special.ndtri(torch.from_numpy(uniform)).numpy() if noise else np.zeros_like(uniform)
    found: Floats = np.clip(mean + noise * (high - low) / 2 * drawn, low, high).astype(np.float32)
    return found


class Trials:
    """Rows that play, trial by trial.

    Args:
        env: N envs, used only here.
        model: the acting model.
        encoder: makes keys and queries; None for a model that attends to chunks: chunks are drawn at random.
        config, retrieve: configuration of trials and of retrieval.
        root: seed of the run.
        seed, task: int64 [N], of each row: all tasks, in one order, for each seed.
        shown: a demonstration for each row; if there are any, memories contain only these.

    Attributes:
        returns: float32 [N] of each trial.
        retrieved: by `RETRIEVED`, float64 [N] of each trial.
        last: the experience of the last trial.
        paths: the whole experience of the rows of seed 0.
    """

    def __init__(
        self,
        env: VectorEnv,
        model: HistoryTransformer,
        encoder: Encoder | None,
        config: TrialsConfig,
        retrieve: RetrieveConfig,
        root: int,
        seed: Integers,
        task: Integers,
        shown: Lived | None = None,
    ) -> None:
        self._env, self._model, self._config, self._retrieve = env, model.eval(), config, retrieve
        self._root, self._seed, self._task, self._rows = root, seed, task, len(task)
        self._fields = (*(name for name, _ in model.shape.categories), *(name for name, _ in model.shape.vectors))
        self._target = config.target or float(model.largest)
        self._reach = read(model.reach)
        self._ring = model.ring(self._rows)
        self._encoder = encoder
        self.memories: Memories | None = None
        if config.memory != "none" and model.shape.chunk:
            whose = np.arange(self._rows)
            if config.memory == "others":  # the row of the next task, with the same seed
                whose = np.roll(whose.reshape(-1, len(np.unique(task))), -1, 1).ravel()
            kept = (config.weights, config.newest, task, whose)
            self.memories = Memories(model, encoder, retrieve, *kept)
            if shown is not None:
                self.memories.keep(-1, shown)
        self._keeps = shown is None
        self.paths = Paths(np.flatnonzero(seed == 0))
        self.returns: list[Floats] = []
        self.retrieved: dict[str, list[NDArray[np.float64]]] = {name: [] for name in RETRIEVED}

    @property
    def number(self) -> int:
        """Number of trials of every row so far."""
        return len(self.returns)

    @torch.no_grad()
    def play(self) -> int:
        """One more trial of every row. Returns the env steps in it."""
        env, model, config, rows = self._env, self._model, self._config, self._rows
        obs = env.begin(seeds_of(env.env_spec, self._task))
        keys = zip(self._seed.tolist(), self._task.tolist(), strict=True)
        chance = [np.random.default_rng([self._root, seed, task, self.number]) for seed, task in keys]
        wanted = np.array([config.deviation * one.standard_normal() for one in chance]) + self._target
        wanted = wanted.astype(np.float32)
        self._begin()
        bounds, reward = model.shape.bounds, np.zeros(rows, np.float32)
        action: NDArray[Any] = np.full((rows, len(bounds)), np.nan, np.float32) if bounds else np.full(rows, NO_ACTION)
        length, running = np.zeros(rows, np.int64), np.ones(rows, np.bool_)
        ring, held = self._ring if self._goes_on and isinstance(self._ring, Ring) else None, list[Held]()
        lived: list[tuple[Observation, NDArray[Any], Floats]] = []
        while running.any():
            if (step := len(lived)) % DRAWN == 0:
                drawn = (DRAWN, (len(bounds) or 1) + 1)  # for an action, for a chunk
                random = np.stack([one.random(drawn) for one in chance], 1)
            seen = {name: obs[name].copy() for name in self._fields}
            shown = StepInputs(
                {name: torch.from_numpy(column) for name, column in seen.items()},
                *map(torch.from_numpy, (self._told_of(wanted, step), action, reward)),
            )
            memory, index = self._look(step, shown, running, random[step % DRAWN, :, -1])
            logits = read(model.logits(model.step(shown, self._ring, memory, index)).float())
            if bounds:
                action = around(logits, random[step % DRAWN, :, :-1], config.noise if config.temperature else 0, bounds)
            else:
                action = choose(logits, random[step % DRAWN, :, 0], config.temperature, config.keep)
            t = env.advance(action)
            reward = np.where(running, t.reward, np.float32(0))
            lived.append((seen, action, reward))
            obs, wanted = t.obs, wanted - reward
            over = t.final_index[running[t.final_index]].astype(np.int64)
            if len(over):  # they wait for the others in episodes that do not count
                length[over], running[over] = step + 1, False
                if ring:
                    held.append(ring.hold(torch.from_numpy(over)))
        for row in held:
            if ring:
                ring.resume(row)
        self._end(lived, length)
        return int(length.sum())

    def _told_of(self, wanted: NDArray[Any], step: int) -> NDArray[Any]:
        """The return to go given to the model, float32 [N]."""
        if not self._config.within_reach or step >= len(self._reach):
            return wanted
        told: NDArray[Any] = np.minimum(wanted, self._reach[step])
        return told

    @property
    def _goes_on(self) -> bool:
        """Whether the ring continues across episodes."""
        return not self._model.shape.conditioned and not self._model.shape.chunk

    def _begin(self) -> None:
        if not self._goes_on:
            self._ring = self._model.ring(self._rows)
        self._now = {name: np.zeros(self._rows) for name in RETRIEVED}
        if self._encoder is not None:
            self._lately = self._encoder.stream(self._rows)

    def _look(
        self, step: int, shown: StepInputs, running: NDArray[np.bool_], uniform: NDArray[np.float64]
    ) -> tuple[Memory | None, Tensor | None]:
        """Chunks, and the chunk that each row attends to in this step; nothing while memories are empty."""
        if not self.memories:
            return None, None
        if self._encoder is not None:
            self._lately.add(shown)
        if step % self._retrieve.every == 0:
            rows = np.flatnonzero(running)
            queries = self._lately.vectors(torch.from_numpy(rows)) if self._encoder is not None else None
            places, best = self.memories.look(rows, queries, uniform[rows])
            self._index = torch.full((self._rows,), -1)
            self._index[torch.from_numpy(rows)] = places
            self.paths.look(rows, step, best.found)
            there = best.found.id[:, 0] >= 0
            number = np.where(best.found["number"][:, 0] < 0, np.nan, best.found["number"][:, 0])  # a demonstration
            alike = best.found.similarity[:, 0] if self._encoder is not None else np.float32(np.nan)  # nothing searched
            told: dict[str, NDArray[Any]] = {"found": there, "similarity": np.broadcast_to(alike, len(rows))}
            told |= {"return": best.found["return"][:, 0], "age": self.number - number.astype(np.float64)}
            told |= {"task": best.found["task"][:, 0] == self._task[rows]}
            self._now["queries"][rows] += 1
            for name, value in told.items():
                self._now[name][rows] += np.where(there, value, 0).astype(np.float64)
        return self.memories.memory, self._index

    def _end(self, lived: list[tuple[Observation, NDArray[Any], Floats]], length: Integers) -> None:
        obs = {name: np.stack([step[0][name] for step in lived]) for name in self._fields}
        action, reward = np.stack([step[1] for step in lived]), np.stack([step[2] for step in lived])
        self.last = Lived(obs, action, reward, length)
        self.paths.keep(self.last)
        if self.memories is not None and self._keeps:
            self.memories.keep(self.number, self.last)
        self.returns.append(reward.sum(0, dtype=np.float64).astype(np.float32))
        for name, value in self._now.items():
            self.retrieved[name].append(value)
