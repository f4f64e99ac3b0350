"""Residual network for pictures (IMPALA's, Espeholt et al. 2018, arXiv 1802.01561), with texts and numbers beside them.

    `pixels` fields    -> a stage for each of `policy.channels`: convolution 3x3, max-pooling to half a side,
                          two residual blocks of two convolutions
                          with `policy.patch`, the first convolution reads squares of so many pixels that do not
                          overlap, and nothing is pooled: one place for each cell of a world drawn on a grid
    all else           as in the `texts` network, of which this is a variant

With `policy.memory=gru` this is the recurrent agent for worlds of which a picture shows only a part. The limit is the
convolutions: 61 MFLOP forward for 64 x 64 x 3 and channels 16, 32, 32, ten times those of `texts`, and half of them in
the first stage; 7 MFLOP in patches of 7 pixels and 32 channels. bfloat16 (`learner.autocast`) halves the time of an
update where the processor has it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from learner.models.config import PolicyConfig
from learner.models.networks import texts


class Network(texts.Network):
    """Features [B, hidden] of any observation."""

    @staticmethod
    def encoder(config: PolicyConfig, shape: tuple[int, ...]) -> tuple[nn.Module, int]:
        """Pictures [B, C, H, W] of `shape` (H, W, C) -> [B, features], and the number of features."""
        height, width, channels = shape
        stages: list[nn.Module] = []
        patch = config.patch
        if patch > min(height, width):
            raise ValueError(f"policy.patch={patch} is wider than a picture of {height} x {width} pixels")
        for wide in config.channels:
            if patch and not stages:
                stages.append(nn.Conv2d(channels, wide, patch, patch))
                height, width = height // patch, width // patch
            else:
                stages.append(nn.Conv2d(channels, wide, 3, padding=1))
            if not patch:
                stages.append(nn.MaxPool2d(3, 2, 1))
                height, width = (height + 1) // 2, (width + 1) // 2
            stages += [Residual(wide), Residual(wide)]
            channels = wide
        return nn.Sequential(*stages, nn.ReLU(), nn.Flatten()), height * width * channels


class Residual(nn.Module):
    """Pictures [B, C, H, W] plus what two convolutions make of them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        changed: Tensor = self.second(torch.relu(self.first(torch.relu(x))))
        return x + changed
