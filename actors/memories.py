"""Memories of rows that play the same task repeatedly: each row's experience, and retrieval of chunks from it.

    an episode ends ──> returns to go ──> encoder ──> keys ──> MemoryIndex, owner = row
    a query         ──> the nearest ──> similarity and return ──> the best chunk ──> keys and values, once ──> Memory
    no encoder      ──> any chunk ─────────────────────────────────────^

Entries point into the episodes, which are kept here. An episode's keys depend only on it, and a tie goes to the older
chunk: so what a row finds does not depend on which rows play at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.api import Observation
from learner.context.chunks import chunks_of, paid_in, to_go
from learner.context.config import RetrieveConfig
from learner.context.encoders import Encoder
from learner.models.sequence.history_steps import ChunkSteps, StepInputs, none_of
from learner.models.sequence.history_transformer import HistoryTransformer
from learner.models.sequence.memory import Memory
from learner.store.ranking import Ranked, rank
from learner.store.retrieval import MemoryIndex

MOST = 2**18
"""Steps of chunks, each counted at the maximum length, whose keys and values are cached; beyond that they are computed
again when they are attended to."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Lived:
    """One episode of each of B rows, at most T steps; values after a row's last step have no meaning."""

    obs: Observation  # [T, B, ...]
    action: NDArray[Any]  # int64 [T, B] or float32 [T, B, D]
    reward: NDArray[np.float32]  # [T, B]
    length: Integers  # [B]

    def of(self, row: int) -> tuple[Observation, NDArray[Any], NDArray[np.float32]]:
        """One row's observations, actions and rewards."""
        own = np.s_[: self.length[row], row]
        obs = {name: np.ascontiguousarray(column[own]) for name, column in self.obs.items()}
        return obs, self.action[own].copy(), self.reward[own].copy()


class Memories:
    """The memories of B rows, initially empty.

    Args:
        model: the model that attends to chunks.
        encoder: makes keys and queries; None: chunks are drawn at random.
        config: chunks, and how many are found.
        weights: weights of the score, by name of a term.
        newest: number of newest entries to keep per row; 0: all.
        task: int64 [B], the task of each row.
        whose: int64 [B], the row whose memory each row searches; its own, except in the control.
    """

    def __init__(
        self,
        model: HistoryTransformer,
        encoder: Encoder | None,
        config: RetrieveConfig,
        weights: dict[str, float],
        newest: int,
        task: Integers,
        whose: Integers,
    ) -> None:
        self._model, self._encoder, self._config = model, encoder, config
        self._weights, self._newest, self._task, self._whose = weights, newest, task, whose
        self._index = MemoryIndex(encoder.width if encoder else 1)
        self._episodes: list[tuple[Observation, NDArray[Any], NDArray[np.float32], NDArray[np.float32]]] = []
        self._memory: Memory | None = None
        self._place: dict[int, int] = {}  # position in the memory of each entry whose chunk is cached

    def __len__(self) -> int:
        """Number of entries of all rows."""
        return len(self._index)

    def keep(self, trial: int, lived: Lived) -> None:
        """Add an episode of every row, its `trial`-th."""
        for row, task in enumerate(self._task.tolist()):
            obs, action, reward = lived.of(row)
            left, cut = to_go(reward, lived.length[row, None]), chunks_of(lived.length[row, None], self._config)
            paid, ahead = paid_in(left, cut.start, cut.stop, len(reward)), left.astype(np.float32)
            keys = torch.ones(len(cut.key), 1)
            if self._encoder is not None:
                steps = _steps(obs, action, reward, ahead)
                keys = self._encoder.of(steps, [len(reward)], torch.from_numpy(cut.key))
            columns: dict[str, Any] = {"owner": row, "task": task, "episode": len(self._episodes), "number": trial}
            columns |= {"return": reward.sum(dtype=np.float64)}
            columns = {name: np.full(len(cut.key), value) for name, value in columns.items()}
            self._index.append(keys, columns | {"start": cut.start, "stop": cut.stop, "paid": paid})
            self._episodes.append((obs, action, reward, ahead))
        if self._newest:
            self._index.keep_newest(self._newest, each_owner=True)

    def look(self, rows: Integers, queries: Tensor | None, uniform: NDArray[np.float64]) -> tuple[Tensor, Ranked]:
        """The chunk that each of some rows [R] attends to from now on: its number in `memory`, -1 for none, int64 [R];
        and the found entries, [R, 1].

        queries: [R, width], if there is an encoder. uniform: [R] in [0, 1), selects the chunk if there is none.
        """
        if queries is None:
            found = self._index.draw(torch.ones(len(rows), 1), self._whose[rows], uniform)
        else:
            found = self._index.search(queries, self._config.nearest, self._whose[rows])
        best = rank(found, self._weights, 1, self._task[rows])
        self._remember(best)
        places = [self._place.get(entry, -1) for entry in best.found.id[:, 0].tolist()]
        return torch.tensor(places), best

    @property
    def memory(self) -> Memory | None:
        """Keys and values of chunks that were attended to; None before there are any."""
        return self._memory

    def _remember(self, best: Ranked) -> None:
        """Compute keys and values of chunks that are not cached."""
        entries = {int(entry): i for i, entry in enumerate(best.found.id[:, 0]) if entry >= 0}
        if (len(self._place) + len(entries)) * self._model.shape.chunk > MOST:
            self._memory, self._place = None, {}
        new = {entry: i for entry, i in entries.items() if entry not in self._place}
        if not new:
            return
        at = list(new.values())
        pointers = zip(*(best.found[name][at, 0].tolist() for name in ("episode", "start", "stop")), strict=True)
        parts = [[_cut(column, start, stop) for column in self._episodes[e]] for e, start, stop in pointers]
        more = self._model.remember(_chunks(parts), [len(part[1]) for part in parts])
        self._place |= {entry: len(self._place) + i for i, entry in enumerate(new)}
        if self._memory is None:
            self._memory = more
        else:
            self._memory.add(more)


def _cut(column: Any, start: int, stop: int) -> Any:
    return {n: c[start:stop] for n, c in column.items()} if isinstance(column, dict) else column[start:stop]


def _tensors(obs: Observation, *columns: NDArray[Any]) -> tuple[Any, ...]:
    return {name: torch.from_numpy(column) for name, column in obs.items()}, *map(torch.from_numpy, columns)


def _chunks(parts: Sequence[Sequence[Any]]) -> ChunkSteps:
    """Observations, actions, rewards and returns to go of parts of episodes."""
    obs = {name: np.concatenate([part[0][name] for part in parts]) for name in parts[0][0]}
    action, reward, ahead = (np.concatenate([part[i] for part in parts]) for i in (1, 2, 3))
    return ChunkSteps(*_tensors(obs, ahead, action, reward))


def _steps(
    obs: Observation, action: NDArray[Any], reward: NDArray[np.float32], ahead: NDArray[np.float32]
) -> StepInputs:
    """A whole episode with its true returns to go, as if the player had known its rewards."""
    last_action, last_reward = np.roll(action, 1, 0), np.roll(reward, 1)
    last_action[0], last_reward[0] = none_of(action), 0
    return StepInputs(*_tensors(obs, ahead, last_action, last_reward))
