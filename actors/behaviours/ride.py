"""The loop of robots that are driven action by action: whoever decides sees what robots sense, and where they are.

    house ──> pose, sensor readings, believed pose ──> decide ──> action, held for `stride` steps ──> house, ...

A believed pose is odometry's, from the map's start, or that of a `Localiser`, which also looks at the house's plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.navigation import FASTEST, TENTHS, WHEELS, Map, simulate
from envs.navigation.localisation import Localiser
from envs.navigation.odometry import reckon

Array = NDArray[np.float32]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sense:
    """What robots sense of their place."""

    start: tuple[float, float, float] | None = None
    """The pose that they believe to start from, x, y, radians; None: the map's."""
    particles: int = 0
    """Of a `Localiser` for each robot; 0: odometry alone."""
    distance: float = 15.0
    """How far from there along each axis a robot may start, world units; known to the `Localiser`."""
    degrees: float = 15.0
    """And how far turned."""


@dataclass(frozen=True)
class Moment:
    """B robots before an action."""

    step: int  # of the episode
    pose: Array  # [B, 3], which no robot senses
    sensed: Array  # [B, 5]
    believed: Floats  # [B, 3]


Decide = Callable[[Moment], Array | Floats]
"""Wished actions [B, 2]."""


def rounded(action: Array | Floats, stride: int) -> Array:
    """Actions as they are executed and stored: a tenth, or the mean of `stride` tenths."""
    steps = TENTHS * stride
    return (np.rint(action.clip(-FASTEST, FASTEST) * steps) / steps).astype(np.float32)


def ride(house: Map, start: Array, length: int, stride: int, sense: Sense, decide: Decide) -> tuple[Array, Array]:
    """Poses [B, length, 3] after each step and actions [B, length, 2], as executed, of B robots.

    Args:
        start: [B, 3], x, y in world units and heading in radians.
        length: steps of an episode.
        stride: steps for which an action is held.
        sense: how robots know their place.
        decide: asked before each action.

    Raises:
        ValueError: a robot would start in a wall.
    """
    robots = len(start)
    pose, action = np.empty((robots, length, 3), np.float32), np.empty((robots, length, WHEELS), np.float32)
    sensed = simulate(house, start, np.zeros((robots, 1, WHEELS), np.float32))["obs"][:, -1]  # where it stands
    place = start
    assumed = np.array(sense.start or house.start, np.float64)
    believed: Floats = np.tile(assumed, (robots, 1))
    estimate = None
    if sense.particles:
        estimate = Localiser(house, believed, sense.particles, sense.distance, sense.degrees)
    for step in range(0, length, stride):
        if estimate is not None:
            estimate.look(sensed)
            believed = estimate.pose
        held = slice(step, min(step + stride, length))
        action[:, held] = rounded(decide(Moment(step, place, sensed, believed)), stride)[:, None]
        found = simulate(house, place, action[:, held])
        pose[:, held], sensed, place = found["pose"], found["obs"][:, -1], found["pose"][:, -1]
        if estimate is not None:
            estimate.move(action[:, held], found["obs"])
        else:
            believed = reckon(believed, action[:, held], found["obs"])[:, -1]
    return pose, action
