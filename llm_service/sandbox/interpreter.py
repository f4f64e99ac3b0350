"""Runs written programs over many observations at once, without ever evaluating their text.

The checked syntax tree is turned into closures once (`statements`, `expressions`). They compute with the values of all
rows together (`values`); masks select the rows (`batch`).

A row that causes a Python error or exceeds a limit gets a fault: its value is 0.0 and it stops. A row's result never
depends on the other rows: each counts its own steps. If rows need values of different structure, or too much memory
together, they are split and run again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llm_service.sandbox.batch import FAULTS, Batch
from llm_service.sandbox.grammar import ARGUMENTS, checked
from llm_service.sandbox.statements import Round, Statement, Statements
from llm_service.sandbox.values import Array, Split
from llm_service.sandbox.views import Views

MAX_ROWS = 1_024  # run together; a larger batch would only need more memory
MAX_LANES = 2**15  # per row; beyond this, loops run one element after the other
LARGEST_ARGUMENT = 2**31


@dataclass(frozen=True)
class Values:
    """The results of a program for N rows.

    Attributes:
        values: float32 [N], finite; 0.0 for rows with a fault.
        faults: how many rows had each kind of fault in `batch.FAULTS`; kinds that did not occur are omitted.
    """

    values: NDArray[np.float32]
    faults: dict[str, int]


class Program:
    """A written program, ready to run.

    Args:
        code: the source of a function `potential(observations, actions)`.

    Raises:
        CodeRefused: the program is outside the grammar.
    """

    def __init__(self, code: str) -> None:
        body = checked(code).body
        self._body = Statements(at_once=True).function(body)
        self._frugal = Statements(at_once=False).function(body)

    def __call__(self, observations: NDArray[Any], actions: NDArray[Any], index: NDArray[Any] | None = None) -> Values:
        """Run it for each row.

        Args:
            observations: int [N, K, ...], the last K observations, oldest first; with an index, [R, ...].
            actions: int [N, K-1], the actions between them.
            index: int [N, K], each row's observations as indices into [R, ...], if rows share observations.

        Raises:
            ValueError: the arrays are not integers of these shapes.
        """
        rows = len(actions)
        shape = observations.shape[:2] if index is None else index.shape
        if observations.ndim < 1 or len(shape) < 2 or actions.shape != (rows, shape[1] - 1) or shape[0] != rows:
            raise ValueError(f"observations [N, K, ...] need actions [N, K-1], not {shape}, {actions.shape}")
        for array in (observations, actions):
            if array.dtype.kind not in "iu" or max(array.max(initial=0), -int(array.min(initial=0))) > LARGEST_ARGUMENT:
                raise ValueError(f"observations and actions are integers up to {LARGEST_ARGUMENT}")
        if index is None:  # views of neighbouring rows lie next to each other
            index = np.arange(rows * shape[1]).reshape(shape[::-1]).T
            observations = observations.swapaxes(0, 1).reshape(-1, *observations.shape[2:])
        elif index.size and not 0 <= index.min() <= index.max() < len(observations):
            raise ValueError(f"the index names other observations than {len(observations)}")
        views = Views(observations)
        values, kinds = np.zeros(rows), np.zeros(rows, np.int8)
        waiting = [(np.arange(rows)[first : first + MAX_ROWS], self._body) for first in range(0, rows, MAX_ROWS)]
        while waiting:
            some, body = waiting.pop()
            try:
                rows_of = slice(None) if len(some) == rows else some  # the former copies nothing
                values[some], kinds[some] = _run(body, views, index[rows_of], actions[rows_of])
            except Split as split:
                if body is self._body and (len(some) == 1 or split.elements > MAX_LANES * len(some)):
                    waiting.append((some, self._frugal))
                elif len(some) == 1:
                    kinds[some] = FAULTS.index(split.kind)
                else:
                    one = split.rows
                    if one is None or one.all() or not one.any():
                        one = np.arange(len(some)) < len(some) // 2
                    waiting += [(some[one], body), (some[~one], body)]
        faults = Counter(FAULTS[kind] for kind in kinds[kinds > 0])
        return Values(values.astype(np.float32), dict(sorted(faults.items())))


def run(code: str, observations: NDArray[Any], actions: NDArray[Any]) -> Values:
    """The values of a program; same arguments and errors as `Program`."""
    return Program(code)(observations, actions)


def _run(body: Statement, views: Views, index: Array, actions: Array) -> tuple[Any, Any]:
    batch = Batch(len(index))
    named = views.window(index), Views(actions.reshape(-1)).window(np.arange(actions.size).reshape(actions.shape))
    batch.names.update(zip(ARGUMENTS, named, strict=True))
    with np.errstate(all="ignore"):  # what NumPy warns of becomes a fault of the row
        end = body(batch, batch.whole, Round())
        if end is not None:
            batch.fault("no value", end)
    return np.where(batch.fault_kinds == 0, batch.result + 0.0, 0.0), batch.fault_kinds  # + 0.0 turns -0.0 into 0.0
