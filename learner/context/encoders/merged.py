"""A step as one vector, without learned embeddings; and a fixed random projection of such vectors.

    last action | last reward | categories | vectors | return to go  ──side by side──> x [S, size] ──P──> [S, width]
    one-hot       a number      one-hot      numbers   one-hot, if read

A number among others changes a vector's direction, so it needs no bins; alone, it would only change the projection's
length.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from learner.models.sequence.history_steps import HistoryShape, StepInputs, bin_of


class Merged:
    """Steps as vectors.

    Args:
        shape: the fields of a step, and whether it includes the return to go.
        bins: of the return to go.
        largest: return to go, at the end of the last bin.
        scale: divisor of rewards.

    Attributes:
        size: of a vector.
    """

    def __init__(self, shape: HistoryShape, bins: int, largest: float, scale: float = 1.0) -> None:
        self._shape, self._bins, self._largest, self._scale = shape, bins, largest, scale
        fields = sum(size for _, size in (*shape.categories, *shape.vectors))
        action = len(shape.bounds) or shape.actions + 1
        self.size = action + 1 + fields + (bins if shape.conditioned else 0)

    def __call__(self, steps: StepInputs) -> Tensor:
        """float32 [S, size], on the steps' device."""
        shape = self._shape
        action = steps.last_action  # a missing vector is zeros
        acted = action.nan_to_num() if shape.bounds else one_hot(action + 1, shape.actions + 1)
        parts = [acted, steps.last_reward[:, None] / self._scale]
        parts += [one_hot(steps.obs[name], size) for name, size in shape.categories]
        parts += [steps.obs[name] for name, _ in shape.vectors]
        if shape.conditioned:
            parts.append(one_hot(bin_of(steps.to_go, self._largest, self._bins), self._bins))
        return torch.cat([part.float() for part in parts], 1)


def projection(size: int, width: int, seed: int) -> Tensor:
    """P, float32 [width, size], normal with variance size / width, a function of its shape and seed.

    Sizes and variance as in Schmied et al. 2024, arXiv 2410.07071, appendix on the domain-agnostic embedding model; a
    cosine does not depend on the variance.
    """
    drawn = np.random.default_rng([seed, size, width]).standard_normal((width, size)) * np.sqrt(size / width)
    return torch.from_numpy(drawn.astype(np.float32))
