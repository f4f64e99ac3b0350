"""Advantages from groups of episodes that began alike, as pure functions: no critic, one outcome is told by the others.

    grpo    (R - mean of the group) / std of the group        Shao et al. 2024, arXiv 2402.03300, section 4.1.2
    rloo    R - mean of the group's others                    Kool et al. 2019; Ahmadian et al. 2024, arXiv 2402.14740
    gigpo   grpo of the episode + omega * grpo of the step    Feng et al. 2025, arXiv 2505.10978, eq. 2 to 8

R is an episode's return; each of its steps gets the episode's advantage. `gigpo` also compares steps: those of a group
in equal states form a group of their own (an anchor state), and compare the discounted returns that followed.

The chunk's end cuts episodes off before their outcome is known. A group counts once all its episodes have ended:
members that end early are often those that succeed, and comparing these alone would say that success is ordinary.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Relative = Literal["grpo", "rloo", "gigpo"]

SMALL = 1e-6
"""Least standard deviation: where all returns are equal, nothing is learned."""


class Credit(NamedTuple):
    """Of T steps in N envs."""

    advantage: Array  # [T, N]; 0 where the group does not count
    counts: NDArray[np.bool_]  # [T, N] whether the step's group does


def relative(value: NDArray[np.floating], group: NDArray[np.int64], kind: Literal["grpo", "rloo"]) -> Array:
    """How much better each of K values is than its group, [K]; 0 for a group of one.

    group: [K] a number for each group, from 0.
    """
    value = value.astype(np.float64)
    count = np.bincount(group)[group]
    mean = (np.bincount(group, value) / np.maximum(np.bincount(group), 1))[group]
    apart = value - mean
    if kind == "rloo":  # value - (count * mean - value) / (count - 1)
        return (apart * count / np.maximum(count - 1, 1)).astype(np.float32)
    std = np.sqrt((np.bincount(group, apart * apart) / np.maximum(np.bincount(group), 1))[group])
    return np.where(std > SMALL, apart / np.maximum(std, SMALL), 0.0).astype(np.float32)


def returns_to_go(reward: Array, done: NDArray[np.bool_], discount: float) -> Array:
    """The discounted rewards from each step to its episode's end, or the chunk's, [T, N]."""
    found = reward.astype(np.float64)
    for t in range(len(reward) - 2, -1, -1):
        found[t] += np.where(done[t], 0.0, discount * found[t + 1])
    return found.astype(np.float32)


def credit(
    kind: Relative,
    reward: Array,
    done: NDArray[np.bool_],
    episode: NDArray[np.int64],
    group: NDArray[np.int64],
    state: NDArray[np.int64],
    discount: float,
    omega: float,
) -> Credit:
    """Advantages of the steps of episodes that all began in this chunk.

    Args:
        reward: [T, N].
        done: [T, N] an episode ended with this step.
        episode: [T, N] counter of the episode in its env; equal counters in a group are equal episodes.
        group: [N] the group of each env.
        state: [T, N] a number for each state; equal states have equal numbers.
        discount: of `gigpo`'s returns of steps; an episode's own return is the plain sum.
        omega: weight of `gigpo`'s steps.
    """
    columns = np.broadcast_to(np.arange(reward.shape[1]), reward.shape)
    own = _numbered(columns, episode)  # [T, N] each env's episodes apart
    shared = _numbered(np.broadcast_to(group, reward.shape), episode)  # [T, N] those of a group together
    size = own.max() + 1
    total = np.bincount(own.ravel(), reward.ravel().astype(np.float64), size)  # [E] returns
    ended = np.bincount(own.ravel(), done.ravel(), size) > 0
    of = _by_episode(shared, own, size)  # the group of each episode
    members = np.bincount(group)[group[_by_episode(columns, own, size)]]  # [E] envs in its group
    complete = np.bincount(of, ended, shared.max() + 1)[of] == members

    basis: Literal["grpo", "rloo"] = "rloo" if kind == "rloo" else "grpo"
    by_episode = np.zeros(size, np.float32)
    by_episode[complete] = relative(total[complete], _numbered(of[complete]), basis)
    advantage, counts = by_episode[own], complete[own]
    if kind == "gigpo":
        later = returns_to_go(reward, done, discount)
        anchors = _numbered(shared[counts], state[counts])
        advantage[counts] += np.float32(omega) * relative(later[counts], anchors, "grpo")
    return Credit(advantage, counts)


def _numbered(*keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Equal numbers, from 0, where all keys are equal; of the keys' shape."""
    rows = np.stack([key.ravel() for key in keys], 1)
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(keys[0].shape)


def _by_episode(told: NDArray[np.int64], own: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """What all steps of each episode share, [E], from what is told of steps [T, N]."""
    found = np.zeros(size, np.int64)
    found[own.ravel()] = told.ravel()
    return found
