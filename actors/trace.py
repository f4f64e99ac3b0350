"""A run's potential along recorded episodes: evaluations get no shaping rewards, but show what they would be.

obs, actions of every step of the first envs ──> `wrappers.shaping.Watch` ──> phi [T + 1], F [T], reward [T]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.wrappers import shaping
from envs.api import DenseEnv, Observation, Transition
from learner.forms import shaped

STEPS = 128
"""Steps that are evaluated together: all steps of long episodes of pictures would take gigabytes."""

Values = NDArray[np.float32]


@dataclass(frozen=True)
class Trace:
    """One episode of T steps.

    phi: float32 [T + 1] of every state, including the final one.
    paid: float32 [T], F = gamma phi(s') - phi(s), with phi(s') = 0 where the episode terminated.
    reward: float32 [T], the environment's.
    """

    phi: Values
    paid: Values
    reward: Values


class Tracer:
    """Follows the first episodes of the first envs of a stack; it only reads observations.

    Args:
        record: how many envs, at least 1.
    """

    def __init__(self, env: DenseEnv, config: shaping.Config, record: int, obs: Observation) -> None:
        self._watch, self._discount, self._record = shaping.Watch(env, config), config.discount, record
        self._columns: list[tuple[Values, ...]] = []  # of each chunk, [T, R]: phi before and after, F, reward
        self._steps: list[tuple[NDArray[np.bool_], Values]] = []  # since then: terminated, reward
        self._watch.begin(self._of_first(obs))

    def _of_first(self, obs: Observation) -> Observation:
        return {name: obs[name][: self._record] for name in self._watch.potential.fields}

    def add(self, actions: NDArray[Any], t: Transition) -> None:
        """A step of all envs of the stack."""
        n = self._record
        index = t.final_index[t.final_index < n]
        final = {name: column[t.final_index < n] for name, column in t.final_obs.items()}
        self._watch.add(actions[:n], replace(t, obs=self._of_first(t.obs), final_index=index, final_obs=final))
        self._steps.append((t.terminated[:n].copy(), t.reward[:n].copy()))
        if len(self._steps) == STEPS:
            self._judge()

    def _judge(self) -> None:
        terminated, reward = (np.stack(column) for column in zip(*self._steps, strict=True))
        phi, after, _ = self._watch.chunk()
        self._columns.append((phi[:-1], after, shaped(phi[:-1], after, terminated, self._discount), reward))
        self._steps = []

    def traces(self, lengths: NDArray[np.int32]) -> list[Trace]:
        """Traces of each env's first episode, with lengths [R]."""
        if self._steps:
            self._judge()
        before, after, paid, reward = (np.concatenate(column) for column in zip(*self._columns, strict=True))
        return [
            Trace(np.append(before[:n, i], after[n - 1, i]), paid[:n, i], reward[:n, i])
            for i, n in enumerate(lengths.tolist())
        ]
