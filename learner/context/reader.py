"""Whole episodes and chunks of a store, as a history transformer's input.

    EpisodeStore ──> Reader: the episodes of each task, in order; returns to go, once for all steps
    episodes [E] ──episodes──> StepInputs, actions, lengths        (episode, start, stop) [K] ──chunks──> ChunkSteps

Steps are copied on demand, so a store may be larger than memory; only returns to go, eight bytes per step, must fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.context.chunks import Integers, to_go
from learner.context.config import BEST
from learner.models.sequence.history_steps import ChunkSteps, StepInputs, none_of
from learner.store.episodes import EpisodeStore
from learner.store.pieces import Steps

BLOCK = 2**20
"""Steps whose rewards are read at once."""


class Reader:
    """Episodes of learning histories.

    Args:
        store: of whole episodes, with their `task`, and `episode`, their number in the task.

    Attributes:
        order: int64 [E], the store's episodes by task and number.
        to_go: float64 [S], the return to go of each step of the store.
    """

    def __init__(self, store: EpisodeStore) -> None:
        self.store = store
        self.order = np.lexsort((store.episode, store.task))
        blocks = np.flatnonzero(np.diff(store.first[:-1] // BLOCK, prepend=-1))  # the first episode of each block
        parts = [np.zeros(0)]
        for begin, end in zip(blocks, [*blocks[1:], len(store)], strict=True):
            reward = store.rows(np.arange(store.first[begin], store.first[end])).reward
            parts.append(to_go(reward, store.length[begin:end]))
        self.to_go: NDArray[np.float64] = np.concatenate(parts)

    @property
    def reach(self) -> NDArray[np.float32]:
        """The largest return to go at each step of an episode, over all episodes that are long enough, [T]."""
        length = self.store.length.astype(np.int64)
        step = np.arange(length.sum()) - np.repeat(self.store.first[:-1], length)
        found = np.full(int(length.max()), -np.inf, np.float32)
        np.maximum.at(found, step, self.to_go)
        return found

    @property
    def best(self) -> NDArray[np.bool_]:
        """Which episodes are among the best of their task, bool [E], see `BEST`; at least two if there are two."""
        task, found = self.store.task[self.order], np.empty(len(self.order), np.bool_)
        end = np.searchsorted(task, task, "right")
        count = np.maximum(2, np.ceil(BEST * (end - np.searchsorted(task, task, "left"))))
        found[self.order] = np.arange(len(task)) >= end - count
        return found

    def earlier(self, episodes: Integers, skip: int) -> Integers:
        """For each episode [B], the episode of the same task whose number is lower by `skip`; -1 where there is
        none."""
        task, number = self.store.task, self.store.episode
        size = int(number.max()) + 1
        known = task[self.order] * size + number[self.order]  # ascending
        wanted = number[episodes] - skip
        code = task[episodes] * size + wanted
        at = np.searchsorted(known, code).clip(max=len(known) - 1)
        return np.where((wanted >= 0) & (known[at] == code), self.order[at], -1)

    def episodes(self, index: Integers) -> tuple[StepInputs, Tensor, list[int]]:
        """Whole episodes [B], one after the other: inputs before each step, actions, and lengths."""
        lengths = self.store.length[index].astype(np.int64)
        first = np.cumsum(lengths) - lengths
        steps, to_go = self._read(self.store.first[index], lengths)
        last_action, last_reward = np.roll(steps.action, 1, 0), np.roll(steps.reward, 1)
        last_action[first], last_reward[first] = none_of(last_action), 0
        place = np.arange(len(to_go)) - np.repeat(first, lengths)
        told = map(_tensor, (to_go, last_action, last_reward, place))
        given = StepInputs(_tensors(steps.obs), *told)
        return given, _tensor(steps.action), lengths.tolist()

    def new(self, index: Integers) -> tuple[NDArray[np.bool_], Integers]:
        """For whole episodes [B], one after the other: whether a step's observation and action are new in its episode;
        and the number of such steps of each, int64 [B]."""
        lengths = self.store.length[index].astype(np.int64)
        steps, _ = self._read(self.store.first[index], lengths)
        of = np.repeat(np.arange(len(index)), lengths)
        told = np.column_stack([of, steps.action, *steps.obs.values()])
        found = np.zeros(len(of), np.bool_)
        found[np.unique(told, axis=0, return_index=True)[1]] = True
        return found, np.bincount(of[found], minlength=len(index))

    def chunks(self, episode: Integers, start: Integers, stop: Integers) -> tuple[ChunkSteps, list[int]]:
        """Steps [start, stop) of episodes [K], one chunk after the other, and their lengths."""
        steps, to_go = self._read(self.store.first[episode] + start, stop - start)
        found = ChunkSteps(_tensors(steps.obs), _tensor(to_go), _tensor(steps.action), _tensor(steps.reward))
        return found, (stop - start).tolist()

    def _read(self, first: Integers, lengths: Integers) -> tuple[Steps, NDArray[np.float32]]:
        """Runs of steps of the store, and their returns to go."""
        index = np.arange(lengths.sum()) + np.repeat(first - (np.cumsum(lengths) - lengths), lengths)
        return self.store.rows(index), self.to_go[index].astype(np.float32)


def _tensor(column: NDArray[Any]) -> Tensor:
    return torch.from_numpy(column)


def _tensors(columns: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: _tensor(column) for name, column in columns.items()}
