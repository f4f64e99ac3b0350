"""The contract between worlds and everything else: `VectorEnv`, `Transition`, `Chunk`, `Summary`.

    seed ──> VectorEnv.begin ──> obs ──> policy ──> actions ──> VectorEnv.advance ──> Transition ──> ... ──> Chunk

A world subclasses `VectorEnv` and writes `_start_one`, `_step_one` and `_observe`; a batch engine overrides `_start`,
`_advance` and `_replay` instead of the first two; `_kinds` tells task kinds apart where there are several. A world
keeps N episodes as arrays and never builds a string per step: texts are ids in `self.texts`.

Two faces:

* dense, for engines: `begin()` and `advance(actions)` exchange arrays and text ids;
* Gymnasium, for users: `reset()` and `step(actions)` return strings where the space says text, build `info`, and copy
  what the caller may keep.

Determinism: episode k of env i is a function of (seed, i, k) alone (`episode_seed`). The state of an env between two
steps is therefore (its episode, the actions taken in it): `state()` is a few small arrays and `restore()` replays them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from envs.text import TextTable

Observation = dict[str, NDArray[Any]]

HELD_OUT_FIRST = 1_000_000_000
"""Seeds from here on are never drawn by `episode_seed`: training cannot see an evaluation level."""


def episode_seed(seed: int, env_index: int, episode: int) -> int:
    """Seed of one training episode, in [0, HELD_OUT_FIRST), from (seed, env, episode) alone."""
    words = np.random.SeedSequence([seed, env_index, episode]).generate_state(1)
    return int(words[0]) % HELD_OUT_FIRST


TEXT_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ,.;:'-_()àâçéèêëîïôûùœ")


@dataclass(frozen=True)
class Field:
    """One entry of an observation.

    kind: `grid` (uint8 symbols [H, W, 3]: object, colour, state), `category` (integer in [0, size)),
          `vector` (float32 [D]), `text` (int32 id in `VectorEnv.texts`).
    shape: of one env's entry, without the batch axis.
    size: number of categories for `category`; per-channel numbers of symbols are the encoder's business for `grid`.
    """

    kind: Literal["grid", "category", "vector", "text"]
    shape: tuple[int, ...] = ()
    size: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype({"grid": np.uint8, "category": np.int64, "vector": np.float32, "text": np.int32}[self.kind])

    def space(self) -> spaces.Space[Any]:
        """The Gymnasium space of one env's entry, as users see it (texts are strings there)."""
        if self.kind == "text":
            return spaces.Text(max_length=4096, charset=TEXT_CHARACTERS)
        if self.kind == "category":
            return spaces.Discrete(self.size)
        if self.kind == "grid":
            return spaces.Box(0, 255, self.shape, np.uint8)
        return spaces.Box(-np.inf, np.inf, self.shape, np.float32)


@dataclass(frozen=True)
class EnvSpec:
    """What a policy must know of a world to be built, without building the world. Plain data, cheap to send."""

    id: str
    fields: dict[str, Field]
    action_names: tuple[str, ...]  # empty for a continuous action space
    action_shape: tuple[int, ...] = ()  # () for Discrete, (D,) for Box
    words: tuple[str, ...] = ()  # every word that missions and captions may hold, sorted
    task_kinds: tuple[str, ...] = ("task",)
    expert: bool = False  # the family module publishes `Expert`, with `act(env) -> int[N]`

    @property
    def discrete(self) -> bool:
        return bool(self.action_names)

    def observation_space(self) -> spaces.Dict:
        return spaces.Dict({name: entry.space() for name, entry in self.fields.items()})

    def action_space(self) -> spaces.Space[Any]:
        if self.discrete:
            return spaces.Discrete(len(self.action_names))
        return spaces.Box(-np.inf, np.inf, self.action_shape, np.float32)


@dataclass
class Episodes:
    """Finished episodes, one row each ([D])."""

    env: NDArray[np.int32]  # global env index
    episode: NDArray[np.int64]  # k: counts the episodes of that env
    seed: NDArray[np.int64]  # what the world was reset with
    length: NDArray[np.int32]  # steps
    total: NDArray[np.float32]  # undiscounted return, `env` column
    success: NDArray[np.bool_]
    kind: NDArray[np.int16]  # index into EnvSpec.task_kinds

    @staticmethod
    def concatenate(parts: Sequence[Episodes]) -> Episodes:
        """All rows of `parts`, in order; `parts` may be empty."""
        parts = [Episodes.empty(), *parts]
        return Episodes(**{n: np.concatenate([getattr(p, n) for p in parts]) for n in Episodes.__annotations__})

    @staticmethod
    def empty() -> Episodes:
        return Episodes(
            env=np.zeros(0, np.int32),
            episode=np.zeros(0, np.int64),
            seed=np.zeros(0, np.int64),
            length=np.zeros(0, np.int32),
            total=np.zeros(0, np.float32),
            success=np.zeros(0, np.bool_),
            kind=np.zeros(0, np.int16),
        )

    def __len__(self) -> int:
        return len(self.env)


@dataclass
class Transition:
    """What one `advance` yields. Arrays may be reused by the next call: copy what you keep."""

    obs: Observation  # [N, ...], already of the next episode where one ended
    reward: NDArray[np.float32]  # [N]
    terminated: NDArray[np.bool_]  # [N]
    truncated: NDArray[np.bool_]  # [N]
    final_index: NDArray[np.int32]  # [D] envs whose episode ended in this step
    final_obs: Observation  # [D, ...] their last observation
    episodes: Episodes  # [D]


@dataclass
class Chunk:
    """T steps of N envs: the only thing an actor hands to a learner. Text entries hold 64-bit hashes, not ids.

    Exactly-once insertion is by (actor, sequence): a restarted actor continues the count of the last chunk that was
    taken, and `incarnation` tells its chunks from those of its predecessor.
    """

    # who made it, and with which weights
    actor: int
    incarnation: int
    sequence: int
    version: int
    env_index: NDArray[np.int32]  # [N] global env indices
    # what happened
    obs: Observation  # [T+1, N, ...]
    final_obs: Observation  # [D, ...] last observations of episodes that ended in this chunk
    final_index: NDArray[np.int32]  # [D, 2] their (t, n)
    action: NDArray[Any]  # [T, N] or [T, N, A]
    action_mask: NDArray[np.bool_] | None  # [T+1, N, A] allowed actions, None when all are
    log_prob: NDArray[np.float32]  # [T, N] of the behaviour policy
    value: NDArray[np.float32]  # [T+1, N] the behaviour policy's own estimate
    final_value: NDArray[np.float32]  # [D] the same at final_obs
    rewards: dict[str, NDArray[np.float32]]  # named columns [T, N]: env, goal, intrinsic, shaping
    terminated: NDArray[np.bool_]  # [T, N]
    truncated: NDArray[np.bool_]  # [T, N]
    policy_state: NDArray[np.float32] | None  # [N, H] recurrent state at t = 0, None without memory
    episode: NDArray[np.int64]  # [T, N] episode counter k of the env
    # language
    texts: dict[int, str]  # hash -> text, those that are new to the receiver
    llm_status: NDArray[np.uint8]  # [T, N] how a language model's answer was had; 0: none was asked for

    @property
    def steps(self) -> int:
        """Env steps in this chunk, T * N."""
        return int(self.terminated.size)


@dataclass
class Summary:
    """The small part of a delivery, for whoever schedules: it travels beside the chunk and is read without it."""

    actor: int
    sequence: int
    version: int
    steps: int
    episodes: Episodes  # finished within the chunk
    state: dict[str, NDArray[Any]]  # envs and policy after the chunk: what a successor of this actor restores
    seconds: dict[str, float] = field(default_factory=dict)  # wall time spent in env, policy, and the whole


class VectorEnv(gymnasium.vector.VectorEnv):
    """N episodes of one world, stepped together. See the module docstring for the two faces.

    Args:
        num_envs: N.
        seed: root of every episode seed.
        first_index: global index of env 0, so that a world may be spread over many processes.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": ["rgb_array"]}  # type: ignore[misc]

    def __init__(self, env_spec: EnvSpec, num_envs: int, seed: int = 0, first_index: int = 0) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        self.env_spec = env_spec
        self.num_envs = num_envs
        self.texts = TextTable()
        self.env_index = np.arange(first_index, first_index + num_envs, dtype=np.int32)
        self._root = np.full(num_envs, seed, np.int64)
        self._first = np.full(num_envs, -1, np.int64)  # explicit seed of episode 0, -1: derived from the root
        self._episode = np.full(num_envs, -1, np.int64)  # -1: not begun
        self._seed = np.zeros(num_envs, np.int64)
        self._length = np.zeros(num_envs, np.int32)
        self._total = np.zeros(num_envs, np.float32)
        self._log = np.zeros((num_envs, 64, *env_spec.action_shape), np.int16 if env_spec.discrete else np.float32)
        self.single_observation_space = env_spec.observation_space()
        self.single_action_space = env_spec.action_space()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    # ---- what a world writes: one env at a time ... -------------------------------------------------------------

    def _start_one(self, i: int, seed: int) -> None:
        """Reset env i with the reference simulator's own episode for `seed`."""
        raise NotImplementedError

    def _step_one(self, i: int, action: Any) -> tuple[float, bool, bool]:
        """Step env i: reward, terminated, truncated. No reset."""
        raise NotImplementedError

    def _observe(self, index: NDArray[np.intp] | slice) -> Observation:
        """Observations of envs `index`, [len(index), ...], as `env_spec.fields` says, in arrays of their own."""
        raise NotImplementedError

    # ---- ... or all at once, where a batch engine can do better -------------------------------------------------

    def _start(self, index: NDArray[np.intp], seeds: NDArray[np.int64]) -> None:
        """Reset envs `index`, one seed each."""
        for i, seed in zip(index.tolist(), seeds.tolist(), strict=True):
            self._start_one(i, seed)

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
        """Step all envs: reward, terminated, truncated, each [N]. No reset."""
        rewards, terminated, truncated = zip(
            *[self._step_one(i, action) for i, action in enumerate(actions)], strict=True
        )
        return np.array(rewards, np.float32), np.array(terminated, np.bool_), np.array(truncated, np.bool_)

    def _replay(self, lengths: NDArray[np.int32], log: NDArray[Any]) -> None:
        """Bring every freshly started env i to step `lengths[i]` by the actions `log[i]`."""
        for i, length in enumerate(lengths.tolist()):
            for action in log[i, :length]:
                self._total[i] += self._step_one(i, action)[0]

    def _kinds(self) -> NDArray[np.int16]:
        """[N] task kind of the running episodes, indices into `env_spec.task_kinds`."""
        return np.zeros(self.num_envs, np.int16)

    def _success(self, reward: NDArray[np.float32], terminated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """[N] whether a task was solved in this step."""
        return terminated & (reward > 0)

    # ---- dense face ---------------------------------------------------------------------------------------------

    def begin(self, seeds: NDArray[np.int64] | None = None) -> Observation:
        """Start the next episode in every env; `seeds` [N] names the episodes, else they follow from the root seed."""
        if seeds is not None:
            self._root[:] = self._first[:] = seeds
            self._episode[:] = -1
        self._next_episode(np.arange(self.num_envs))
        return self._observe(slice(None))

    def advance(self, actions: NDArray[Any]) -> Transition:
        """Step every env once; envs whose episode ends are reset in the same step."""
        self._remember(actions)
        reward, terminated, truncated = self._advance(actions)
        self._length += 1
        self._total += reward
        ended = np.flatnonzero(terminated | truncated)
        final_obs: Observation = {}
        episodes = Episodes.empty()
        if len(ended):
            final_obs = self._observe(ended)
            episodes = Episodes(
                env=self.env_index[ended],
                episode=self._episode[ended].copy(),
                seed=self._seed[ended].copy(),
                length=self._length[ended].copy(),
                total=self._total[ended].copy(),
                success=self._success(reward, terminated)[ended],
                kind=self._kinds()[ended],
            )
            self._next_episode(ended)
        obs = self._observe(slice(None))
        return Transition(obs, reward, terminated, truncated, ended.astype(np.int32), final_obs, episodes)

    @property
    def episode(self) -> NDArray[np.int64]:
        """[N] counter k of the running episodes."""
        return self._episode.copy()

    def _next_episode(self, index: NDArray[np.intp]) -> None:
        self._episode[index] += 1
        self._begin_current(index)

    def _begin_current(self, index: NDArray[np.intp]) -> None:
        for i in index:
            first = self._episode[i] == 0 and self._first[i] >= 0
            self._seed[i] = (
                self._first[i]
                if first
                else episode_seed(int(self._root[i]), int(self.env_index[i]), int(self._episode[i]))
            )
        self._length[index] = 0
        self._total[index] = 0.0
        self._start(index, self._seed[index])

    def _remember(self, actions: NDArray[Any]) -> None:
        longest = int(self._length.max()) + 1
        if longest > self._log.shape[1]:
            self._log = np.concatenate([self._log, np.zeros_like(self._log)], axis=1)
        self._log[np.arange(self.num_envs), self._length] = actions

    # ---- state between two steps --------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to continue: seeds, counters, and the actions of the running episodes."""
        longest = int(self._length.max())
        return {
            "root": self._root.copy(),
            "first": self._first.copy(),
            "episode": self._episode.copy(),
            "length": self._length.copy(),
            "log": self._log[:, :longest].copy(),
        }

    def restore(self, state: dict[str, NDArray[Any]]) -> Observation:
        """Continue from `state()` of an equal env, by replaying the running episodes. Returns the observations."""
        for name, expected in (("root", self._root), ("first", self._first), ("episode", self._episode)):
            if state[name].shape != expected.shape:
                raise ValueError(f"the state is of {len(state[name])} envs, this env has {self.num_envs}")
            expected[:] = state[name]
        self._begin_current(np.arange(self.num_envs))
        lengths, log = state["length"], state["log"]
        self._replay(lengths, log)
        self._length[:] = lengths
        self._log = np.zeros((self.num_envs, max(64, log.shape[1] + 1), *log.shape[2:]), self._log.dtype)
        self._log[:, : log.shape[1]] = log
        return self._observe(slice(None))

    # ---- language -----------------------------------------------------------------------------------------------

    def captions(self, obs: Observation) -> list[list[str]]:
        """Sentences that describe each of N observations; worlds without a captioner say so."""
        raise LookupError(f"{self.env_spec.id} has no captions")

    def frame(self, i: int) -> NDArray[np.uint8]:
        """RGB picture of env i, uint8 [H, W, 3]; worlds that cannot draw say so."""
        raise LookupError(f"{self.env_spec.id} cannot be drawn")

    # ---- Gymnasium face -----------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start new episodes. An integer seed s names episodes s, s+1, ...; without one, make's seed decides."""
        if seed is None:
            return self._public(self.begin()), {}
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int | np.integer) else list(seed)
        if len(seeds) != self.num_envs or any(s is None for s in seeds):
            raise ValueError(f"reset needs one seed for each of {self.num_envs} envs, got {seeds}")
        return self._public(self.begin(np.array(seeds, np.int64))), {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Gymnasium's vector step with same-step auto-reset: `info['final_obs'][i]` where `info['_final_obs'][i]`."""
        t = self.advance(np.asarray(actions))
        info: dict[str, Any] = {}
        if len(t.final_index):
            finals = np.full(self.num_envs, None, object)
            public = self._public(t.final_obs)
            for row, i in enumerate(t.final_index):
                finals[i] = {name: value[row] for name, value in public.items()}
            mask = np.zeros(self.num_envs, np.bool_)
            mask[t.final_index] = True
            success = np.zeros(self.num_envs, np.bool_)
            success[t.final_index] = t.episodes.success
            info = {"final_obs": finals, "_final_obs": mask, "success": success, "_success": mask.copy()}
        return self._public(t.obs), t.reward.astype(np.float64), t.terminated.copy(), t.truncated.copy(), info

    def _public(self, obs: Observation) -> Observation:
        """Strings for text ids, copies for the rest."""
        return {
            name: tuple(self.texts.texts(value)) if self.env_spec.fields[name].kind == "text" else value.copy()  # type: ignore[misc]
            for name, value in obs.items()
        }
