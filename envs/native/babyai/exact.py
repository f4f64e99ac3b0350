"""Rows from Minigrid's own generator: the episode of a seed is the very episode that Minigrid makes of it.

Minigrid needs 0.3 to 3 ms for a level, which is a thousand steps of the compiled engine. So levels that will be needed
can be made ahead, by processes of their own: whoever begins an episode says which seed comes after it.

    take(seeds)    rows of these levels; waits for those that are on their way, makes those that nobody began
    expect(seeds)  begin these; without processes, nothing
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.babyai.levels import build
from envs.native.babyai.layout import Rows, row_size
from envs.native.babyai.packing import pack

_TASK = 8  # levels a message: one costs about as much to ask for as to make


class ExactLevels:
    """Levels of one name.

    Args:
        level, max_steps: as `envs.babyai.levels.build`.
        workers: processes that make levels ahead; 0: levels are made when they are taken.
    """

    def __init__(self, level: str, max_steps: int | None = None, workers: int = 0) -> None:
        self.level, self.max_steps = level, max_steps
        self._coming: dict[int, tuple[Future[Rows], int]] = {}  # seed -> (the task that makes it, its row there)
        self._pool: ProcessPoolExecutor | None = None
        if workers:
            self._pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _end_with_parent)

    def expect(self, seeds: NDArray[np.int64]) -> None:
        """These will be taken."""
        if self._pool is None:
            return
        wanted = [seed for seed in seeds.tolist() if seed not in self._coming]
        for first in range(0, len(wanted), _TASK):
            group = wanted[first : first + _TASK]
            try:
                task = self._pool.submit(make, self.level, self.max_steps, group)
            except BrokenProcessPool:
                return  # they are made when they are taken
            self._coming |= {seed: (task, i) for i, seed in enumerate(group)}

    def take(self, seeds: NDArray[np.int64]) -> Rows:
        """Rows [n, K] of the levels of `seeds`."""
        rows: dict[int, Rows] = {}
        for seed in seeds.tolist():
            if seed in self._coming:
                task, i = self._coming.pop(seed)
                try:
                    rows[seed] = task.result()[i]
                except BrokenProcessPool:
                    self.close()  # somebody killed a process: go on without
        missing = [seed for seed in seeds.tolist() if seed not in rows]
        rows |= dict(zip(missing, make(self.level, self.max_steps, missing), strict=True))
        return np.stack([rows[seed] for seed in seeds.tolist()])

    def forget(self) -> None:
        """What was expected will not be taken."""
        self._coming.clear()

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None
        self._coming.clear()


def make(level: str, max_steps: int | None, seeds: list[int]) -> Rows:
    """Rows [n, K] of Minigrid's levels of `seeds`."""
    simulator, size = _simulator(level, max_steps)
    rows = np.empty((len(seeds), size), np.int16)
    for row, seed in zip(rows, seeds, strict=True):
        simulator.reset(seed=seed)
        pack(simulator, row)
    return rows


_of_thread = threading.local()  # an environment makes one level at a time


def _simulator(level: str, max_steps: int | None) -> tuple[Any, int]:
    """This thread's environment to make levels with, and how long their rows are."""
    key = f"{level} {max_steps}"
    if key not in vars(_of_thread):
        simulator = build(level, max_steps)
        simulator.gen_obs = dict  # nobody looks
        vars(_of_thread)[key] = simulator, row_size(simulator.width, simulator.height)
    found: tuple[Any, int] = vars(_of_thread)[key]
    return found


def _end_with_parent() -> None:
    """End this process when its parent ends, however it ends."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
