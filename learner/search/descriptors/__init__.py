"""Descriptors: the numbers that say what a behaviour is. One module each, found by name.

    Rollout ──> describe ──> [n, D] ──> novelty; cells of the grid; coverage, QD score and maps

A module publishes

    DESCRIPTOR = ...                an instance of a subclass of `Descriptor`, below

`method.search.descriptor=NAME` chooses the module. Novelty is the Euclidean distance between descriptors, so their
numbers should have similar ranges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from envs import navigation
from learner.room import Room
from learner.search.elites import cell_of
from learner.search.rollout import Rollout

DEFAULT = "end"


class Descriptor(ABC):
    """D numbers of a behaviour.

    Attributes:
        names: of the numbers, as columns of a table.
        cells: along each axis of the descriptor space, for coverage, QD score and maps.
        is_place: whether the first two numbers are a place in the house, whose plan maps then show.
    """

    names: tuple[str, ...]
    cells: int = 20
    is_place: bool = False

    @abstractmethod
    def describe(self, rollout: Rollout) -> NDArray[np.float64]:
        """[n, D], finite."""

    @abstractmethod
    def bounds(self, house: navigation.Map) -> NDArray[np.float64]:
        """The lowest and the highest value of each number, [D, 2]; values beyond belong to the outermost cells."""

    def reachable(self, house: navigation.Map) -> NDArray[np.bool_]:
        """Which cells a behaviour could reach, [cells ** D], numbered as by `cell_of`. They are the denominator of
        coverage; all of them unless a descriptor knows better."""
        return np.ones(self.cells ** len(self.names), np.bool_)


class Places(Descriptor):
    """Where a robot is at some moments.

    Args:
        moments: by the name of each, the share of the steps after which it is: 1 is the end.
        cells: as `Descriptor.cells`.
    """

    is_place = True

    def __init__(self, moments: Mapping[str, float], cells: int) -> None:
        self.moments, self.cells = dict(moments), cells
        self.names = tuple(f"{moment}_{axis}" for moment in moments for axis in "xy")

    def describe(self, rollout: Rollout) -> NDArray[np.float64]:
        last = rollout.pose.shape[1] - 1
        places = [rollout.pose[:, int(share * last), :2] for share in self.moments.values()]
        return np.concatenate(places, 1).astype(np.float64)

    def bounds(self, house: navigation.Map) -> NDArray[np.float64]:
        return np.array([[0.0, house.world_size]] * len(self.names))

    def reachable(self, house: navigation.Map) -> NDArray[np.bool_]:
        """Cells with room for a robot at every moment, in the part of the house that its start is in. How far a robot
        gets in the steps that it has does not count."""
        one = with_room(house, self.cells)
        every = one
        for _ in list(self.moments)[1:]:
            every = np.outer(one, every).ravel()
        return every


def with_room(house: navigation.Map, cells: int) -> NDArray[np.bool_]:
    """Which cells [cells ** 2] of the house have a place where a robot fits, connected to the map's start."""
    from scipy import ndimage  # here, because every command reads the configuration, and few search

    height, width = house.walls.shape
    y, x = (axis.ravel() for axis in np.mgrid[:height, :width])
    poses = np.stack([x, y, np.zeros(len(x))], 1) / (house.scale, house.scale, 1.0)
    rooms, _ = ndimage.label(navigation.free(house, poses).reshape(height, width), np.ones((3, 3)))
    column, row = np.floor(np.array(house.start[:2]) * house.scale + 0.5).astype(int)
    here = (rooms == rooms[row, column]).ravel()
    found = np.zeros(cells**2, np.bool_)
    for corner in ((-0.5, -0.5), (-0.5, 0.499), (0.499, -0.5), (0.499, 0.499)):  # a pixel may lie in several cells
        places = (np.stack([x, y], 1)[here] + corner) / house.scale
        found[cell_of(places, cells, house.world_size)] = True
    return found


DESCRIPTORS = Room[Descriptor](__name__, "DESCRIPTOR")
names, descriptor = DESCRIPTORS.names, DESCRIPTORS.get
