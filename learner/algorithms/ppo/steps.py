"""What PPO's loss needs to know of env steps besides what the policy says of them now."""

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
    """What the loss needs to know of B steps besides what the policy says of them now; float32 unless said."""

    action: Column  # int64 [B]
    log_prob: Column  # [B] of the action, by the policy at the start of the update
    advantage: Column  # [B]
    weight: Column  # [B] 1 on fresh steps; on stale ones the clipped ratio of that policy to the one that acted
    value: Column  # [B] at the start of the update
    target: Column  # [B] of the value
    reference: Column | None = None  # [B, A] logits of the policy that is to be stayed close to
    tokens: Column | None = None  # [B, L] log-probabilities of the action's tokens, at the start of the update

    def at(self, index: Any) -> Steps[Column]:
        """The steps `index` [b], int64 and where the columns are."""
        columns: dict[str, Any] = {name: None if c is None else c[index] for name, c in vars(self).items()}
        return Steps(**columns)

    def unpaid(self) -> Steps[Column]:
        """The same, but that no action was better or worse than expected."""
        zeros: Any = torch.zeros_like if isinstance(self.advantage, Tensor) else np.zeros_like
        return replace(self, advantage=zeros(self.advantage))

    def on(self, where: torch.device) -> Steps[Any]:
        """Arrays as they are for the processor; for another device, tensors there."""
        if where.type == "cpu":
            return self
        columns: dict[str, Any] = vars(self)
        return Steps(**columns | send({name: c for name, c in columns.items() if c is not None}, where))
