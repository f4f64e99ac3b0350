"""From a gradient to a step: parameters and gradients side by side, averaged over the ranks, clipped, Adam."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from learner.optim.adam import Adam
from learner.optim.collective import Group


def side_by_side(parameters: Sequence[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """Move parameters into one flat tensor [P], of which each is a view from then on, and likewise their gradients."""
    values = torch.cat([p.detach().flatten() for p in parameters])
    gradients = torch.zeros_like(values)
    sizes = [p.numel() for p in parameters]
    parts = zip(parameters, torch.split(values, sizes), torch.split(gradients, sizes), strict=True)
    for parameter, value, gradient in parts:
        parameter.data, parameter.grad = value.view_as(parameter), gradient.view_as(parameter)
    return values, gradients


def descend(adam: Adam, gradients: Sequence[Tensor], group: Group, clip: float, rate: float) -> tuple[float, bool]:
    """One step of size `rate` against a rank's gradients. Returns their norm over all ranks, and if it was taken.

    gradients: of all parameters in their order, [P] together. They are read where they are: to gather or to clear them
        would cost as much as a third of Adam.
    clip: the largest norm. Gradients beyond it are shortened, those that are not finite are skipped.
    """
    if group.size > 1:
        gradients = [torch.cat([gradient.flatten() for gradient in gradients])]
        group.average(gradients[0])
    flat = [gradient.ravel() for gradient in gradients]
    norm = math.sqrt(sum(float(torch.dot(part, part)) for part in flat))
    usable = math.isfinite(norm)  # equal on all ranks, since the gradients are
    if usable:
        adam.step(flat, rate, min(1.0, clip / (norm + 1e-6)))
    return norm, usable
