"""Runs written programs over many observations at once, without ever handing their text to Python.

The checked syntax tree becomes closures once (`statements`, `expressions`), which compute with the values of all rows
together (`values`) and say for which rows by masks (`batch`).

A row that does what Python forbids, or too much, has a fault: its value is 0.0 and it stops. Nothing of a row depends
on the rows beside it: each counts its own steps, and where rows need values of unlike structure or too much memory
together they are run again apart.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llm_service.sandbox.batch import FAULTS, Batch
from llm_service.sandbox.grammar import WINDOW_ARGUMENTS, checked
from llm_service.sandbox.statements import Round, Statement, Statements
from llm_service.sandbox.values import Array, Later, List, Split, Window

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
        body = checked(code, window=True).body
        self._body = Statements(at_once=True).function(body)
        self._frugal = Statements(at_once=False).function(body)

    def __call__(self, observations: NDArray[Any], actions: NDArray[Any]) -> Values:
        """Run it for each row.

        Args:
            observations: int [N, K, ...], the last K observations, oldest first.
            actions: int [N, K-1], what was done between them.

        Raises:
            ValueError: these are no integers of such shapes.
        """
        rows = len(observations)
        if observations.ndim < 2 or actions.shape != (rows, observations.shape[1] - 1):
            raise ValueError(
                f"observations [N, K, ...] need actions [N, K-1], not {observations.shape}, {actions.shape}"
            )
        for array in (observations, actions):
            if array.dtype.kind not in "iu" or max(array.max(initial=0), -int(array.min(initial=0))) > LARGEST_ARGUMENT:
                raise ValueError(f"observations and actions are integers up to {LARGEST_ARGUMENT}")
        values, kinds = np.zeros(rows), np.zeros(rows, np.int8)
        waiting = [(np.arange(rows)[first : first + MAX_ROWS], self._body) for first in range(0, rows, MAX_ROWS)]
        while waiting:
            some, body = waiting.pop()
            try:
                rows_of = slice(None) if len(some) == rows else some  # the former copies nothing
                values[some], kinds[some] = _run(body, observations[rows_of], actions[rows_of])
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


def _run(body: Statement, observations: NDArray[Any], actions: NDArray[Any]) -> tuple[Any, Any]:
    batch = Batch(len(observations))
    for name, array in zip(WINDOW_ARGUMENTS, (observations, actions), strict=True):
        views = [_nested(array[:, k]) for k in range(array.shape[1])]
        batch.names[name] = Window.of(views, _nested(array)) if views else ()
    with np.errstate(all="ignore"):  # what they warn of is found, and is the fault of its row
        end = body(batch, batch.whole, Round())
        if end is not None:
            batch.fault("no value", end)
    return np.where(batch.fault_kinds == 0, batch.result, 0.0), batch.fault_kinds


def _nested(array: Array) -> Any:
    """Integers [N, ...] as lists of lists: the shape of each row."""

    def element() -> Any:
        numbers = array.reshape(len(array), math.prod(array.shape[1:]))
        columns = np.empty(numbers.shape[::-1], array.dtype)
        for first in range(0, len(array), 128):  # in blocks that fit a cache, which halves the time
            columns[:, first : first + 128] = numbers[first : first + 128].T
        axes = range(array.ndim - 2, -1, -1)
        value: Any = columns.reshape(*array.shape[1:], len(array)).transpose(*axes, array.ndim - 1)
        for length in reversed(array.shape[2:]):
            value = List(length, value if length else 0.0)
        return value

    return np.ascontiguousarray(array) if array.ndim == 1 else Later(array.shape[1], element)
