"""The last pictures of an episode, side by side: motion cannot be seen in one (Mnih et al. 2015).

    acting:    frame [B, H, W, C] + state ──> [B, S, H, W, C], oldest first, and the next state
    learning:  the replay gives            ──> [B, S, H, W, C]                    ──> channels [B, H, W, S * C]

At the start of an episode, its first frame is repeated. While acting, the frames before the current one are the
policy's state, which the caller sets to 0 at an episode's end, as for any memory.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from envs.api import EnvSpec


class Frames:
    """The `pixels` fields of a world, `stack` (S, at least 2) frames of each.

    A state is uint8 [B, 1 + numbers of the S - 1 frames before, field by field]; the first is 1, or 0 at an episode's
    start, when there are none. The limit is copying, S pictures of every env twice per step: well below the cost of the
    wider first convolution.
    """

    def __init__(self, spec: EnvSpec, stack: int) -> None:
        self.fields = {name: field for name, field in spec.fields.items() if field.kind == "pixels"}
        self.stack = stack
        self._sizes = [(stack - 1) * math.prod(field.shape) for field in self.fields.values()]

    def widen(self, spec: EnvSpec) -> EnvSpec:
        """A network's view of the environment: pictures [H, W, S * C]."""
        fields = dict(spec.fields)
        for name, field in self.fields.items():
            height, width, channels = field.shape
            fields[name] = dataclasses.replace(field, shape=(height, width, self.stack * channels))
        return dataclasses.replace(spec, fields=fields)

    def initial_state(self, n: int) -> Tensor:
        """The state of n envs whose episodes begin."""
        return torch.zeros(n, 1 + sum(self._sizes), dtype=torch.uint8)

    def add(self, obs: Mapping[str, Tensor], state: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Observations [B, ...] with pictures [B, S, H, W, C] in place of single ones, and the next state."""
        begins = state[:, 0] == 0
        found, following = dict(obs), [torch.ones_like(state[:, :1])]
        for (name, field), before in zip(self.fields.items(), torch.split(state[:, 1:], self._sizes, 1), strict=True):
            frame = obs[name].unsqueeze(1)
            frames = torch.cat([before.view(len(state), self.stack - 1, *field.shape), frame], 1)
            frames[begins] = frame[begins]
            found[name] = frames
            following.append(frames[:, 1:].flatten(1))
        return found, torch.cat(following, 1)

    def join(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Pictures [..., S, H, W, C] as one of S * C channels, the oldest frame's first: [..., H, W, S * C]."""
        return {**obs, **{name: torch.cat(obs[name].unbind(-4), -1) for name in self.fields}}
