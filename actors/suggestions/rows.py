"""Arrays that grow while names are found: of rows by number, and goals [N, K] with room for K."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NONE = -1
"""No goal."""
Rows = NDArray[np.int32]


def grown(column: NDArray[Any], length: int) -> NDArray[Any]:
    """`column` with room for at least `length`; new entries are 0."""
    if len(column) >= length:
        return column
    return np.concatenate([column, np.zeros(2 * length - len(column), column.dtype)])


def wider(table: NDArray[Any], columns: int) -> NDArray[Any]:
    """`table` with at least this many columns; new entries are 0."""
    missing = columns - table.shape[1]
    return np.pad(table, ((0, 0), (0, missing))) if missing > 0 else table


def filled(goals: Rows, columns: int) -> Rows:
    """Goals [N, K] in at least this many columns; new entries are no goal. With enough of them, `goals` itself."""
    missing = columns - goals.shape[1]
    if missing <= 0:  # padding by nothing takes as long as padding
        return goals
    result: Rows = np.pad(goals, ((0, 0), (0, missing)), constant_values=NONE)
    return result


def packed(names: Sequence[str]) -> NDArray[np.uint8]:
    """Names as an array, because a state consists of arrays."""
    return np.frombuffer("\n".join(names).encode(), np.uint8)


def unpacked(names: NDArray[np.uint8]) -> list[str]:
    text = names.tobytes().decode()
    return text.split("\n") if text else []
