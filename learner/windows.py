"""The last steps of N envs: the input of a potential, carried from chunk to chunk.

    obs, actions of every step ──> Trail ──> Windows [M, K, ...], once a chunk ──> phi [M]

The window of a state: its own observation last, preceded by the K - 1 observations that led there, and the actions
between them. No window reaches into an earlier episode: before its start, the first observation is repeated with action
-1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import Observation, Transition
from envs.text import TextTable

NO_ACTION = -1
"""Marks steps before the first action."""

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Windows:
    """M windows of K observations, oldest first; the last one is the state itself.

    Windows of consecutive states share K - 1 observations: each observation is stored once, and windows refer to it.
    """

    rows: Observation  # each [R, ...]; of texts, their ids
    index: Rows  # [M, K] into `rows`
    actions: Rows  # [M, K - 1], `NO_ACTION` before the first of the episode

    @classmethod
    def of(cls, obs: Observation, actions: Rows) -> Windows:
        """Windows without shared observations, from observations [M, K, ...]."""
        m, length = len(actions), actions.shape[1] + 1
        rows = {name: column.reshape(m * length, *column.shape[2:]) for name, column in obs.items()}
        return cls(rows, np.arange(m * length).reshape(m, length), actions)

    def __len__(self) -> int:
        return len(self.actions)

    def obs(self, name: str) -> NDArray[Any]:
        """A field of all windows, [M, K, ...]: a copy."""
        column: NDArray[Any] = self.rows[name][self.index]
        return column

    def now(self, name: str) -> NDArray[Any]:
        """A field of the states themselves, [M, ...]: a copy."""
        column: NDArray[Any] = self.rows[name][self.index[:, -1]]
        return column


class Trail:
    """Remembers the K - 1 steps before a chunk, and the chunk while it is played.

    Args:
        fields: names of the observation fields to remember.
        length: K, at least 1.
        texts: those of the fields whose entries are ids in `table`.
    """

    def __init__(
        self, fields: Sequence[str], length: int, texts: Collection[str] = (), table: TextTable | None = None
    ) -> None:
        self.fields, self.length = tuple(fields), length
        self._texts = tuple(name for name in fields if name in texts)
        self._table = TextTable() if table is None else table
        self._obs: list[Observation] = []  # each [N, ...]; the first state of the chunk is number K - 1
        self._actions: list[Rows] = []  # each [N]; the first of the chunk is number K - 1
        self._age: list[Rows] = []  # [N] steps since the episode began, from the first state of the chunk on
        self._last: list[tuple[NDArray[np.int32], Observation]] = []  # for each step: ended episodes

    def begin(self, obs: Observation) -> None:
        """New episodes begin in all envs."""
        first = self._kept(obs)
        n = len(first[self.fields[0]])
        self._obs = [first] * self.length
        self._actions = [np.full(n, NO_ACTION, np.int64)] * (self.length - 1)
        self._age, self._last = [np.zeros(n, np.int64)], []

    def add(self, actions: NDArray[Any], transition: Transition) -> None:
        """A step of all envs."""
        self._actions.append(np.array(actions, np.int64))
        self._obs.append(self._kept(transition.obs))
        age = self._age[-1] + 1
        age[transition.final_index] = 0
        self._age.append(age)
        self._last.append(
            (transition.final_index, self._kept(transition.final_obs) if len(transition.final_index) else {})
        )

    def _kept(self, obs: Observation) -> Observation:
        return {name: obs[name].copy() for name in self.fields}

    def now(self) -> Windows:
        """Windows [N] of the current states."""
        return Windows(self._rows(), *self._of_states(np.array([len(self._age) - 1])))

    def chunk(self) -> tuple[Windows, Rows]:
        """End the chunk. Returns windows [T * N + D], and the (t, n) [D, 2] of the last D.

        The states after each step come first, t by t (after an episode's end, the next one's first state), then the
        last states of the D ended episodes. The next chunk begins with the current states.
        """
        steps = len(self._last)
        ended = np.array([(t, n) for t, (envs, _) in enumerate(self._last) for n in envs], np.int64).reshape(-1, 2)
        states, last = self._of_states(np.arange(1, steps + 1)), self._of_last(*ended.T)
        finals = [part for _, part in self._last if part]
        index, actions = (np.concatenate(parts) for parts in zip(states, last, strict=True))
        found = Windows(self._rows(finals), index, actions)
        self._obs = self._obs[steps:]
        self._actions, self._age, self._last = self._actions[steps:], self._age[-1:], []
        return found, ended

    def _rows(self, finals: Sequence[Observation] = ()) -> Observation:
        """All remembered observations, in order, then the last ones of ended episodes."""
        return {name: np.concatenate([part[name] for part in (*self._obs, *finals)]) for name in self.fields}

    def _of_states(self, place: Rows) -> tuple[Rows, Rows]:
        """Windows of all envs at these positions of the chunk, 0 to T: `index` and `actions` of P * N."""
        age = np.stack([self._age[p] for p in place])  # [P, N]
        back = np.arange(self.length - 1, -1, -1)  # steps before the state, oldest first
        row = self.length - 1 + place[:, None, None] - np.minimum(back, age[..., None])  # [P, N, K]
        env = np.arange(age.shape[1])
        actions = self._taken(place[:, None], env, age)
        return (row * len(env) + env[:, None]).reshape(-1, self.length), actions.reshape(age.size, self.length - 1)

    def _taken(self, place: Rows, env: Rows, age: Rows) -> Rows:
        """The actions [..., K - 1] that led to states `age` steps old at `place` of the chunk."""
        back = np.arange(self.length - 1, 0, -1)
        if not len(back):
            return np.zeros((*age.shape, 0), np.int64)
        row = self.length - 1 + place[..., None] - back
        actions = np.stack(self._actions)[row, env[..., None]]
        return np.where(back <= age[..., None], actions, NO_ACTION)

    def _of_last(self, t: Rows, n: Rows) -> tuple[Rows, Rows]:
        """Windows of the last states of D episodes, after step t of env n: `index` and `actions`."""
        age = np.stack(self._age)[t, n] + 1
        back = np.arange(self.length - 1, 0, -1)  # steps before the last state, which is stored after all others
        row = self.length + t[:, None] - np.minimum(back, age[:, None])
        envs = len(self._age[0])
        final = len(self._obs) * envs + np.arange(len(t))
        return np.concatenate([row * envs + n[:, None], final[:, None]], 1), self._taken(t + 1, n, age)

    def state(self) -> dict[str, NDArray[Any]]:
        """The state between two chunks. Texts are stored as texts, so that a trail with any table can continue."""
        state = {f"obs.{name}": np.stack([obs[name] for obs in self._obs]) for name in self.fields}
        for name in self._texts:
            state[f"obs.{name}"], state[f"texts.{name}"] = self._table.pack(state[f"obs.{name}"])
        return state | {"actions": np.stack([*self._actions, self._age[-1]])}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state()` of a trail of the same length and fields.

        Raises:
            ValueError: the state belongs to another trail; nothing has changed.
        """
        needed = [f"obs.{name}" for name in self.fields] + [f"texts.{name}" for name in self._texts]
        if not state.keys() >= {*needed} or any(len(state[f"obs.{name}"]) != self.length for name in self.fields):
            raise ValueError(f"the state does not remember {self.length} observations of {', '.join(self.fields)}")
        kept = {name: state[f"obs.{name}"] for name in self.fields}
        kept |= {name: self._table.unpack(kept[name], state[f"texts.{name}"]) for name in self._texts}
        self._obs = [{name: column[k] for name, column in kept.items()} for k in range(self.length)]
        *self._actions, age = state["actions"].copy()
        self._age, self._last = [age], []
