"""Forms of shaping: how what a potential says of states becomes reward. `method.shaping.form` names one.

    phi of the states of a chunk [T + 1, N] and of last states [D] ──> Form ──> reward [T, N]

`potential` changes no optimal policy. The others are there to be compared with it, and each may change one.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

FormName = Literal["potential", "additive", "published"]
FEW = 1e-4
"""Entries that statistics of variance 1 count for before there are any, as is usual in the field."""

Phi = NDArray[np.float32]


def shaped(before: Phi, after: Phi, terminated: NDArray[np.bool_], discount: float) -> NDArray[np.float32]:
    """F = gamma phi(s') - phi(s) of steps, float32 of one shape with all arguments (Ng et al. 1999, eq. 2).

    Args:
        before, after: phi of the states before and after each step.
        terminated: the episode ended there by itself, so that nothing follows and phi(s') counts as 0.
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
            phi: [T + 1, N], of the states that actions were taken in, and of those that the next chunk begins with.
            after: [T, N], of the states after each step; where an episode ended, its own last one.
            terminated: [T, N], the episode ended there by itself.
        """
        return shaped(phi[:-1], after, terminated, self.discount)

    def state(self) -> dict[str, NDArray[Any]]:
        """All that is carried from chunk to chunk."""
        return {}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state()` of the same form."""


class Additive(Form):
    """`additive`: phi(s') is paid as it is. Whoever stays where phi is high is paid for ever."""

    def pay(self, phi: Phi, after: Phi, terminated: NDArray[np.bool_]) -> NDArray[np.float32]:
        return after


class Published(Form):
    """`published`: what the code of Zhang et al. 2024 (arXiv 2407.03964) pays, fact for fact.

    * Step t is paid gamma I_t - I_(t-1), of the states before it: one step late.
    * Across an end of an episode it is the same: what follows it is paid less what was before it.
    * States that an episode ends in are never judged, so what led there is never taken back.
    * I is phi over a running deviation of its discounted sum, which moves on, and is not begun anew with an episode. If
      phi is 0 for long, the deviation nearly is, and the first phi after that is huge.
    * The row that is carried into the next chunk has been divided already: it is divided again, and counted again.

    So it depends on the lengths of chunks, and each actor has its own deviation. That code weighs the world's reward by
    10 and phi by 1: `learner.reward_weights` does. What it does to windows is not here: windows are ours.
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
        """Moments of all that was counted, of those of two parts (Chan et al. 1979)."""
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
