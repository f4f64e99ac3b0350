"""The last steps, kept in acting as inputs when their keys and values cannot be reused.

    step of B rows ──add──> the last C steps ──steps──> B sequences, one after the other, recomputed

If steps have positions in a window, or the whole window attends to the chunk of its newest step, each new step changes
the encoding of all earlier ones. So a window costs C times as much as a ring.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from learner.models.sequence.history_steps import StepInputs


class Window:
    """The last steps of B rows that started together.

    Args:
        steps: C, the number of steps to keep.
    """

    def __init__(self, steps: int) -> None:
        self._kept: deque[StepInputs] = deque(maxlen=steps)
        self._lived = 0

    def add(self, steps: StepInputs) -> None:
        """Add the next step of each row, [B]."""
        self._kept.append(steps)
        self._lived += 1

    def steps(self) -> tuple[StepInputs, int]:
        """The kept steps, row after row, [B * n], with their places in the episode; and n."""
        kept, n = list(self._kept), len(self._kept)
        rows = len(kept[0].to_go)

        def side_by_side(parts: Sequence[Tensor]) -> Tensor:
            return torch.stack(list(parts), 1).flatten(0, 1)

        names = ("to_go", "last_action", "last_reward")
        told = {name: side_by_side([getattr(one, name) for one in kept]) for name in names}
        obs = {name: side_by_side([one.obs[name] for one in kept]) for name in kept[0].obs}
        place = torch.arange(self._lived - n, self._lived).repeat(rows)
        return replace(kept[0], obs=obs, place=place, **told), n
