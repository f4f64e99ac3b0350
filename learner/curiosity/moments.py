"""Running mean and variance, equal on all ranks and part of a checkpoint."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from learner.optim.collective import Group


class Moments(nn.Module):
    """Mean and variance of each of `width` numbers over all that was ever seen, on all ranks; float64 [width]."""

    count: Tensor
    mean: Tensor
    square: Tensor

    def __init__(self, width: int, group: Group) -> None:
        super().__init__()
        self.group = group
        self.register_buffer("count", torch.zeros(1, dtype=torch.float64))  # a rank's share of it
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("square", torch.zeros(width, dtype=torch.float64))  # mean of the squares

    def update(self, x: Tensor) -> None:
        """Take numbers [M, width]; every rank must take some."""
        sums = [x.new_tensor([len(x)], dtype=torch.float64), x.sum(0, dtype=torch.float64)]
        message = torch.cat([*sums, x.square().sum(0, dtype=torch.float64)])
        self.group.average(message)
        n, total, squares = torch.split(message, [1, len(self.mean), len(self.mean)])
        self.count += n
        self.mean += (total - n * self.mean) / self.count
        self.square += (squares - n * self.square) / self.count

    @property
    def deviation(self) -> Tensor:
        """Standard deviation [width]."""
        return (self.square - self.mean.square()).clamp(min=0).sqrt()
