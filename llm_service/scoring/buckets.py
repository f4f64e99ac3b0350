"""Rows of like length together, so that little of what is computed is padding."""

from __future__ import annotations

from collections.abc import Sequence


def buckets(
    lengths: Sequence[int], budget: int, padding: float, nodes: Sequence[int] | None = None, most: int = 0
) -> list[list[int]]:
    """Groups of indices, shortest rows first, ordered by length inside a group. A row that is too long stands alone.

    Args:
        lengths: tokens of each row.
        budget: most tokens of a group, padding included.
        padding: most padding of a group, as a share of its tokens.
        nodes, most: a second size of each row, and the most of it in a group, padding included.
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
