"""Forms of shaping: how a potential becomes reward. `method.shaping.form` names one.

    phi of the states of a chunk [T + 1, N] and of last states [D] ──> Form ──> reward [T, N]

`potential` changes no optimal policy. The others are for comparison, and each may change the optimal policy.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

FormName = Literal["potential", "additive", "published"]
FEW = 1e-4
"""Pseudo-count of the initial variance 1, as is usual in the field."""

Phi = NDArray[np.float32]


def shaped(before: Phi, after: Phi, terminated: NDArray[np.bool_], discount: float) -> NDArray[np.float32]:
    """F = gamma phi(s') - phi(s) of steps, float32 of one shape with all arguments (Ng et al. 1999, eq. 2).

    Args:
        before, after: phi of the states before and after each step.
        terminated: the episode terminated there, so that nothing follows and phi(s') counts as 0.
        discount: gamma of the learner.
    """
    following = np.where(terminated, np.float32(0), after).astype(np.float64)
    return (discount * following - before).astype(np.float32)


class Form:
    """`potential`: F = gamma phi(s') - phi(s).

    Args:
        discount: gamma of the learner.
        num_envs: N.
    """

    def __init__(self, discount: float, num_envs: int) -> None:
        self.discount, self.num_envs = discount, num_envs

    def pay(self, phi: Phi, after: Phi, terminated: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Rewards float32 [T, N] of a chunk; chunks come in their order.

        Args:
            phi: [T + 1, N], of the states before each action, and of the next chunk's first states.
            after: [T, N], of the states after each step; at an episode's end, of its own last state.
            terminated: [T, N], the episode terminated there.
        """
        return shaped(phi[:-1], after, terminated, self.discount)

    def state(self) -> dict[str, NDArray[Any]]:
        """All state that is carried from chunk to chunk."""
        return {}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state()` of the same form."""


class Additive(Form):
    """`additive`: phi(s') itself is the reward. A policy that stays where phi is high is rewarded forever."""

    def pay(self, phi: Phi, after: Phi, terminated: NDArray[np.bool_]) -> NDArray[np.float32]:
        return after


class Published(Form):
    """`published`: the reward of Zhang et al.'s code (2024, arXiv 2407.03964), detail by detail.

    * Step t gets gamma I_t - I_(t-1), of the states before it: one step late.
    * The same holds across an episode's end: I of the next episode's state less I of the last episode's state. * An
    episode's final state is never evaluated, so the reward for reaching it is never taken back.
    * I is phi divided by a running deviation of its discounted sum, which continues across episodes. If phi is 0 for
      long, the deviation is nearly 0, and the first phi after that gives a huge I.
    * The row that is carried into the next chunk was already divided: it is divided and counted again.

    So the reward depends on the lengths of chunks, and each actor has its own deviation. That code weighs the
    environment's reward by 10 and phi by 1: use `learner.reward_weights` for this. Its treatment of windows is not
    reproduced: windows are ours.
    """

    def __init__(self, discount: float, num_envs: int) -> None:
        super().__init__(discount, num_envs)
        self.carried = np.zeros(num_envs)  # I of the last state of the chunk before
        self.total = np.zeros(num_envs)  # the discounted sum
        self.mean, self.variance, self.count = 0.0, 1.0, FEW  # of the sum, over all states

    def pay(self, phi: Phi, after: Phi, terminated: NDArray[np.bool_]) -> NDArray[np.float32]:
        rows = np.concatenate([self.carried[None], phi[:-1].astype(np.float64)])
        sums = np.empty_like(rows)
        for t, row in enumerate(rows):
            self.total = self.discount * self.total + row
            sums[t] = self.total
        self._count(sums)
        rows /= np.sqrt(self.variance)
        self.carried = rows[-1]
        paid: NDArray[np.float32] = (self.discount * rows[1:] - rows[:-1]).astype(np.float32)
        return paid

    def _count(self, sums: NDArray[np.float64]) -> None:
        """Combine the moments of two parts (Chan et al. 1979)."""
        count, apart = self.count + sums.size, sums.mean() - self.mean
        squares = self.variance * self.count + sums.var() * sums.size + apart**2 * self.count * sums.size / count
        self.mean += float(apart * sums.size / count)
        self.variance, self.count = float(squares / count), count

    def state(self) -> dict[str, NDArray[Any]]:
        moments = np.array([self.mean, self.variance, self.count])
        return {"carried": self.carried, "total": self.total, "moments": moments}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        self.carried, self.total = state["carried"].copy(), state["total"].copy()
        self.mean, self.variance, self.count = state["moments"].tolist()


FORMS: dict[FormName, type[Form]] = {"potential": Form, "additive": Additive, "published": Published}
