"""Keys and queries: the mean of an encoder's hidden states over the last steps of an episode.

    whole episodes  hidden [S, width]  ──Pooled.of──> means [K, width] of chosen steps
    while acting    hidden [B, width] a step ──add──> Pooled ──mean──> [B, width]

Both add the same numbers in the same order, newest first, so that equal hidden states give equal keys, bit by bit.
(Mean over time of the last hidden states: Schmied et al. 2024, arXiv 2410.07071, section 3.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Pooled:
    """The mean of each of B rows' last `pool` hidden states since its episode began.

    Args:
        rows: B.
        width: of a hidden state.
        pool: steps of a mean, if there are as many.
        device: of the hidden states.

    Attributes:
        ages: steps of each row since it began, int64 [B].
    """

    def __init__(self, rows: int, width: int, pool: int, device: torch.device | str = "cpu") -> None:
        self._kept = torch.zeros(pool, rows, width, device=device)
        self._next = 0  # place of the next step
        self.ages = torch.zeros(rows, dtype=torch.int64, device=device)

    def restart(self, rows: Tensor) -> None:
        """Rows, bool [B] or int64, begin a new episode with their next step."""
        self.ages[rows] = 0

    def add(self, hidden: Tensor) -> None:
        """The next step of each row, [B, width]."""
        self._kept[self._next] = hidden
        self._next = (self._next + 1) % len(self._kept)
        self.ages += 1

    def mean(self) -> Tensor:
        """Means over the last steps of each row, [B, width]; zeros where a row has none."""
        pool, total = len(self._kept), torch.zeros_like(self._kept[0])
        for back in range(pool):
            seen = self._kept[(self._next - 1 - back) % pool]
            total = total + torch.where((self.ages > back)[:, None], seen, 0.0)
        return total / self.ages.clamp(1, pool)[:, None]

    @staticmethod
    def of(hidden: Tensor, lengths: Sequence[int], pool: int, at: Tensor | None = None) -> Tensor:
        """Means of whole episodes.

        Args:
            hidden: [S, width], of each episode in turn.
            lengths: of the episodes; their sum is S.
            pool: steps of a mean, if there are as many.
            at: int64 [K], the steps whose means are returned, numbered through all episodes; all S if None.

        Returns:
            [K, width].
        """
        ages = torch.cat([torch.arange(0), *(torch.arange(1, n + 1) for n in lengths)]).to(hidden.device)
        at = torch.arange(len(hidden), device=hidden.device) if at is None else at.to(hidden.device)
        ages, total = ages[at], hidden.new_zeros(len(at), hidden.shape[1])
        for back in range(pool):
            seen = hidden[(at - back).clamp(min=0)]
            total = total + torch.where((ages > back)[:, None], seen, 0.0)
        return total / ages.clamp(1, pool)[:, None]
