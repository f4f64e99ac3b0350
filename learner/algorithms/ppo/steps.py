"""PPO's loss inputs for env steps, besides the policy's current outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.optim.device import send

Column = TypeVar("Column", NDArray[Any], Tensor)


@dataclass
class Steps(Generic[Column]):
    """The loss's inputs for B steps, besides the policy's current outputs; float32 unless noted."""

    action: Column  # int64 [B]
    log_prob: Column  # [B] of the action, by the policy at the start of the update
    advantage: Column  # [B]
    weight: Column  # [B] 1 on fresh steps; on stale ones that policy's clipped ratio to the behaviour policy
    value: Column  # [B] at the start of the update
    target: Column  # [B] of the value
    reference: Column | None = None  # [B, A] logits of the policy to stay close to; [B, L] of its written tokens
    tokens: Column | None = None  # [B, L] log-probabilities of the action's tokens, at the start of the update

    def at(self, index: Any) -> Steps[Column]:
        """The steps `index` [b]; int64, on the columns' device."""
        columns: dict[str, Any] = {name: None if c is None else c[index] for name, c in vars(self).items()}
        return Steps(**columns)

    def unpaid(self) -> Steps[Column]:
        """The same steps with all advantages 0."""
        zeros: Any = torch.zeros_like if isinstance(self.advantage, Tensor) else np.zeros_like
        return replace(self, advantage=zeros(self.advantage))

    def on(self, where: torch.device) -> Steps[Any]:
        """Unchanged arrays for the CPU; for another device, tensors there."""
        if where.type == "cpu":
            return self
        columns: dict[str, Any] = vars(self)
        return Steps(**columns | send({name: c for name, c in columns.items() if c is not None}, where))
