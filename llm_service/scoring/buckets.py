"""Groups rows of similar length, so that little computation is spent on padding."""

from __future__ import annotations

from collections.abc import Sequence


def buckets(
    lengths: Sequence[int], budget: int, padding: float, nodes: Sequence[int] | None = None, most: int = 0
) -> list[list[int]]:
    """Groups of indices, shortest rows first, ordered by length inside a group. A row longer than the budget forms its
    own group.

    Args:
        lengths: tokens of each row.
        budget: maximum tokens in a group, including padding.
        padding: maximum share of padding among a group's tokens.
        nodes, most: a second size of each row, and its maximum in a group, including padding.
    """
    groups: list[list[int]] = []
    real = widest = 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        length, n = lengths[index], nodes[index] if nodes else 0
        count, real, widest = len(groups[-1]) + 1 if groups else 0, real + length, max(widest, n)
        padded = count * length
        if not groups or padded > budget or count * widest > most or padded - real > padding * padded:
            groups.append([])
            real, widest = length, n
        groups[-1].append(index)
    return groups
