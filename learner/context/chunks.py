"""How an episode is cut into chunks, at which steps it queries the chunks of others, and returns to go.

    an episode, every = past = future = 25
    step    0         25        50        75       99
    chunks  [ 0 ...  24]                               key at step 2: at step 0 nothing has happened
            [ 0 ............ 49]                       key at step 25
                      [25 ............ 74]             key at step 50
                                [50 ............ 99]   key at step 75
    queries ^         ^         ^         ^            steps 0 to 24 use what the first query found, and so on

So a chunk shows the steps before and after its key (Schmied et al. 2024, arXiv 2410.07071, section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learner.context.config import RetrieveConfig

Integers = NDArray[np.int64]
FIRST_KEY = 2
"""The earliest step of a key, if an episode is that long."""


@dataclass(frozen=True)
class Chunks:
    """K chunks of E episodes, in their order. Steps count from 0 in each episode."""

    episode: Integers  # [K], 0 to E - 1
    key: Integers  # [K], the step whose pooled hidden state is the key
    start: Integers  # [K]; steps [start, stop) are the chunk
    stop: Integers  # [K]


def points_of(lengths: NDArray[Any], every: int) -> tuple[Integers, Integers]:
    """Steps 0, every, 2 every, ... of episodes of these lengths [E]: the episode and step of each, int64 [P]."""
    counts = -(-np.asarray(lengths, np.int64) // every)
    episode = np.repeat(np.arange(len(counts)), counts)
    return episode, (np.arange(len(episode)) - np.repeat(np.cumsum(counts) - counts, counts)) * every


def chunks_of(lengths: NDArray[Any], config: RetrieveConfig) -> Chunks:
    """The chunks of episodes of these lengths [E]; chunks are cut off at the ends of their episode."""
    episode, at = points_of(lengths, config.every)
    length = np.asarray(lengths, np.int64)[episode]
    return Chunks(
        episode,
        np.minimum(np.maximum(at, FIRST_KEY), length - 1),
        np.maximum(at - config.past, 0),
        np.minimum(at + config.future, length),
    )


def to_go(reward: NDArray[np.float32], lengths: NDArray[Any]) -> NDArray[np.float64]:
    """Return to go of each of S steps, [S]; `lengths` of the episodes, whose sum is S."""
    lengths = np.asarray(lengths, np.int64)
    paid = np.cumsum(reward, dtype=np.float64)
    end = np.repeat(np.cumsum(lengths) - 1, lengths)
    left: NDArray[np.float64] = paid[end] - paid + reward
    return left


def paid_in(ahead: NDArray[np.float64], start: Integers, stop: Integers, end: Integers | int) -> NDArray[np.float64]:
    """Sums of rewards of the chunks' steps [start, stop), [K]; steps count as in `ahead`.

    ahead: returns to go, [S]. A sum of 32-bit numbers is exact in 64 bits, so chunks with the same reward compare
    equal.
    end: of the chunks' episodes.
    """
    later: NDArray[np.float64] = np.where(stop < end, ahead[np.minimum(stop, end - 1)], 0.0)
    return ahead[start] - later
