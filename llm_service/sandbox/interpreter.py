"""Runs written programs over many observations at once, without passing their text to Python.

The checked syntax tree is turned into closures once (`statements`, `expressions`). They compute the values of all rows
together (`values`), and masks say for which rows (`batch`).

A row that causes a Python error or exceeds a limit has a fault: its value is 0.0 and it stops. No row depends on the
others: each counts its own steps, and rows that need values of different structure, or too much memory together, are
run again separately.
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

MAX_ROWS = 1_024  # at once; more would only need more memory
MAX_LANES = 2**15  # per row; more run one after the other
LARGEST_ARGUMENT = 2**31


@dataclass(frozen=True)
class Values:
    """A program's results for N rows.

    Attributes:
        values: float32 [N], finite; 0.0 where a row has a fault.
        faults: number of rows with each kind of fault of `batch.FAULTS`; kinds that did not occur are left out.
    """

    values: NDArray[np.float32]
    faults: dict[str, int]


class Program:
    """A written program, ready to run.

    Args:
        code: the text of a `potential(observations, actions)`.

    Raises:
        CodeRefused: it is not a program of the grammar.
    """

    def __init__(self, code: str) -> None:
        body = checked(code).body
        self._body = Statements(at_once=True).function(body)
        self._frugal = Statements(at_once=False).function(body)

    def __call__(self, observations: NDArray[Any], actions: NDArray[Any], index: NDArray[Any] | None = None) -> Values:
        """Run it for each row.

        Args:
            observations: int [N, K, ...], the last K observations, oldest first; or, with an index, [R, ...].
            actions: int [N, K-1], the actions between them.
            index: int [N, K], indices of each row's observations, if rows share them.

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
        if index is None:  # views of neighbouring rows are adjacent
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
                rows_of = slice(None) if len(some) == rows else some  # a slice copies nothing
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
    """The values of a program; arguments and errors are those of `Program`."""
    return Program(code)(observations, actions)


def _run(body: Statement, views: Views, index: Array, actions: Array) -> tuple[Any, Any]:
    batch = Batch(len(index))
    named = views.window(index), Views(actions.reshape(-1)).window(np.arange(actions.size).reshape(actions.shape))
    batch.names.update(zip(ARGUMENTS, named, strict=True))
    with np.errstate(all="ignore"):  # such errors are detected, and are faults of their rows
        end = body(batch, batch.whole, Round())
        if end is not None:
            batch.fault("no value", end)
    return np.where(batch.fault_kinds == 0, batch.result + 0.0, 0.0), batch.fault_kinds  # a zero has no sign
