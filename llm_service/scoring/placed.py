"""Arrays of the host where a model computes. Nothing waits for a GPU, which still computes what came before."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def placed(array: NDArray[Any], where: torch.device) -> Tensor:
    """The array as a tensor there. From memory that is not pinned, the host would wait for the copy."""
    tensor = torch.from_numpy(array)
    return (tensor.pin_memory() if where.type == "cuda" else tensor).to(where, non_blocking=True)
