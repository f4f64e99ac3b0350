"""Plain network: everything flattened, for vector worlds and for comparisons with libraries that do the same.

Grids are divided by 10, categories are one-hot, texts are their codes; actor and critic have a body of their own, two
tanh layers of `hidden` each (Schulman et al. 2017, appendix A).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from envs.api import EnvSpec, Field
from learner.models.policy import Observations, PolicyConfig


class Network(nn.Module):
    """Features of the actor and of the critic, each [B, hidden]."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__()
        self.fields = spec.fields
        self.width = config.hidden
        width = sum(self._width(f, config.hidden) for f in self.fields.values())
        self.actor, self.critic = (
            nn.Sequential(
                nn.Linear(width, config.hidden), nn.Tanh(), nn.Linear(config.hidden, config.hidden), nn.Tanh()
            )
            for _ in range(2)
        )

    def forward(self, obs: Observations, codes: Tensor) -> tuple[Tensor, Tensor]:
        flat = torch.cat([self._flatten(obs[n], f, codes) for n, f in self.fields.items()], -1)
        return self.actor(flat), self.critic(flat)

    @staticmethod
    def _width(entry: Field, hidden: int) -> int:
        if entry.kind == "category":
            return entry.size
        return hidden if entry.kind == "text" else int(torch.Size(entry.shape).numel())

    @staticmethod
    def _flatten(value: Tensor, entry: Field, codes: Tensor) -> Tensor:
        if entry.kind == "text":
            return codes[value]
        if entry.kind == "category":
            return nn.functional.one_hot(value, entry.size).float()
        return value.flatten(1) / 10.0 if entry.kind == "grid" else value.flatten(1)
