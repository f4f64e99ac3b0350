"""Runs written programs over many observations at once, without ever handing their text to Python.

The checked syntax tree becomes closures once (`statements`, `expressions`), which compute with the values of all rows
together (`values`) and say for which rows by masks (`batch`).

A row that does what Python forbids, or too much, has a fault: its value is 0.0 and it stops. Nothing of a row depends
on the rows beside it: each counts its own steps, and where rows need values of unlike structure or too much memory
together they are run again apart.
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

MAX_ROWS = 1_024  # together; more only need more memory
MAX_LANES = 2**15  # for each row; more run one after the other
LARGEST_ARGUMENT = 2**31


@dataclass(frozen=True)
class Values:
    """What a program says of N rows.

    Attributes:
        values: float32 [N], finite; 0.0 where a row has a fault.
        faults: how many rows had each kind of fault of `batch.FAULTS`; kinds that did not occur are left out.
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
            actions: int [N, K-1], what was done between them.
            index: int [N, K], which of the observations are the row's, if rows share them.

        Raises:
            ValueError: these are no integers of such shapes.
        """
        rows = len(actions)
        shape = observations.shape[:2] if index is None else index.shape
        if observations.ndim < 1 or len(shape) < 2 or actions.shape != (rows, shape[1] - 1) or shape[0] != rows:
            raise ValueError(f"observations [N, K, ...] need actions [N, K-1], not {shape}, {actions.shape}")
        for array in (observations, actions):
            if array.dtype.kind not in "iu" or max(array.max(initial=0), -int(array.min(initial=0))) > LARGEST_ARGUMENT:
                raise ValueError(f"observations and actions are integers up to {LARGEST_ARGUMENT}")
        if index is None:  # neighbouring rows' views beside each other
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
    """The values of a program; arguments and errors are those of `Program`."""
    return Program(code)(observations, actions)


def _run(body: Statement, views: Views, index: Array, actions: Array) -> tuple[Any, Any]:
    batch = Batch(len(index))
    named = views.window(index), Views(actions.reshape(-1)).window(np.arange(actions.size).reshape(actions.shape))
    batch.names.update(zip(ARGUMENTS, named, strict=True))
    with np.errstate(all="ignore"):  # what they warn of is found, and is the fault of its row
        end = body(batch, batch.whole, Round())
        if end is not None:
            batch.fault("no value", end)
    return np.where(batch.fault_kinds == 0, batch.result + 0.0, 0.0), batch.fault_kinds  # a zero has no sign
