"""Plain network: everything flattened, for environments with vectors and for comparisons with libraries that do the
same.

Grids are divided by 10, categories are one-hot, texts are their codes; actor and critic have separate bodies of two
tanh layers of `hidden` each (Schulman et al. 2017, appendix A). The two are computed side by side: one product with
[width, 2 * hidden], then a batch of two. The limit is these products in batches of thousands; in batches of hundreds,
calling operations takes half of the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from envs.api import EnvSpec
from learner.models.config import PolicyConfig
from learner.models.networks.texts import NUMBERS, side_by_side, size
from learner.models.policy import Observations


class Network(nn.Module):
    """Features of the actor and of the critic, each [B, hidden]."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__()
        self.texts = [n for n, f in spec.fields.items() if f.kind == "text"]
        self.numbers = {n: f for n, f in spec.fields.items() if f.kind != "text"}
        self.width = hidden = config.hidden
        width = sum(map(size, self.numbers.values()))
        bodies = [(nn.Linear(width + hidden * len(self.texts), hidden), nn.Linear(hidden, hidden)) for _ in range(2)]
        # Shapes [width, 2 * hidden], [2 * hidden], [2, hidden, hidden], [2, 1, hidden].
        self.first_weight = nn.Parameter(torch.cat([first.weight.T for first, _ in bodies], 1))
        self.first_bias = nn.Parameter(torch.cat([first.bias for first, _ in bodies]))
        self.second_weight = nn.Parameter(torch.stack([second.weight.T for _, second in bodies]))
        self.second_bias = nn.Parameter(torch.stack([second.bias[None] for _, second in bodies]))

    def inputs(self, obs: Observations) -> dict[str, Tensor]:
        return side_by_side(obs, self.texts, self.numbers)

    def forward(self, obs: Observations, codes: Tensor) -> tuple[Tensor, Tensor]:
        parts = [obs[NUMBERS]] if self.numbers else []
        parts += [codes.index_select(0, obs[name]) for name in self.texts]
        flat = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        inner = tanh(torch.addmm(self.first_bias, flat, self.first_weight))
        bodies = inner.view(-1, 2, self.width).transpose(0, 1)  # [2, B, hidden]
        actor, critic = tanh(torch.baddbmm(self.second_bias, bodies, self.second_weight)).unbind()
        return actor, critic


def tanh(x: Tensor) -> Tensor:
    """tanh in float32. On a CPU NumPy's is vectorised: seven times as fast as PyTorch's, and as exact."""
    if x.device.type != "cpu":
        return torch.tanh(x.float())
    if not x.requires_grad:
        return torch.from_numpy(np.tanh(x.float().numpy()))
    result: Tensor = _Tanh.apply(x.float())  # type: ignore[no-untyped-call]
    return result


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.from_numpy(np.tanh(x.numpy()))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        result: Tensor = torch.ops.aten.tanh_backward(gradient, y)
        return result
