"""Emitters: where the policies of a generation after the first come from. One module each, found by name.

    pool: the population, or the elites of the grid ──ask──> weights, which actors play ──tell──> the emitter adapts

A module publishes

    EMITTER = TheClass              a subclass of `Emitter`, below

`method.search.emitter=NAME` chooses the module. An emitter's random numbers depend only on (seed, generation), and its
state is arrays, so a search with any of them can be resumed.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learner.checkpoint import Arrays
from learner.room import Room

DEFAULT = "mutation"
Weights = NDArray[np.float32]


@dataclass(frozen=True)
class EmitterSetup:
    """What an emitter is built from. The fields from `eta` on are those of `SearchConfig`."""

    seed: int
    count: int  # n, policies a generation
    parameters: int  # P
    descriptor: int  # D
    eta: float
    low: float
    high: float
    probability: float


class Emitter(ABC):
    """One search's source of policies. There is one call of `ask` for each generation, in order."""

    from_grid: ClassVar[bool] = False
    """Whether its pool is always the grid's elites, which need `method.search.cells`."""
    in_order: ClassVar[bool] = False
    """Whether it must be told of a generation before it is asked for the next, so that `ahead` must be 1."""
    package: ClassVar[str] = ""
    """The Python package that it needs; "" for none."""

    def __init__(self, setup: EmitterSetup) -> None:
        self.setup = setup

    @abstractmethod
    def ask(self, generation: int, pool: Weights) -> Weights:
        """New policies [n, P] between `low` and `high`; pool: [M, P], at least one."""

    def tell(  # noqa: B027 - most have no state
        self,
        generation: int,
        pool: Weights,
        weights: Weights,
        descriptor: NDArray[np.float64],
        quality: NDArray[np.float32],
        gains: tuple[NDArray[np.int32], NDArray[np.float64]],
    ) -> None:
        """Learn what became of the policies of a generation: weights [n, P], descriptor [n, D], quality [n], and what
        each gained the grid (`Elites.gains`); only called if there is a grid. pool: [M, P], after them."""

    def state(self) -> Arrays:
        """What a checkpoint keeps."""
        return {}

    def restore(self, arrays: Arrays) -> None:  # noqa: B027 - most have no state
        """Continue from the result of `state`."""


EMITTERS = Room[type[Emitter]](__name__, "EMITTER")
names, emitter = EMITTERS.names, EMITTERS.get


def missing(name: str) -> str:
    """What to do if the package that an emitter needs is not installed; empty if it is."""
    package: Any = emitter(name).package if name in names() else ""
    if not package or importlib.util.find_spec(package):
        return ""
    return f"method.search.emitter={name} needs the package {package}: pip install -r requirements-pyribs.txt"
