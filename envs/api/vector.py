"""`VectorEnv`, the dense face: N episodes of a world as arrays, for engines.

A world subclasses `VectorEnv` and writes `_start_one`, `_step_one` and `_observe`; a batch engine overrides `_start`,
`_advance` and `_replay` instead of the first two; `_kinds` tells task kinds apart where there are several, and
`_counts` what came about in episodes where that is counted. A world keeps N episodes as arrays and never builds a
string per step: texts are ids in `self.texts`.

Determinism: episode k of env i is a function of (seed, i, k) alone (`episode_seed`). The state of an env between two
steps is therefore (its episode, the actions taken in it): `state()` is a few small arrays and `restore()` replays them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from envs.api.face import GymnasiumFace
from envs.api.records import Chunk, EnvSpec, Episodes, Observation, Transition, episode_seed
from envs.text import TextTable

AHEAD = 8
"""Episodes of an env whose seeds are computed together."""


class VectorEnv(GymnasiumFace):
    """N episodes of one world, stepped together.

    Args:
        num_envs: N.
        seed: root of every episode seed.
        first_index: global index of env 0, so that a world may be spread over many processes.

    Attributes:
        events: int32 [N], text ids of what the players did in the last step ("chop tree"), -1 for nothing of note; all
            -1 in worlds without events. Where an episode ended, of its last step. Written anew by each step, -1 after
            `begin` and `restore`.
        failed: bool [N], whether what was tried in the last step failed, in worlds that tell it; written anew by each
            step.
        reward: float32 [N], what the last step gave, to those whose episode it ended too; written anew by each step.
        counted: bool [N], the envs that `report` is about; who plays a named episode in each clears those that are
            through.
        group: so many neighbouring envs have equal episodes at equal counters, which `begin` makes equal. N and
            `first_index` are multiples of it.
    """

    def __init__(self, env_spec: EnvSpec, num_envs: int, seed: int = 0, first_index: int = 0) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        if not 0 <= seed < 2**63 or not 0 <= first_index <= 2**31 - 1 - num_envs:
            raise ValueError(f"seed and first_index must not be negative, nor huge: got {seed} and {first_index}")
        self.env_spec = env_spec
        self.num_envs = num_envs
        self.texts = TextTable()
        self.events = np.full(num_envs, -1, np.int32)
        self.failed = np.zeros(num_envs, np.bool_)
        self.reward = np.zeros(num_envs, np.float32)
        self.counted = np.ones(num_envs, np.bool_)
        self.group = 1
        self.env_index = np.arange(first_index, first_index + num_envs, dtype=np.int32)
        self._rows = np.arange(num_envs)
        self._root = np.full(num_envs, seed, np.int64)
        self._first = np.full(num_envs, -1, np.int64)  # explicit seed of episode 0, -1: derived from the root
        self._seeds_named = False  # whether there is any
        self._episode = np.full(num_envs, -1, np.int64)  # -1: not begun
        self._seed = np.zeros(num_envs, np.int64)
        self._ahead: list[dict[int, int]] = [{}] * num_envs  # by counter, the seeds of coming episodes
        self._length = np.zeros(num_envs, np.int32)
        self._longest = 0  # no running episode is longer
        self._total = np.zeros(num_envs, np.float32)
        self._log = np.zeros((num_envs, 64, *env_spec.action_shape), np.int16 if env_spec.discrete else np.float32)
        self.single_observation_space = env_spec.observation_space()
        self.single_action_space = env_spec.action_space()
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
        n = self.num_envs
        reward, terminated, truncated = np.empty(n, np.float32), np.empty(n, np.bool_), np.empty(n, np.bool_)
        for i, action in enumerate(actions):
            reward[i], terminated[i], truncated[i] = self._step_one(i, action)
        return reward, terminated, truncated

    def _replay(self, lengths: NDArray[np.int32], log: NDArray[Any]) -> None:
        """Bring every freshly started env i to step `lengths[i]` by the actions `log[i]`."""
        for i, length in enumerate(lengths.tolist()):
            for action in log[i, :length]:
                self._total[i] += self._step_one(i, action)[0]

    def _kinds(self) -> NDArray[np.int16]:
        """[N] task kind of the running episodes, indices into `env_spec.task_kinds`."""
        return np.zeros(self.num_envs, np.int16)

    def _counts(self) -> NDArray[np.int32]:
        """[N, K] how often each of `env_spec.counts` came about in the running episodes."""
        return np.zeros((self.num_envs, len(self.env_spec.counts)), np.int32)

    def _success(self, reward: NDArray[np.float32], terminated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """[N] whether a task was solved in this step."""
        return terminated & (reward > 0)

    def begin(self, seeds: NDArray[np.int64] | None = None) -> Observation:
        """Start the next episode in every env; `seeds` [N] names the episodes, else they follow from the root seed.

        Raises:
            ValueError: the seeds are not N integers of [0, 2**63).
        """
        if seeds is not None:
            if seeds.shape != (self.num_envs,) or seeds.dtype.kind not in "iu" or (seeds.astype(np.int64) < 0).any():
                raise ValueError(f"seeds must be {self.num_envs} integers that are not negative: got {seeds}")
            self._root[:] = self._first[:] = seeds
            self._seeds_named = True
            self._ahead = [{}] * self.num_envs
            self._episode[:] = -1
        elif self.group > 1:
            self._episode[:] = self._episode.max()
        self.events[:] = -1
        self._next_episode(self._rows)
        return self._observe(slice(None))

    def advance(self, actions: NDArray[Any]) -> Transition:
        """Step every env once; envs whose episode ends are reset in the same step.

        Raises:
            ValueError: the env has not begun, the actions are not [N, ...], or there is no such action. Nothing has
                moved then.
        """
        self._require_begun()
        actions = self._checked(actions)
        self._remember(actions)
        reward, terminated, truncated = self._advance(actions)
        self.reward = reward
        self._length += 1
        self._total += reward
        (ended,) = (terminated | truncated).nonzero()
        final_obs: Observation = {}
        episodes = Episodes.empty()
        if len(ended):
            final_obs = self._observe(ended)
            episodes = Episodes(
                env=self.env_index[ended],
                episode=self._episode[ended],
                seed=self._seed[ended],
                length=self._length[ended],
                total=self._total[ended],
                success=self._success(reward, terminated)[ended],
                kind=self._kinds()[ended],
                away=np.zeros(len(ended), np.int32),
                counts=self._counts()[ended],
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
        episode = self._episode[index]
        seeds = self._derived_seeds(index, episode)
        if self._seeds_named:
            first = self._first[index]
            seeds = np.where((episode == 0) & (first >= 0), first, seeds)
        self._seed[index] = seeds
        self._length[index] = 0
        self._total[index] = 0.0
        self._start(index, seeds)

    def _derived_seeds(self, index: NDArray[np.intp], episode: NDArray[np.int64]) -> NDArray[np.int64]:
        """`episode_seed` of envs `index` at counters `episode`, [len(index)]."""
        seeds = []
        for i, k in zip(index.tolist(), episode.tolist(), strict=True):
            if k not in self._ahead[i]:  # several at a time: the first takes ten times as long as one more
                root, env = int(self._root[i]), int(self._streams[i])
                self._ahead[i] = {j: episode_seed(root, env, j) for j in range(k, k + AHEAD if k else 1)}
            seeds.append(self._ahead[i][k])
        return np.array(seeds, np.int64)

    @property
    def _streams(self) -> NDArray[np.int32]:
        """[N] what, beside root and counter, the seeds of an env's episodes follow from."""
        return self.env_index // np.int32(self.group)

    def _require_begun(self) -> None:
        if self._episode[0] < 0:
            raise ValueError(f"{self.env_spec.id} has not begun: call reset (or begin) first")

    def _checked(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self.env_spec.checked(actions, self.num_envs)

    def _remember(self, actions: NDArray[Any]) -> None:
        self._longest += 1
        if self._longest > self._log.shape[1]:
            self._longest = int(self._length.max()) + 1
            if self._longest > self._log.shape[1]:
                self._log = np.concatenate([self._log, np.zeros_like(self._log)], axis=1)
        self._log[self._rows, self._length] = actions

    # ---- state between two steps --------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to continue: seeds, counters, and the actions of the running episodes."""
        self._require_begun()
        longest = int(self._length.max())
        log = self._log[:, :longest].copy()
        log[np.arange(longest) >= self._length[:, None]] = 0  # what earlier, longer episodes left there
        return {
            "root": self._root.copy(),
            "first": self._first.copy(),
            "episode": self._episode.copy(),
            "length": self._length.copy(),
            "log": log,
        }

    def restore(self, state: dict[str, NDArray[Any]]) -> Observation:
        """Continue from `state()` of an equal env, by replaying the running episodes. Returns the observations.

        Raises:
            ValueError: the state is of another number of envs, or damaged. The env is as it was then.
        """
        self._check_state(state)
        for name, kept in (("root", self._root), ("first", self._first), ("episode", self._episode)):
            kept[:] = state[name]
        self._seeds_named = bool((self._first >= 0).any())
        self._ahead = [{}] * self.num_envs
        self._longest = int(state["length"].max())
        self._begin_current(self._rows)
        lengths, log = state["length"], state["log"]
        self._replay(lengths, log)
        self.events[:] = -1  # a state does not tell what was done last where an episode has just ended
        self._length[:] = lengths
        self._log = np.zeros((self.num_envs, max(64, log.shape[1] + 1), *log.shape[2:]), self._log.dtype)
        self._log[:, : log.shape[1]] = log
        return self._observe(slice(None))

    def _check_state(self, state: dict[str, NDArray[Any]]) -> None:
        """What replays it trusts it: nothing may reach compiled code unchecked."""
        missing = {"root", "first", "episode", "length", "log"} - state.keys()
        if missing:
            raise ValueError(f"the state of {self.env_spec.id} lacks {', '.join(sorted(missing))}")
        columns: list[NDArray[Any]] = [self._root, self._first, self._episode, self._length]
        for name, kept in zip(("root", "first", "episode", "length"), columns, strict=True):
            if state[name].shape != kept.shape:
                raise ValueError(f"the state is of {len(state[name])} envs, this env has {self.num_envs}")
            if state[name].dtype != kept.dtype:
                raise ValueError(f"the state of {self.env_spec.id} is damaged: {name} is {state[name].dtype}")
        if state["root"].min() < 0 or state["episode"].min() < 0 or state["first"].min() < -1:
            raise ValueError(f"the state of {self.env_spec.id} is damaged: seeds and counters cannot be negative")
        lengths, log = state["length"], state["log"]
        fits = log.dtype == self._log.dtype and log.ndim == self._log.ndim and len(log) == self.num_envs
        if not fits or log.shape[2:] != self._log.shape[2:] or lengths.min() < 0 or lengths.max() > log.shape[1]:
            raise ValueError(f"the state of {self.env_spec.id} is damaged: lengths and log do not fit")
        if self.env_spec.discrete and log.size and not 0 <= log.min() <= log.max() < len(self.env_spec.action_names):
            raise ValueError(f"the state of {self.env_spec.id} is damaged: it holds actions that do not exist")

    # ---- language -----------------------------------------------------------------------------------------------

    def captions(self, obs: Observation) -> list[list[str]]:
        """Sentences that describe each of N observations; worlds without a captioner say so."""
        raise LookupError(f"{self.env_spec.id} has no captions")

    def _sentences(self, obs: Observation, fields: Sequence[str], remedy: str) -> list[list[str]]:
        """Sentences of those of the text fields that N observations have, dense or as strings.

        Raises:
            LookupError: they have none; says what to do, the `remedy`.
        """
        told = [obs[name] for name in fields if name in obs]
        if not told:
            raise LookupError(f"this {self.env_spec.id} observes no text: {remedy}")
        texts = [[text if isinstance(text, str) else self.texts[text] for text in column] for column in told]
        return [[sentence for text in row for sentence in text.split(". ")] for row in zip(*texts, strict=True)]

    def situations(self) -> NDArray[np.int32]:
        """Text ids, int32 [N], of what a language model is told of each env now: equal situations, equal texts."""
        raise LookupError(f"{self.env_spec.id} has no situations")

    def tell(self, facts: NDArray[np.int64]) -> dict[str, NDArray[np.int32]]:
        """Text ids, int32 [n], by name of a text field or `situation`, of the sentences that facts [n, F] make, as
        `env_spec.facts` says; worlds without facts say so."""
        raise LookupError(f"{self.env_spec.id} makes no sentences of facts")

    def possible_goals(self) -> NDArray[np.bool_]:
        """Which of `env_spec.goals` make sense now, bool [N, G]; worlds without goals of their own say so."""
        raise LookupError(f"{self.env_spec.id} has no goals of its own")

    def frame(self, i: int) -> NDArray[np.uint8]:
        """RGB picture of env i, uint8 [H, W, 3]; worlds that cannot draw say so."""
        raise LookupError(f"{self.env_spec.id} cannot be drawn")

    # ---- what a `Wrapper` may have to say: a world alone has nothing -----------------------------------------------

    def goals_of(self, i: int) -> list[str] | None:
        """The goals that are told to env i now; None where none are."""
        return None

    def report(self) -> dict[str, Any]:
        """Numbers since the last report, by the name of the wrapper that counted them."""
        return {}

    def seconds(self) -> dict[str, float]:
        """Seconds since the last call of it that are to be told apart, by the name of the wrapper that took them."""
        return {}

    def finish(self, chunk: Chunk) -> None:
        """A chunk was played, and leaves. A wrapper that pays by the chunk adds its reward column here."""
