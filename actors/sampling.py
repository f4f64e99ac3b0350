"""From logits to actions, by random numbers that the caller draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Step = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[Any] | None]
"""What a policy makes of B observations: logits [B, A], values [B], and what it remembers, [B, ...] or None."""


def choose(
    logits: NDArray[np.float32], uniform: NDArray[np.float32] | None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Actions [B] and their log-probabilities [B]: sampled, or the best without random numbers, for certain then."""
    if uniform is None:
        return logits.argmax(-1), np.zeros(len(logits), np.float32)
    return sample(logits, uniform)


def sample(logits: NDArray[np.float32], uniform: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Draw actions [B] from logits [B, A] with uniform numbers [B] in [0, 1); also their log-probabilities [B].

    An action is the first whose cumulative probability is above the number drawn. No compiled code: loading it takes an
    actor a second, and the sums of a few actions are quick.
    """
    logits = np.asarray(logits)
    shifted = logits - np.maximum.reduce(logits, 1, keepdims=True)
    # In float64: float32 sums may end below the number drawn, and a forbidden action would be taken.
    reached = np.add.accumulate(np.exp(shifted, dtype=np.float64), 1)
    total = reached[:, -1]
    actions = (reached > (uniform * total)[:, None]).argmax(1)
    log_probs = shifted[np.arange(len(actions)), actions] - np.log(total)
    return actions, log_probs.astype(np.float32)
