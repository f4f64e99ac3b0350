"""The rollout actor: its own batch of envs, a copy of the policy, T-step chunks.

    rollout(weights, version) ──> Summary (small, for the controller) + Chunk (large, for the learner)

The actor can be restored at every chunk border: the summary contains the state of its envs and policy, and the random
numbers of a chunk derive from (seed, actor, sequence). A successor that restores the last summary continues with
exactly the chunk that was lost.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import envs
from actors import players
from actors.evaluate import Played, play
from actors.players import POLICY, Acted, Player
from actors.setup import ActorSetup
from actors.wrappers import Setting, shaping, wrap
from envs.api import Chunk, DenseEnv, Episodes, Observation, Summary, Transition, Written

if TYPE_CHECKING:
    from learner.group import Weights

MOST_TEXTS = 200_000  # an actor's table of texts is cleared beyond this size, about 0.3 GB with their codes


class RolloutActor:
    """A role. `rollout` and `evaluate` are called one at a time; `phase` may be read from another thread."""

    def __init__(
        self, setup: ActorSetup, index: int, incarnation: int = 0, state: dict[str, NDArray[Any]] | None = None
    ) -> None:
        self._began = time.monotonic()
        self.phase = "start"
        self._done = defaultdict(float, dict.fromkeys(("steps", "rollouts", "episodes"), 0.0))  # for `numbers`
        self.setup, self.index, self.incarnation = setup, index, incarnation
        self._answers: dict[str, Sequence[str]] = {}  # what its envs were told, for `Setting`
        self.env = self._make_env()
        self.memory: NDArray[Any] | None = None
        self.sequence = 0 if state is None else int(state["sequence"])
        self.obs: Observation = {}  # of the first rollout, in which a wrapper may wait for a language model
        self._before = state

    @cached_property
    def player(self) -> Player:
        """The run's policy. Created by `prepare` or on first use: other players need neither it nor PyTorch."""
        return players.make(POLICY, self.setup, self.name)

    def _who(self, name: str, weights: Weights | None, version: int, elsewhere: ActorSetup | None = None) -> Player:
        """A player for envs other than this actor's own, in which training continues with its state."""
        if name == POLICY:
            self.player.load(weights, version)
            return self.player.twin(elsewhere)
        return players.make(name, elsewhere or self.setup, self.name)

    def _make_env(self) -> DenseEnv:
        setup, n = self.setup, self.setup.actors.envs
        world = envs.make(setup.env_id, n, setup.seed, self.index * n, **setup.env_options)
        world.group = setup.actors.group
        return wrap(world, setup.wrappers, self._setting)

    def _make_others(self, setup: ActorSetup, n: int) -> DenseEnv:
        """Envs other than this actor's own, for n given episodes: with the same wrappers, but they wait for every
        answer."""
        world, own = envs.make(setup.env_id, n, **setup.env_options), self.setup
        # The same model was asked about the same goals: its answers hold in both.
        alike = all(getattr(setup, of) == getattr(own, of) for of in ("env_id", "wrappers", "language"))
        answers = self._answers if alike else {}
        return wrap(world, setup.wrappers, replace(self._setting, patient=True, answers=answers))

    @property
    def _setting(self) -> Setting:
        setup, lives = self.setup, (self.setup.crew, self.incarnation)
        own = Setting(self.name, setup.language, stage=setup.stage, attempt=setup.attempt, lives=lives)
        return replace(own, answers=self._answers)

    @property
    def name(self) -> str:
        return f"actor-{self.index}"

    def begin(self) -> None:
        """Begin in its envs, or continue where its predecessor stopped. The first rollout does this if nothing else
        did."""
        self.memory = self.player.begin(self.env)
        if self._before is None:
            self.obs = self.env.begin()
        else:
            of_env = {name.removeprefix("env."): v for name, v in self._before.items() if name.startswith("env.")}
            self.obs = self.env.restore(of_env)
            if "memory" in self._before:
                self.memory = self._before["memory"].copy()
        self._before = None

    def ready(self) -> bool:
        """True once the constructor has finished."""
        return True

    def prepare(self) -> bool:
        """Create the run's policy. True once that has finished: with PyTorch, seconds in which the learner starts."""
        return self.player is not None

    def heartbeat(self) -> dict[str, Any]:
        """What the actor is doing and since when; any thread may call this."""
        return {
            "phase": self.phase,
            "seconds": time.monotonic() - self._began,
            "sequence": self.sequence,
            "pid": os.getpid(),
        }

    def numbers(self) -> dict[str, float]:
        """Its counters since it was built, named as in `cluster.metrics.table.ACTOR`; any thread may call this."""
        return {f"actor/{key}": value for key, value in dict(self._done).items()}

    def _enter(self, phase: str, **apart: float) -> None:
        """Begin a phase. `apart`: seconds of the previous phase that are counted under other names."""
        now = time.monotonic()
        self._done[f"seconds/{self.phase}"] += now - self._began - sum(apart.values())
        for name, seconds in apart.items():
            self._done[f"seconds/{name}"] += seconds
        self.phase, self._began = phase, now

    def rollout(self, weights: Weights | None, version: int) -> tuple[Summary, Chunk]:
        """Play T steps with these weights; equal versions are not loaded again. A policy server has them itself."""
        self._enter("rollout")
        began = time.perf_counter()
        self.player.load(weights, version)
        if not self.obs:
            self.begin()
        if self.setup.actors.group > 1 and self.sequence:  # episodes of a group begin together
            self.obs = self.env.begin()
        if max(len(self.env.texts), len(self._answers)) > MOST_TEXTS:
            self._forget_texts()
        length, n = self.setup.actors.steps, self.env.num_envs
        random = np.random.default_rng([self.setup.seed, self.index, self.sequence]).random((length, n), np.float32)
        first_memory = None if self.memory is None else self.memory.copy()
        record = Record(length, n, self.obs)
        policy_seconds, versions = 0.0, np.full(length, version, np.int64)
        for t in range(length):
            clock = time.perf_counter()
            versions[t] = max(version, self.player.version)  # before the act: newer weights may come in its middle
            acted = self.player.act(self.obs, self.memory, random[t])
            policy_seconds += time.perf_counter() - clock
            episode = self.env.episode
            transition = self.env.advance(acted.action)
            self.player.observe(transition)
            record.add(t, acted, episode, transition, self.player.written)
            self.obs = transition.obs
            self.memory = acted.state
            if self.memory is not None and len(transition.final_index):
                self.memory = self.memory.copy()
                self.memory[transition.final_index] = 0
        self._enter("pack", policy=policy_seconds, **self.env.seconds())
        record.value[length] = self.player.value(self.obs, self.memory)
        chunk = self._pack(record, version, versions, first_memory)
        self.env.finish(chunk)
        self.sequence += 1
        self._done["steps"] += chunk.steps
        self._done["rollouts"] += 1
        seconds = {"rollout": time.perf_counter() - began, "policy": policy_seconds}
        episodes = Episodes.concatenate(record.episodes)
        state, report = self._state(), self.env.report()
        summary = Summary(self.index, self.sequence - 1, version, chunk.steps, episodes, state, seconds, report)
        self._enter("idle", **self.env.seconds())
        return summary, chunk

    def evaluate(
        self,
        weights: Weights | None,
        version: int,
        seeds: NDArray[np.int64],
        who: str,
        greedy: bool,
        record: int,
        elsewhere: ActorSetup | None = None,
    ) -> Played:
        """Play the episodes of `seeds` once each in separate envs; training envs are not touched.

        Args:
            weights, version: the policy, for `who == "policy"`.
            seeds: int64 [n] episode seeds.
            who: `policy`, or a module of `actors.players`.
            greedy: the player takes its most probable action.
            record: how many of the first episodes to animate, with the run's potential along them.
            elsewhere: another environment, other prompts of a language model, or no wrappers; None: as this actor
                plays.
        """
        self._enter("evaluate")
        setup = elsewhere or self.setup
        setup = replace(setup, env_options=setup.env_options | dict(setup.evaluated))
        env = self._make_others(setup, len(seeds))
        player, by = self._who(who, weights, version, elsewhere), setup.wrappers.get("shaping")
        played = play(env, player, seeds, greedy, record, by if isinstance(by, shaping.Config) else None)
        self._done["episodes"] += len(seeds)
        self._enter("idle")
        return played

    def _forget_texts(self) -> None:
        """Continue in an equal env with an empty table: there are endless captions, and a run may last for days."""
        state = self.env.state()
        self._answers.clear()
        self.env = self._make_env()
        self.obs = self.env.restore(state)
        self.player.begin(self.env)

    def _pack(
        self, record: Record, version: int, versions: NDArray[np.int64], first_memory: NDArray[Any] | None
    ) -> Chunk:
        final_obs = record.final_observations(self.obs)
        final_value = np.zeros(0, np.float32)
        if len(record.final_index):
            final_memory = np.stack(record.final_memory) if record.final_memory else None
            final_value = self.player.value(final_obs, final_memory)
        table = self.env.texts
        texts: dict[int, str] = {}
        for obs in (record.obs, final_obs):
            for name in self.player.text_fields:
                texts |= table.export(obs[name])
                obs[name] = table.hashes(obs[name])
        return Chunk(
            actor=self.index,
            incarnation=self.incarnation,
            sequence=self.sequence,
            version=version,
            env_index=self.env.env_index,
            obs={n: record.obs[n] for n in self.player.fields},
            final_obs={n: final_obs[n] for n in self.player.fields},
            final_index=np.array(record.final_index, np.int32).reshape(-1, 2),
            action=record.action,
            log_prob=record.log_prob,
            value=record.value,
            final_value=final_value,
            rewards={"env": record.reward, **record.rewards},
            terminated=record.terminated,
            truncated=record.truncated,
            policy_state=first_memory,
            episode=record.episode,
            texts=texts,
            llm_status=record.llm_status,
            versions=versions if (versions != version).any() else None,
            group=self.setup.actors.group,
            written=record.answers(),
            embedded=self.player.embedded(texts),
        )

    def _state(self) -> dict[str, NDArray[Any]]:
        state = {f"env.{name}": value for name, value in self.env.state().items()}
        state["sequence"] = np.array(self.sequence)
        return state if self.memory is None else state | {"memory": self.memory.copy()}


class Record:
    """`length` steps T of `n` envs, filled as they are played; `obs` is the first observation of all envs."""

    def __init__(self, length: int, n: int, obs: Observation) -> None:
        self.obs = {name: np.empty((length + 1, *value.shape), value.dtype) for name, value in obs.items()}
        for name, value in obs.items():
            self.obs[name][0] = value
        self.action = np.empty((length, n), np.int64)
        self.log_prob = np.empty((length, n), np.float32)
        self.value = np.empty((length + 1, n), np.float32)
        self.reward = np.empty((length, n), np.float32)
        # Columns that wrappers add, by name.
        self.rewards: defaultdict[str, NDArray[np.float32]] = defaultdict(lambda: np.zeros((length, n), np.float32))
        self.llm_status = np.zeros((length, n), np.uint8)
        self.terminated = np.empty((length, n), np.bool_)
        self.truncated = np.empty((length, n), np.bool_)
        self.episode = np.empty((length, n), np.int64)
        self.final_index: list[tuple[int, int]] = []
        self.final_memory: list[NDArray[Any]] = []
        self.final_obs: list[Observation] = []
        self.episodes: list[Episodes] = []
        self.written: list[Written] = []

    def add(
        self,
        t: int,
        acted: Acted,
        episode: NDArray[np.int64],
        transition: Transition,
        written: Written | None = None,
    ) -> None:
        """Step t; `episode`: counters of the episodes that the actions belong to; `written`: in answers, if any."""
        if written is not None:
            self.written.append(written)
        self.action[t], self.log_prob[t], self.value[t], memory = acted
        self.episode[t] = episode
        self.reward[t], self.terminated[t] = transition.reward, transition.terminated
        self.truncated[t] = transition.truncated
        for name, reward in transition.rewards.items():
            self.rewards[name][t] = reward
        if transition.llm_status is not None:
            self.llm_status[t] = transition.llm_status
        for name, column in transition.obs.items():
            self.obs[name][t + 1] = column
        if len(transition.final_index):
            self.final_index += [(t, int(i)) for i in transition.final_index]
            self.final_obs.append(transition.final_obs)
            self.episodes.append(transition.episodes)
            if memory is not None:
                self.final_memory += [memory[i] for i in transition.final_index]

    def answers(self) -> Written | None:
        """What was written in all steps, if anything was."""
        if not self.written:
            return None
        return Written(*(np.stack([getattr(step, name) for step in self.written]) for name in vars(self.written[0])))

    def final_observations(self, like: Observation) -> Observation:
        """All last observations of ended episodes, [D, ...]."""
        return {
            name: np.concatenate([value[:0], *[part[name] for part in self.final_obs]]) for name, value in like.items()
        }
