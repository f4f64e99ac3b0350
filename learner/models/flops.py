"""How many operations a model's training needs, and how many a GPU could do in that time.

Model FLOP utilisation (Chowdhery et al. 2022, arXiv 2204.02311, appendix B) is the share of a chip's peak that a
model's own arithmetic takes, whatever else is computed: padding, the optimiser and what is computed again count for
nothing.

    a token forward                       2 a weight of every matrix that it passes
    a query forward, for each key seen    4 a layer and unit of width: its score, and its part of the sum
    forward and backward                  three times that
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

PEAK = {
    "A100": 312e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200": 989e12,
    "GH200": 989e12,
    "B200": 2250e12,
    "L40S": 362e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
}
"""Dense bfloat16 operations a second with sums in float32, by a part of the device's name, as their maker says. Where
several fit, the longest counts."""


def peak(name: str) -> float | None:
    """Operations a second that a device of this name could do; None if it is not known."""
    fitting = [known for known in PEAK if known in name]
    return PEAK[max(fitting, key=len)] if fitting else None


def weights(*modules: nn.Module) -> int:
    """Weights of the matrices in modules: all linear layers, none of the tables that tokens are looked up in."""
    layers = (layer for module in modules for layer in module.modules() if isinstance(layer, nn.Linear))
    return sum(layer.weight.numel() for layer in layers)


def attention(queries_and_keys: Iterable[tuple[int, int]], layers: int, width: int) -> int:
    """Operations of attention forward: for each sequence its queries and the keys that each of them sees."""
    return 4 * layers * width * sum(queries * keys for queries, keys in queries_and_keys)
