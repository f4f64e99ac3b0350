"""From a gradient to a step: parameters and gradients side by side, averaged over the ranks, clipped, Adam."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from learner.adam import Adam
from learner.collective import Group


def side_by_side(parameters: Sequence[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """Move parameters into one flat tensor [P], of which each is a view from then on, and likewise their gradients."""
    values = torch.cat([p.detach().flatten() for p in parameters])
    gradients = torch.zeros_like(values)
    sizes = [p.numel() for p in parameters]
    parts = zip(parameters, torch.split(values, sizes), torch.split(gradients, sizes), strict=True)
    for parameter, value, gradient in parts:
        parameter.data, parameter.grad = value.view_as(parameter), gradient.view_as(parameter)
    return values, gradients


def descend(adam: Adam, gradient: Tensor, group: Group, clip: float, rate: float) -> tuple[float, bool]:
    """One step of size `rate` against a rank's `gradient` [P]. Returns its norm over all ranks, and if it was taken.

    clip: the largest norm. A gradient beyond it is shortened, one that is not finite is skipped.
    """
    group.average(gradient)
    norm = float(torch.linalg.vector_norm(gradient))
    usable = math.isfinite(norm)  # equal on all ranks, since the gradients are
    if usable:
        gradient.mul_(min(1.0, clip / (norm + 1e-6)))
        adam.step(gradient.numpy(), rate)
    return norm, usable
