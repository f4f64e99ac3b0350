"""Memories of rows that play the same task again and again: what each has lived, and where in it a step may look.

    an episode ends ──> returns to go of what was paid ──> encoder ──> keys ──> MemoryIndex, owner = row
    a query         ──> the nearest ──> similarity and return ──> the best chunk ──> keys and values, once ──> Memory
    no encoder      ──> any chunk ─────────────────────────────────────^

Entries are pointers into the episodes, which are kept here. An episode's keys are computed of it alone, and a tie goes
to the older chunk: so what a row finds does not depend on which rows play beside it.
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
"""Steps of chunks, as many each as the longest may have, whose keys and values are kept; beyond that, those that are
looked at are computed again."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Lived:
    """One episode of each of B rows, T steps at most; what comes after a row's last step means nothing."""

    obs: Observation  # [T, B, ...]
    action: NDArray[Any]  # int64 [T, B] or float32 [T, B, D]
    reward: NDArray[np.float32]  # [T, B]
    length: Integers  # [B]

    def of(self, row: int) -> tuple[Observation, NDArray[Any], NDArray[np.float32]]:
        """What one row observed, did and was paid."""
        own = np.s_[: self.length[row], row]
        obs = {name: np.ascontiguousarray(column[own]) for name, column in self.obs.items()}
        return obs, self.action[own].copy(), self.reward[own].copy()


class Memories:
    """What B rows remember: at first nothing.

    Args:
        model: that looks at chunks.
        encoder: that makes keys, and queries; None: any chunk is as good as any other.
        config: chunks, and how many are found.
        weights: of the score, by name of a term.
        newest: entries of each row that stay; 0: all.
        task: int64 [B], of each row.
        whose: int64 [B], the row in whose memory each one looks; its own, but for the control.
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
        self._place: dict[int, int] = {}  # in the memory, of each entry whose chunk is there

    def __len__(self) -> int:
        """Entries of all rows."""
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
        """The chunk that each of some rows [R] looks at from now on: its number in `memory`, -1 for none, int64 [R];
        and what that is, [R, 1].

        queries: [R, width], where there is an encoder. uniform: in [0, 1), [R]: which one it is, where there is none.
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
        """Keys and values of chunks that were looked at; None before there is any."""
        return self._memory

    def _remember(self, best: Ranked) -> None:
        """Compute keys and values of those chunks whose are not there."""
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
    """Of parts of episodes, each obs, action, reward and returns to go."""
    obs = {name: np.concatenate([part[0][name] for part in parts]) for name in parts[0][0]}
    action, reward, ahead = (np.concatenate([part[i] for part in parts]) for i in (1, 2, 3))
    return ChunkSteps(*_tensors(obs, ahead, action, reward))


def _steps(
    obs: Observation, action: NDArray[Any], reward: NDArray[np.float32], ahead: NDArray[np.float32]
) -> StepInputs:
    """A whole episode as its player could have seen it, had it known what would be paid."""
    last_action, last_reward = np.roll(action, 1, 0), np.roll(reward, 1)
    last_action[0], last_reward[0] = none_of(action), 0
    return StepInputs(*_tensors(obs, ahead, last_action, last_reward))
