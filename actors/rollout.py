"""The rollout actor: its own batch of envs, a copy of the policy, T-step chunks.

    rollout(weights, version) ──> Summary (small, for the controller) + Chunk (large, for the learner)

The actor is restorable at every chunk border: the summary carries the state of its envs and policy, and the random
numbers of a chunk follow from (seed, actor, sequence). A successor that restores the last summary continues with the
very chunk that was lost.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import envs
from actors.evaluate import Acting, ExpertPlayer, Played, Player, PolicyPlayer, RandomPlayer, play
from actors.goals import Goals, make
from actors.history import History
from actors.language import LanguagePlayer, LanguageSetup
from actors.language_policy import LanguageActing, ServedModel
from actors.mlp_policy import MLPActing, suits
from actors.sampling import sample
from actors.task_goal import TaskGoal
from envs.api import Chunk, EnvSpec, Episodes, Observation, Summary, VectorEnv
from envs.config import Part
from learner.goals import COLUMN, GoalsConfig
from learner.history import FIELD
from learner.models.config import PolicyConfig

if TYPE_CHECKING:
    from actors.guide import Guidance, Guide
    from learner.group import Weights

MOST_TEXTS = 200_000  # an actor's table of texts is begun anew beyond this, about 0.3 GB with their codes


class ActorsConfig(Part):
    """The rollout actors."""

    n: int = 2
    """How many."""
    envs: int = 32
    """Envs of each actor; they are stepped together."""
    steps: int = 64
    """Steps T of a chunk."""
    ahead: int = 0
    """Chunks that an actor is asked for while it plays another, so that it never waits for the controller. Each makes
    what is learned from one to two versions older. Pays where many actors share few cores; `sync=true` takes none."""
    restarts: int = 5
    """How often one actor may be restarted within `restart_window_s` before it is quarantined."""
    restart_window_s: float = 600.0
    """Seconds over which restarts are counted."""
    backoff_s: float = 0.5
    """Wait before the first restart; doubles with each further one in the window, at most 30 s."""
    timeout_s: float = 300.0
    """A rollout that takes longer is taken for hung: the actor is killed and restarted."""


@dataclass(frozen=True)
class ActorSetup:
    """All that an actor needs to build itself anew."""

    env_id: str
    env_options: dict[str, Any]
    spec: EnvSpec  # what the policy sees: the world, and its goals if they are told
    actors: ActorsConfig
    policy: PolicyConfig
    seed: int
    sync: bool
    language: LanguageSetup | None = None  # where the LLM service is, if the method needs it
    goals: GoalsConfig = field(default_factory=GoalsConfig)
    guidance: Guidance | None = None  # who else chooses actions while exploring
    server: Callable[..., Any] | None = None  # `PolicyServer.answer`, if the policy's model is there


class RolloutActor:
    """A role. `rollout` and `evaluate` are called one at a time; `phase` may be read from another thread."""

    def __init__(
        self, setup: ActorSetup, index: int, incarnation: int = 0, state: dict[str, NDArray[Any]] | None = None
    ) -> None:
        self._began = time.time()
        self.phase = "start"
        self._done = defaultdict(float, dict.fromkeys(("steps", "rollouts", "episodes"), 0.0))  # for `numbers`
        self.setup, self.index, self.incarnation = setup, index, incarnation
        self.env = self._make_env()
        self.history = self._make_history(self.env)
        self.memory: NDArray[Any] | None = None
        self.sequence = 0
        if state is None:
            self.obs = self.env.begin()
        else:
            self.obs = self.env.restore(_part(state, "env."))
            if self.history:
                self.history.restore(_part(state, "history."))
            self.sequence = int(state["sequence"])
            if "memory" in state:
                self.memory = state["memory"].copy()
        if self.history:
            self.obs = self.history.observe(self.obs)
        # Made by the first rollout: they may have to wait for a language model.
        self.goals: Goals | TaskGoal | None = None
        self._goals_before = _part(state or {}, "goals.")

    @cached_property
    def acting(self) -> Acting:
        """The policy at work. Made when it is first needed: other players do without it, and without PyTorch."""
        setup = self.setup
        if setup.server:
            return LanguageActing(ServedModel(setup.policy, setup.spec, setup.server), self.env, setup.sync)
        if suits(setup.policy, setup.spec):
            return MLPActing(setup.policy, setup.spec, self.env)
        from actors.acting import act_with
        from learner.group import build_policy

        return act_with(build_policy(setup.policy, setup.spec, setup.seed), self.env, setup.sync)

    @cached_property
    def guide(self) -> Guide | None:
        """Who helps the policy to explore."""
        setup = self.setup
        if setup.guidance is None:
            return None
        from actors.guide import make as make_guide

        return make_guide(setup.guidance, setup.policy, setup.spec, self.acting)

    def _make_env(self) -> VectorEnv:
        setup, n = self.setup, self.setup.actors.envs
        return envs.make(setup.env_id, n, setup.seed, self.index * n, **setup.env_options)

    def _make_history(self, env: VectorEnv, setup: ActorSetup | None = None) -> History | None:
        """What was seen and done, if the policy is told."""
        setup = setup or self.setup
        prompt = setup.policy.prompt
        return History(env, prompt.observation, prompt.observations) if FIELD in setup.spec.fields else None

    def _make_goals(self, env: VectorEnv, patient: bool = False) -> Goals | TaskGoal:
        """The goals of worlds that have begun."""
        return make(self.setup.goals, env, self.setup.language, f"actor-{self.index}", patient)

    def _set_goals(self, state: dict[str, NDArray[Any]]) -> None:
        """Have goals in this actor's own worlds, from `state` if there is one."""
        self.goals = self._make_goals(self.env)
        if state:
            self.goals.restore(state)
        self.obs = self.goals.observe(self.obs)

    def ready(self) -> bool:
        """True once the constructor is through."""
        return True

    def heartbeat(self) -> dict[str, Any]:
        """What the actor is doing and since when; any thread may ask."""
        return {
            "phase": self.phase,
            "seconds": time.time() - self._began,
            "sequence": self.sequence,
            "pid": os.getpid(),
        }

    def numbers(self) -> dict[str, float]:
        """What it has done since it was built, as `cluster.metrics.ACTOR` names it; any thread may ask."""
        return {f"actor/{key}": value for key, value in dict(self._done).items()}

    def _enter(self, phase: str, **apart: float) -> None:
        """Begin a phase. `apart`: seconds of the one before that are counted under other names."""
        now = time.time()
        self._done[f"seconds/{self.phase}"] += now - self._began - sum(apart.values())
        for name, seconds in apart.items():
            self._done[f"seconds/{name}"] += seconds
        self.phase, self._began = phase, now

    def rollout(self, weights: Weights | None, version: int) -> tuple[Summary, Chunk]:
        """Play T steps with these weights; equal versions are not loaded again. A policy server has them itself."""
        self._enter("rollout")
        began = time.perf_counter()
        self.acting.load(weights, version)
        if len(self.env.texts) > MOST_TEXTS:
            self._forget_texts()
        if self.goals is None and self.setup.goals.source != "none":
            self._set_goals(self._goals_before)
        length, n = self.setup.actors.steps, self.env.num_envs
        random = np.random.default_rng([self.setup.seed, self.index, self.sequence]).random((length, n), np.float32)
        if self.memory is None:
            self.memory = self.acting.initial_state(n)
        first_memory = None if self.memory is None else self.memory.copy()
        record = _Record(length, n, self.obs)
        policy_seconds = goals_seconds = 0.0
        for t in range(length):
            clock = time.perf_counter()
            logits, value, memory = self.acting.step(self.obs, self.memory)
            if self.guide:
                logits = self.guide.mix(logits, self.obs, self.memory)
            action, log_prob = sample(logits, random[t])
            policy_seconds += time.perf_counter() - clock
            episode = self.env.episode
            if self.goals:
                record.status[t] = self.goals.status
            transition = self.env.advance(action)
            if self.history:
                self.history.advance(action, transition)
            if self.goals:
                clock = time.perf_counter()
                record.paid[t] = self.goals.advance(transition)
                goals_seconds += time.perf_counter() - clock
            record.add(t, action, log_prob, value, episode, transition, memory)
            self.obs = transition.obs
            self.memory = memory
            if memory is not None and len(transition.final_index):
                self.memory = memory.copy()
                self.memory[transition.final_index] = 0
        self._enter("pack", policy=policy_seconds, goals=goals_seconds)
        record.value[length] = self.acting.step(self.obs, self.memory)[1]
        chunk = self._pack(record, version, first_memory)
        self.sequence += 1
        self._done["steps"] += chunk.steps
        self._done["rollouts"] += 1
        seconds = {"rollout": time.perf_counter() - began, "policy": policy_seconds}
        episodes = Episodes.concatenate(record.episodes)
        goals = self.goals.report() if self.goals else {}
        summary = Summary(self.index, self.sequence - 1, version, chunk.steps, episodes, self._state(), seconds, goals)
        self._enter("idle")
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
        """Play the episodes of `seeds` once each in envs of their own; training envs are not touched.

        Args:
            weights, version: the policy, for `who == "policy"`.
            seeds: int64 [n] episode seeds.
            who: `policy`, `random`, `expert` or `language_model`.
            greedy: the policy takes its most probable action.
            record: how many of the first episodes to animate.
            elsewhere: another world, other prompts of a language model, or no goals; None: as this actor does.
        """
        self._enter("evaluate")
        setup = elsewhere or self.setup
        env = envs.make(setup.env_id, len(seeds), **setup.env_options)
        goals = partial(self._make_goals, patient=True) if setup.goals.source != "none" else None
        player: Player = RandomPlayer()
        if who == "policy":
            self.acting.load(weights, version)
            acting = self.acting
            if elsewhere:
                assert isinstance(acting, LanguageActing), "other policies read no prompts, and know one world"
                acting = acting.play_in(env, acting.prompter.within(setup.policy, setup.spec))
            player = PolicyPlayer(acting, greedy)
        elif who == "expert":
            player = ExpertPlayer(envs.registry.family(setup.env_id.partition("/")[0]).Expert())
        elif who == "language_model":
            assert self.setup.language is not None, "the controller starts the service for stages that ask it"
            language = self.setup.language
            door = language.door(
                f"actor-{self.index}", "none" if language.when_away == "cached" else language.when_away
            )
            player = LanguagePlayer(door, greedy, language.patience_s)
        played = play(env, player, seeds, record, goals, self._make_history(env, setup))
        self._done["episodes"] += len(seeds)
        self._enter("idle")
        return played

    def _forget_texts(self) -> None:
        """Continue in an equal env whose table is empty: captions are without number, and a run may last for days."""
        state, goals, history = self.env.state(), self.goals, self.history
        self.env = self._make_env()
        self.obs = self.env.restore(state)
        if history:
            self.history = self._make_history(self.env)
            assert self.history is not None
            self.history.restore(history.state())
            self.obs = self.history.observe(self.obs)
        if goals:
            self._set_goals(goals.state())
        self.acting = self.acting.play_in(self.env)
        if self.guide:
            self.guide = self.guide.play_in(self.acting)

    def _pack(self, record: _Record, version: int, first_memory: NDArray[Any] | None) -> Chunk:
        final_obs = record.final_observations(self.obs)
        final_value = np.zeros(0, np.float32)
        if len(record.final_index):
            final_memory = np.stack(record.final_memory) if record.final_memory else None
            final_value = self.acting.step(final_obs, final_memory)[1]
        table = self.env.texts
        texts: dict[int, str] = {}
        for obs in (record.obs, final_obs):
            for name in self.acting.text_fields:
                texts |= table.export(obs[name])
                obs[name] = table.hashes(obs[name])
        return Chunk(
            actor=self.index,
            incarnation=self.incarnation,
            sequence=self.sequence,
            version=version,
            env_index=self.env.env_index,
            obs={n: record.obs[n] for n in self.acting.fields},
            final_obs={n: final_obs[n] for n in self.acting.fields},
            final_index=np.array(record.final_index, np.int32).reshape(-1, 2),
            action=record.action,
            action_mask=None,
            log_prob=record.log_prob,
            value=record.value,
            final_value=final_value,
            rewards={"env": record.reward} | ({COLUMN: record.paid} if self.goals else {}),
            terminated=record.terminated,
            truncated=record.truncated,
            policy_state=first_memory,
            episode=record.episode,
            texts=texts,
            llm_status=record.status,
        )

    def _state(self) -> dict[str, NDArray[Any]]:
        state = {f"env.{name}": value for name, value in self.env.state().items()}
        state["sequence"] = np.array(self.sequence)
        if self.memory is not None:
            state["memory"] = self.memory.copy()
        if self.history:
            state |= {f"history.{name}": value for name, value in self.history.state().items()}
        if self.goals:
            state |= {f"goals.{name}": value for name, value in self.goals.state().items()}
        return state


def _part(state: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


class _Record:
    """The columns of a chunk while it is being played."""

    def __init__(self, length: int, n: int, obs: Observation) -> None:
        self.obs = {name: np.empty((length + 1, *value.shape), value.dtype) for name, value in obs.items()}
        for name, value in obs.items():
            self.obs[name][0] = value
        self.action = np.empty((length, n), np.int64)
        self.log_prob = np.empty((length, n), np.float32)
        self.value = np.empty((length + 1, n), np.float32)
        self.reward = np.empty((length, n), np.float32)
        self.paid = np.zeros((length, n), np.float32)  # for goals
        self.status = np.zeros((length, n), np.uint8)  # whence they were
        self.terminated = np.empty((length, n), np.bool_)
        self.truncated = np.empty((length, n), np.bool_)
        self.episode = np.empty((length, n), np.int64)
        self.final_index: list[tuple[int, int]] = []
        self.final_memory: list[NDArray[Any]] = []
        self.final_obs: list[Observation] = []
        self.episodes: list[Episodes] = []

    def add(
        self,
        t: int,
        action: NDArray[np.int64],
        log_prob: NDArray[np.float32],
        value: NDArray[np.float32],
        episode: NDArray[np.int64],
        transition: envs.Transition,
        memory: NDArray[Any] | None,
    ) -> None:
        self.action[t], self.log_prob[t], self.value[t], self.episode[t] = action, log_prob, value, episode
        self.reward[t], self.terminated[t] = transition.reward, transition.terminated
        self.truncated[t] = transition.truncated
        for name, column in transition.obs.items():
            self.obs[name][t + 1] = column
        if len(transition.final_index):
            self.final_index += [(t, int(i)) for i in transition.final_index]
            self.final_obs.append(transition.final_obs)
            self.episodes.append(transition.episodes)
            if memory is not None:
                self.final_memory += [memory[i] for i in transition.final_index]

    def final_observations(self, like: Observation) -> Observation:
        """All last observations of ended episodes, [D, ...]."""
        return {
            name: np.concatenate([value[:0], *[part[name] for part in self.final_obs]]) for name, value in like.items()
        }
