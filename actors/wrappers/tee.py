"""Stores the experience: every training step goes to a store of episodes, one shard per chunk; nothing else changes.

    every step: all observed fields ──────────────┐
    the chunk is over: actions, rewards ──────────┴──> pieces of episodes ──> episodes/00001-00000042-a0001.0.0.arrow

A shard is named by actor and chunk, and is written before the chunk is delivered. So an actor keeps nothing of an
episode between chunks, its state does not grow, and if a chunk is played again, its shard is written again by a later
writer, whose shard counts (`learner.store.shards`). The stage deletes chunks that were never learned from.

A shard holds one chunk: small chunks make many small files.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from actors.wrappers import Setting
from envs.api import Chunk, DenseEnv, EnvSpec, Episodes, Observation, Transition, Wrapper
from envs.config import Part
from learner.config import Configuration
from learner.files import Attempt
from learner.methods import TrainingConfig
from learner.store.pieces import COLUMNS, Pieces, Steps
from learner.store.shards import EPISODES, forget_unfinished

if TYPE_CHECKING:
    from learner.store.episodes import EpisodeWriter

after = ("captioning", "goals", "task")
training_only = True


class Config(Part):
    """The configuration of the store."""

    actors: int
    """Number of actors."""


def part(config: Configuration) -> Config | None:
    method = config.method
    return Config(actors=config.actors.n) if isinstance(method, TrainingConfig) and method.tee else None


def spec(config: Config, spec: EnvSpec) -> EnvSpec:
    """A policy's observations do not change."""
    return spec


def make(config: Config, env: DenseEnv, setting: Setting) -> Tee:
    return Tee(env, config.actors, setting)


def shard(actor: int, sequence: int) -> str:
    """Name of the shard of a chunk."""
    return f"{actor:05d}-{sequence:08d}"


def forget_unlearned(folder: Path, played: Mapping[int, int], attempt: Attempt | None) -> dict[str, dict[str, Any]]:
    """Delete chunks that were not learned from, while no actor plays. Returns the entries of the store's shards.

    played: for each actor, how many of its chunks count.

    Raises:
        Superseded: a newer attempt has begun.
    """

    def wanted(name: str) -> bool:
        actor, sequence = map(int, name.split("-"))
        return sequence < played.get(actor, 0)

    return forget_unfinished(folder, attempt, wanted)


class Tee(Wrapper):
    """Writes each chunk into the store in `episodes/` of the stage, which has created it.

    Args:
        env: the worlds, N of them.
        actors: how many actors play in the run.
        setting: player and stage; read at the beginning.
    """

    def __init__(self, env: DenseEnv, actors: int, setting: Setting) -> None:
        super().__init__(env)
        self._actors, self._setting = actors, setting
        self._writer: EpisodeWriter
        self._age: NDArray[np.int32]  # [N] steps of the running episodes when the chunk began
        self._now: Observation  # the current observation
        self._seen: list[Observation] = []  # before each step of the chunk
        self._ended: list[Episodes] = []  # in the chunk
        self._seconds = 0.0

    def begin(self, seeds: NDArray[np.int64] | None = None) -> Observation:
        return self._begun(self.env.begin(seeds), np.zeros(self.num_envs, np.int32))

    def restore(self, state: dict[str, NDArray[Any]]) -> Observation:
        """Continue from `state()` of an equal stack, which contains nothing from this wrapper."""
        return self._begun(self.env.restore(state), state["length"].copy())

    def _begun(self, obs: Observation, age: NDArray[np.int32]) -> Observation:
        """A chunk begins with this observation.

        Raises:
            ValueError: the store's place is unknown.
            StoreError: the store is missing, or has other columns.
        """
        stage, attempt = self._setting.stage, self._setting.attempt
        if stage is None or attempt is None:
            raise ValueError(
                "method.tee stores the episodes of a training stage, in an attempt at a run: there is none here"
            )
        from learner.store.episodes import EpisodeWriter  # imports Arrow, which actors of other runs do not need

        self._writer = EpisodeWriter.join(stage / EPISODES, attempt, self._setting.lives)
        self._age, self._now, self._seen, self._ended = age, self._kept(obs), [], []
        return obs

    def _kept(self, obs: Observation) -> Observation:
        return {name: obs[name].copy() for name in self._writer.layout.fields}

    def advance(self, actions: NDArray[Any]) -> Transition:
        transition = self.env.advance(actions)
        self._seen.append(self._now)
        self._now = self._kept(transition.obs)
        if len(transition.episodes):
            self._ended.append(transition.episodes)
        return transition

    def finish(self, chunk: Chunk) -> None:
        self.env.finish(chunk)
        began = time.perf_counter()
        pieces, age = self._pieces(chunk)
        steps, texts = self._steps(chunk)
        self._writer.write(shard(chunk.actor, chunk.sequence), pieces, steps, texts)
        self._age, self._seen, self._ended = age, [], []
        self._seconds += time.perf_counter() - began

    def _pieces(self, chunk: Chunk) -> tuple[Pieces, NDArray[np.int32]]:
        """The chunk's steps, env by env, in pieces of episodes; and the current length of running episodes [N]."""
        ended = chunk.terminated | chunk.truncated
        length, n = ended.shape
        begins = np.concatenate([np.ones((1, n), np.bool_), ended[:-1]])
        at = np.flatnonzero(begins.T)
        (env, t), steps = divmod(at, length), np.diff(at, append=length * n)
        last = t + steps - 1
        columns: dict[str, NDArray[Any]] = {name: np.zeros(len(at), dtype) for name, dtype in COLUMNS.items()}
        columns |= {
            "length": steps.astype(np.int32),
            "env": chunk.env_index[env],
            "episode": chunk.episode[t, env],
            "first": np.where(t == 0, self._age[env], 0).astype(np.int32),
            "ended": ended[last, env],
        }
        pieces = Pieces(**columns)
        done = np.flatnonzero(pieces.ended)
        of = Episodes.concatenate(self._ended)  # step by step; pieces are env by env
        order = np.lexsort(chunk.final_index.T)
        assert (of.length[order] == pieces.first[done] + pieces.length[done]).all()
        for name in ("seed", "total", "success", "kind"):
            getattr(pieces, name)[done] = getattr(of, name)[order]
        spec = self.env.env_spec
        pieces.task[done] = spec.task(pieces.seed[done]) if spec.tasks else 0
        # Steps of all actors if all were equally far: the same if the chunk is played again.
        pieces.source[done] = (chunk.sequence * length + last[done] + 1) * n * self._actors
        running = last == length - 1  # one per env, in order
        return pieces, np.where(ended[-1], 0, (pieces.first + pieces.length)[running]).astype(np.int32)

    def _steps(self, chunk: Chunk) -> tuple[Steps, dict[int, str]]:
        """The chunk's steps, env by env, and the texts that they name."""
        texts: dict[int, str] = {}
        obs: Observation = {}
        for name, field in self._writer.layout.fields.items():
            column = np.stack([seen[name] for seen in self._seen], 1)
            if field.kind == "text":
                texts |= self.env.texts.export(column)
                column = self.env.texts.hashes(column)
            obs[name] = _joined(column)
        action, reward = (_joined(column.swapaxes(0, 1)) for column in (chunk.action, chunk.rewards["env"]))
        return Steps(obs, action, reward), texts

    def seconds(self) -> dict[str, float]:
        taken, self._seconds = self._seconds, 0.0
        return self.env.seconds() | {self.name: taken}


def _joined(column: NDArray[Any]) -> NDArray[Any]:
    """[N, T, ...] as [N * T, ...]."""
    return column.reshape(-1, *column.shape[2:])
