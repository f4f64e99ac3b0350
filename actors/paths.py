"""The experience of some rows in all their trials, and what they retrieved; one of them is drawn in the report.

    a trial ends ──> Lived, of these rows ──┐
    a query      ──> the chunk it found   ──┴──> the row whose gain is the median ──> arrays of one row

It needs memory for these rows' steps while they play.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.memories import Lived
from learner.store.ranking import Found

Integers = NDArray[np.int64]


class Paths:
    """All trials of rows [R] among those that play at the same time; possibly none."""

    def __init__(self, rows: Integers) -> None:
        self._rows = rows
        self._lived: list[Lived] = []
        self._queries = [np.zeros((0, 6), np.int64)]

    def look(self, rows: Integers, step: int, found: Found) -> None:
        """Record what rows [Q] found in a step of their current trial."""
        of = np.isin(rows, self._rows)
        there = np.stack([found[name][of, 0] for name in ("number", "start", "stop")], 1)
        now = np.broadcast_to([len(self._lived), step], (len(there), 2))
        self._queries.append(np.column_stack([rows[of], now, there]))

    def keep(self, lived: Lived) -> None:
        """Add a trial of every row."""
        own = self._rows
        obs = {name: column[:, own] for name, column in lived.obs.items()}
        self._lived.append(Lived(obs, lived.action[:, own], lived.reward[:, own], lived.length[own]))

    def typical(self) -> dict[str, NDArray[Any]]:
        """The row with the median rise of the return from the first trial to the last, the lower one of two; empty if
        there are no rows.

        `place`: index of the row, [1]. `length`: int64 [trials]. `action`, `reward` and `obs.NAME`: of all its S steps,
        one trial after the other. `query`: int64 [Q, 5]: trial and step of each query; trial, first step and end of the
        chunk that it found, -1 if it found none.
        """
        if not len(self._rows):
            return {}
        first, last = (self._lived[i].reward.sum(0, dtype=np.float64) for i in (0, -1))
        place = int(np.argsort(last - first, kind="stable")[(len(self._rows) - 1) // 2])
        obs, action, reward = zip(*(lived.of(place) for lived in self._lived), strict=True)
        found: dict[str, NDArray[Any]] = {f"obs.{name}": np.concatenate([of[name] for of in obs]) for name in obs[0]}
        queries = np.concatenate(self._queries)
        return found | {
            "place": np.array([place]),
            "length": np.array([lived.length[place] for lived in self._lived]),
            "action": np.concatenate(action),
            "reward": np.concatenate(reward),
            "query": np.ascontiguousarray(queries[queries[:, 0] == self._rows[place], 1:]),
        }
