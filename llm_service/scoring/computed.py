"""How much a scorer has computed: what throughput and utilisation are told of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Computed:
    """Sums over prompts of p tokens, each with a tree of candidates that has n inner nodes; padding is not counted.

    prompts: how many. told: p. nodes: n. told_pairs: p * p, and node_pairs: n * (p + n), for attention.
    """

    prompts: int = 0
    told: int = 0
    nodes: int = 0
    told_pairs: int = 0
    node_pairs: int = 0

    @classmethod
    def of(cls, told: Sequence[int], nodes: Sequence[int]) -> Computed:
        """Of prompts of these lengths, with trees of these sizes."""
        pairs = list(zip(told, nodes, strict=True))
        crossed = sum(n * (p + n) for p, n in pairs)
        return cls(len(pairs), sum(told), sum(nodes), sum(p * p for p in told), crossed)

    @property
    def tokens(self) -> int:
        """Tokens that were computed: those of prompts, and the nodes."""
        return self.told + self.nodes

    def __add__(self, other: Computed) -> Computed:
        return Computed(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Computed) -> Computed:
        return Computed(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))
