"""Choice from logits: the most probable, sampled, or sampled from the nucleus."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from llm_service.errors import UsageError


@dataclass(frozen=True)
class Choice:
    """How a cluster is chosen from its logits; `nucleus` after Holtzman et al. (2020)."""

    strategy: Literal["sample", "argmax", "nucleus"] = "sample"
    temperature: float = 1.0  # logits are divided by it
    mass: float = 0.95  # of the nucleus: the fewest clusters that together have this probability
    guidance: float = 1.0  # how much a text counts: logits with it weigh so much, those without it 1 less

    def __post_init__(self) -> None:
        """UsageError if the settings are invalid."""
        if not 0 < self.temperature < math.inf:
            raise UsageError(f"a temperature is a positive number: got {self.temperature}")
        if not 0 < self.mass <= 1:
            raise UsageError(f"the mass of a nucleus is a probability above 0: got {self.mass}")
        if not 0 <= self.guidance < math.inf:
            raise UsageError(f"guidance is a number from 0: got {self.guidance}")

    @property
    def guided(self) -> bool:
        """Whether logits without a text are needed, too."""
        return self.guidance != 1

    def guide(self, logits: Tensor) -> Tensor:
        """Logits [B, K] of logits [2 B, K]: B with texts, then the same without (Ho and Salimans 2022, equation 6)."""
        told, untold = logits.chunk(2)
        return untold + self.guidance * (told - untold)

    def __call__(self, logits: Tensor, uniform: Tensor) -> Tensor:
        """Clusters int64 [B] from logits [B, K] and one number in [0, 1) each [B]."""
        if self.strategy == "argmax":
            return logits.argmax(-1)
        probability, order = (logits.double() / self.temperature).softmax(-1).sort(dim=-1, descending=True, stable=True)
        before = probability.cumsum(-1) - probability
        if self.strategy == "nucleus":
            probability = probability * (before < self.mass)
        total = probability.cumsum(-1)
        drawn = (total <= uniform[:, None].double() * total[:, -1:]).sum(-1).clamp(max=logits.shape[1] - 1)
        return order.gather(1, drawn[:, None])[:, 0]
