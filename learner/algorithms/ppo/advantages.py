"""Advantages and value targets from chunks, as pure functions on arrays [T, N].

One recursion computes both: V-trace's corrected returns (Espeholt et al. 2018, eq. 1, with lambda as in remark 2), and
an advantage that, at importance ratio 1, is exactly GAE (Schulman et al. 2016, eq. 16).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled

Array = NDArray[np.float32]


def next_values(
    value: Array,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    final_index: NDArray[np.int32],
    final_value: Array,
) -> Array:
    """The value of the state after each step, [T, N].

    After an episode's end, `value` [T+1, N] holds the value of the next episode's first state. There the last state of
    the ended episode counts instead: its value `final_value` [D] at `final_index` [D, 2] if truncated, 0 if terminated.
    """
    following = value[1:].copy()
    if len(final_index):
        following[final_index[:, 0], final_index[:, 1]] = final_value
    following[terminated] = 0.0
    return following


def vtrace(
    reward: Array,
    value: Array,
    following: Array,
    done: NDArray[np.bool_],
    rho: Array,
    discount: float,
    gae_lambda: float,
) -> tuple[Array, Array]:
    """Advantages and value targets, each [T, N].

    Args:
        reward: [T, N].
        value: [T, N] of the current policy.
        following: [T, N] from `next_values`.
        done: [T, N] an episode ended with this step (terminated or truncated).
        rho: [T, N] probability of the action under the current policy over that under the behaviour policy.
        discount: gamma.
        gae_lambda: lambda; scales the trace.

    Ratios are clipped to 1 from above, in the correction and in the trace.
    With rho = 1 everywhere the advantage is GAE and the target is advantage + value.
    """
    clipped: Array = np.minimum(rho, np.float32(1))
    goes_on = np.where(done, np.float32(0), np.float32(discount * gae_lambda))
    advantage = reward + np.float32(discount) * following - value  # one-step errors at first
    _accumulate(advantage, goes_on, clipped)
    return advantage, value + clipped * advantage


@compiled
def _accumulate(errors: Array, goes_on: Array, clipped: Array) -> None:
    """Turn one-step errors [T, N] into advantages, from the last step to the first."""
    length, envs = errors.shape
    for t in range(length - 2, -1, -1):
        for n in range(envs):
            errors[t, n] += goes_on[t, n] * (clipped[t + 1, n] * errors[t + 1, n])  # v_{t+1} - V(s_{t+1}) in brackets
