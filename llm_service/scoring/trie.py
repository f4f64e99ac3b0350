"""Candidates of one prompt as a trie, so that shared prefixes are computed once.

    candidates  (7 4) (7 5 9) (8)          inner nodes  0: root   1: 7   2: 7 5
                                           edges        0-7  1-4  1-5  2-9  0-8

Only inner nodes are fed to the model: node i yields the distribution of the next token, and an edge (node, token) reads
one log-probability from it. A candidate is a path of edges. Last tokens are never fed, because nothing after them is
needed. Node 0 precedes all candidates: the decoder's start token, or the last token of the prompt.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Trie:
    """K candidates as n inner nodes and m edges. Parents come before their children."""

    tokens: NDArray[np.int64]  # [n] the token fed at each node; 0 for the root, where it is unused
    depths: NDArray[np.int64]  # [n] 0 for the root
    sees: NDArray[np.bool_]  # [n, n] whether node i attends to node j: itself and its ancestors
    nodes: NDArray[np.int64]  # [m] the node where each edge starts
    labels: NDArray[np.int64]  # [m] the token of each edge
    paths: NDArray[np.int64]  # [K, longest] edges of each candidate; -1 after its end
    lengths: NDArray[np.int64]  # [K] tokens of each candidate


@functools.lru_cache(maxsize=1024)  # an environment has the same few sets of actions again and again
def grow(candidates: tuple[Tokens, ...]) -> Trie:
    """The trie of non-empty candidates; equal candidates share a path."""
    inner: dict[Tokens, int] = {(): 0}
    edges: dict[tuple[int, int], int] = {}
    paths = []
    for candidate in candidates:
        path = []
        for t, token in enumerate(candidate):
            node = inner.setdefault(candidate[:t], len(inner))
            path.append(edges.setdefault((node, token), len(edges)))
        paths.append(path)
    sees = np.eye(len(inner), dtype=bool)
    for prefix, node in inner.items():
        if prefix:
            sees[node] |= sees[inner[prefix[:-1]]]
    lengths = np.array([len(path) for path in paths], np.int64)
    padded = np.full((len(paths), max(lengths)), -1, np.int64)
    for row, path in zip(padded, paths, strict=True):
        row[: len(path)] = path
    ends = np.array(list(edges), np.int64)
    return Trie(
        tokens=np.array([prefix[-1] if prefix else 0 for prefix in inner], np.int64),
        depths=np.array([len(prefix) for prefix in inner], np.int64),
        sees=sees,
        nodes=ends[:, 0],
        labels=ends[:, 1],
        paths=padded,
        lengths=lengths,
    )
