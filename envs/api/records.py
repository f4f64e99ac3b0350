"""The data of the contract: what a world says of itself, and what flows from it to a learner. Plain dataclasses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

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
          `vector` (float32 [D]), `text` (int32 id in `VectorEnv.texts`; of shape (K,), a set of K texts),
          `pixels` (uint8 [H, W, 3], red, green, blue).
    shape: of one env's entry, without the batch axis.
    size: number of categories for `category`; for a `vector` of whole numbers from 0 on, what they all are below;
          per-channel numbers of symbols are the encoder's business for `grid`.
    privileged: a player could not know it, so no policy reads it, and no intrinsic reward judges it.
    """

    kind: Literal["grid", "category", "vector", "text", "pixels"]
    shape: tuple[int, ...] = ()
    size: int = 0
    privileged: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        kinds = {"grid": np.uint8, "category": np.int64, "vector": np.float32, "text": np.int32, "pixels": np.uint8}
        return np.dtype(kinds[self.kind])

    def space(self) -> spaces.Space[Any]:
        """The Gymnasium space of one env's entry, as users see it (texts are strings there)."""
        if self.kind == "text":
            return spaces.Text(max_length=4096, charset=TEXT_CHARACTERS)
        if self.kind == "category":
            return spaces.Discrete(self.size)
        if self.kind in ("grid", "pixels"):
            return spaces.Box(0, 255, self.shape, np.uint8)
        return spaces.Box(-np.inf, np.inf, self.shape, np.float32)


FACTS = "facts"
"""The field, a privileged vector of whole numbers, of the facts that a world's sentences are made of."""

CELLS = "cells"
"""The field, a privileged vector of whole numbers, of what is in each cell of a picture's upper part, row by row: the
place among the facts that are `anywhere`, or their number for nothing that is told."""


@dataclass(frozen=True)
class Fact:
    """Something that sentences tell: a column of the field `FACTS`.

    group: facts of one group are alike, such as the things in view; "" for what no sentence tells.
    size: its values are 0 to size - 1. With two, 1 is told and 0 is not; with more, the last is not told.
    anywhere: of two values: whether something is in any cell of the picture, see `CELLS`.
    """

    name: str
    group: str
    size: int = 2
    anywhere: bool = False


@dataclass(frozen=True)
class EnvSpec:
    """What a policy must know of a world to be built, without building the world. Plain data, cheap to send."""

    id: str
    fields: dict[str, Field]
    action_names: tuple[str, ...]  # empty for a continuous action space
    action_shape: tuple[int, ...] = ()  # () for Discrete, (D,) for Box
    action_bounds: tuple[tuple[float, float], ...] = ()  # least and largest of each of D numbers; empty: not told
    words: tuple[str, ...] = ()  # every word that missions and captions may hold, sorted
    task_kinds: tuple[str, ...] = ("task",)
    captioned: bool = False  # the world has sentences for what an observation shows
    score: str = ""  # what an episode's return counts, where that says more than success: "achievements unlocked"; or
    # "return", where nothing tells success
    eventful: bool = False  # `VectorEnv.events` tells what players did, and `situations` what there is to know
    counts: tuple[str, ...] = ()  # what is counted in each episode, such as achievements: columns of `Episodes.counts`
    goals: tuple[str, ...] = ()  # what one could set out to do; `VectorEnv.possible_goals` has a column for each
    facts: tuple[Fact, ...] = ()  # what its sentences are made of, which `VectorEnv.tell` does
    expert: bool = False  # the family module publishes `Expert`, with `act(env) -> int[N]`
    tasks: int = 0  # how many tasks its seeds name, as `task` says; 0: every seed is a task of its own
    held_out: int = 0  # of these, the last so many are named by held-out seeds, and by no others; 0: all seeds name all
    staged: bool = False  # once something has paid in an episode, other things pay, and no observation tells of that

    def task(self, seeds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which of the `tasks` each seed names, of the shape of `seeds`. The first seeds name them in order: 0, 1, ...,
        and `HELD_OUT_FIRST`, `HELD_OUT_FIRST` + 1, ... those that are held out. Without `tasks` it is the seed
        itself."""
        if not self.tasks:
            return seeds
        if not self.held_out:
            return seeds % self.tasks
        free = self.tasks - self.held_out
        return np.where(seeds < HELD_OUT_FIRST, seeds % free, free + (seeds - HELD_OUT_FIRST) % self.held_out)

    @property
    def discrete(self) -> bool:
        return bool(self.action_names)

    def observation_space(self) -> spaces.Dict:
        return spaces.Dict({name: entry.space() for name, entry in self.fields.items()})

    def action_space(self) -> spaces.Space[Any]:
        if self.discrete:
            return spaces.Discrete(len(self.action_names))
        low, high = np.array(self.action_bounds or [(-np.inf, np.inf)] * self.action_shape[0], np.float32).T
        return spaces.Box(low, high, self.action_shape, np.float32)

    def checked(self, actions: NDArray[Any], num_envs: int) -> NDArray[Any]:
        """The same actions, one for each env.

        Raises:
            ValueError: they are not, or there is no such action.
        """
        actions, expected = np.asarray(actions), [num_envs, *self.action_shape]
        if list(actions.shape) != expected:
            raise ValueError(f"actions of {self.id} must be {expected}, one for each env: got {list(actions.shape)}")
        if self.discrete and actions.dtype.kind not in "iub":
            raise ValueError(f"actions of {self.id} are integers: got {actions.dtype}")
        if self.discrete and (actions.min() < 0 or actions.max() >= len(self.action_names)):
            wrong = actions[(actions < 0) | (actions >= len(self.action_names))][0]
            raise ValueError(f"actions of {self.id} are 0 to {len(self.action_names) - 1}: got {wrong}")
        return actions


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
    away: NDArray[np.int32]  # steps for which a language model was asked for goals, and no answer was there
    counts: NDArray[np.int32]  # [D, K] how often each of `EnvSpec.counts` came about

    @staticmethod
    def concatenate(parts: Sequence[Episodes]) -> Episodes:
        """All rows of `parts`, in order; `parts` may be empty."""
        parts = [part for part in parts if len(part)] or [Episodes.empty()]  # one without rows has no K counts either
        return Episodes(**{n: np.concatenate([getattr(p, n) for p in parts]) for n in Episodes.__annotations__})

    @staticmethod
    @cache
    def empty() -> Episodes:
        """No episodes; the same each time, since most steps end none."""
        return Episodes(
            env=np.zeros(0, np.int32),
            episode=np.zeros(0, np.int64),
            seed=np.zeros(0, np.int64),
            length=np.zeros(0, np.int32),
            total=np.zeros(0, np.float32),
            success=np.zeros(0, np.bool_),
            kind=np.zeros(0, np.int16),
            away=np.zeros(0, np.int32),
            counts=np.zeros((0, 0), np.int32),
        )

    def __len__(self) -> int:
        return len(self.env)

    def take(self, which: NDArray[Any] | slice) -> Episodes:
        """The rows `which`: bool [D], their numbers, or a slice."""
        return Episodes(**{name: getattr(self, name)[which] for name in Episodes.__annotations__})


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
    # What wrappers add:
    rewards: dict[str, NDArray[np.float32]] = field(default_factory=dict)  # named columns [N] beside `reward`
    llm_status: NDArray[np.uint8] | None = None  # [N], as `Chunk.llm_status`; None: no language model was asked


@dataclass
class Written:
    """What a language model wrote in order to act, [...] being [T, N] in a chunk and [N] in one step.

    A chunk of T x N steps takes 8 L bytes a step for it.
    """

    tokens: NDArray[np.int32]  # [..., L] token ids, the end token included; -1 after an answer's end
    log_prob: NDArray[np.float32]  # [..., L] of each token, by the behaviour policy; 0 after an answer's end
    valid: NDArray[np.bool_]  # [...] an action was found in the answer; otherwise a random one was taken


@dataclass
class Chunk:
    """T steps of N envs: the only thing an actor hands to a learner. Text entries hold 64-bit hashes, not ids.

    (actor, sequence) names a chunk: a restarted actor continues the count after the last delivered one, and makes the
    chunk that was lost again. `incarnation` tells its chunks from those of its predecessor.
    """

    # who made it, and with which weights
    actor: int
    incarnation: int
    sequence: int
    version: int  # of its first step
    env_index: NDArray[np.int32]  # [N] global env indices
    # what happened
    obs: Observation  # [T+1, N, ...]
    final_obs: Observation  # [D, ...] last observations of episodes that ended in this chunk
    final_index: NDArray[np.int32]  # [D, 2] their (t, n)
    action: NDArray[Any]  # [T, N] or [T, N, A]
    log_prob: NDArray[np.float32]  # [T, N] of the behaviour policy: of the action, or of the whole answer `written`
    value: NDArray[np.float32]  # [T+1, N] the behaviour policy's own estimate
    final_value: NDArray[np.float32]  # [D] the same at final_obs
    rewards: dict[str, NDArray[np.float32]]  # named columns [T, N]: env, goal, intrinsic, shaping
    terminated: NDArray[np.bool_]  # [T, N]
    truncated: NDArray[np.bool_]  # [T, N]
    policy_state: NDArray[np.float32] | None  # [N, H] recurrent state at t = 0, None without memory
    episode: NDArray[np.int64]  # [T, N] episode counter k of the env
    # language
    texts: dict[int, str]  # hash -> text, every one that obs and final_obs name
    llm_status: NDArray[np.uint8]  # [T, N] how a language model's answer was had; 0: none was asked for
    # what is not always there
    embedded: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None  # texts that this actor names for the first
    # time: hashes [E] and embeddings [E, 384], so that no learner computes them again; None: the policy has no encoder
    written: Written | None = None  # the answers of a policy that writes; None of any other
    versions: NDArray[np.int64] | None = None  # [T] of the oldest weights in each step, if they changed in between
    group: int = 1  # so many neighbouring envs played equal episodes, which began in this chunk; 1: each its own

    @property
    def mean_version(self) -> float:
        """That of the weights which acted, a mean over steps."""
        return self.version if self.versions is None else float(self.versions.mean())

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
    report: dict[str, Any] = field(default_factory=dict)  # by wrapper: what it counted, as `VectorEnv.report`
