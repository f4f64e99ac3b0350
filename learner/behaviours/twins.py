"""Trajectories that are nearly the same: which pairs, and the groups that they form.

    pose [N, T] ──> means of 10 sections ──KD-tree, a bound──> candidates ──mean distance──> twins ──> groups, margin

The distance of two trajectories is the mean over their steps of the distance between the robots, world units. It is at
least the mean distance between the means of sections, by the triangle inequality, so that no twin is missed.

The limit is the number of candidates, 400 steps each: a million takes two seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

SECTIONS = 10
_AT_ONCE = 4096
_SLACK = 1e-3  # world units: single precision must not lose a candidate


class Trajectories:
    """N trajectories and an index of them.

    Args:
        place: float32 [N, T, 2], positions at the same T steps, world units.
    """

    def __init__(self, place: NDArray[np.float32]) -> None:
        self.place = place
        edges = np.linspace(0, place.shape[1], min(SECTIONS, place.shape[1]) + 1).astype(np.intp)
        self._weight = np.diff(edges) / place.shape[1]  # of each section
        sections = np.add.reduceat(place, edges[:-1], axis=1, dtype=np.float64) / np.diff(edges)[None, :, None]
        self._sections = (sections * self._weight[None, :, None]).reshape(len(place), -1)

    def __len__(self) -> int:
        return len(self.place)

    def near(self, other: Trajectories, within: float) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Pairs of a row here and a row of another set at most `within` world units apart, in blocks: two arrays each.

        A pair of sections (dx, dy) with distance d has |dx| + |dy| <= sqrt(2) d: the KD-tree needs a sum per axis.
        """
        tree = cKDTree(other._sections)
        reach = np.sqrt(2) * (within + _SLACK)
        for begin in range(0, len(self), _AT_ONCE):
            found = tree.query_ball_point(self._sections[begin : begin + _AT_ONCE], reach, p=1.0)
            rows = begin + np.repeat(np.arange(len(found)), [len(each) for each in found])
            others = np.concatenate([np.array(each, np.intp) for each in found]) if len(rows) else rows
            for at in range(0, len(rows), _AT_ONCE):
                a, b = rows[at : at + _AT_ONCE], others[at : at + _AT_ONCE]
                bound = np.linalg.norm((self._sections[a] - other._sections[b]).reshape(len(a), -1, 2), axis=-1)
                a, b = (side[bound.sum(1) <= within + _SLACK] for side in (a, b))
                apart = np.linalg.norm(self.place[a] - other.place[b], axis=-1).mean(1, dtype=np.float64)
                yield a[apart <= within], b[apart <= within]


def groups(place: NDArray[np.float32], name: NDArray[np.int64], within: float) -> NDArray[np.int64]:
    """The group of each of N trajectories [N, T, 2]: those that twins connect are one group, int64 [N].

    name: int64 [N]; trajectories of one name are one group in any case. A group is called by its smallest name.
    within: mean distance of twins, world units.
    """
    every = Trajectories(place)
    pairs = [np.stack(pair) for pair in every.near(every, within)]
    _, first, number = np.unique(name, return_index=True, return_inverse=True)
    a, b = np.concatenate([*pairs, np.stack([np.arange(len(name)), first[number]])], 1)
    edges = coo_array((np.ones(len(a), np.int8), (a, b)), shape=(len(name), len(name)))
    count, label = connected_components(edges, directed=False)
    least = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(least, label, name)
    group: NDArray[np.int64] = least[label]
    return group


def margin(
    place: NDArray[np.float32], group: NDArray[np.int64], held_out: NDArray[np.bool_], within: float
) -> NDArray[np.bool_]:
    """Which of N trajectories are too near to held-out ones to be learned from, and are not held out: [N].

    A group goes as a whole.
    """
    inside, outside = np.flatnonzero(held_out), np.flatnonzero(~held_out)
    close = [b for _, b in Trajectories(place[inside]).near(Trajectories(place[outside]), within)]
    touched = np.unique(group[outside[np.concatenate([*close, np.zeros(0, np.intp)])]])
    return np.isin(group, touched) & ~held_out
