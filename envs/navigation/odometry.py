"""Where a robot thinks that it is: what its wheels did, and whether it was stuck, added up.

A robot senses no place. But it knows how it moved its wheels, and its bumpers say in which steps a wall stopped it,
when it turned and did not move. From a start that it takes for granted the rest is arithmetic; contacts from behind
press no bumper, so that it errs by some units in 400 steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WHEELBASE = 20.0
"""World units between the wheels."""
BUMPERS = slice(3, 5)
"""Of an observation."""
NEAR = 60.0
"""World units over which closeness falls to a third."""


def reckon(start: NDArray[np.float64], action: NDArray[np.float32], obs: NDArray[np.float32]) -> NDArray[np.float64]:
    """Poses [N, T, 3] after each step by dead reckoning: x, y in world units, heading in radians, not wrapped.

    Args:
        start: [N, 3], or [3] for all.
        action: [N, T, 2], as executed.
        obs: [N, T, 5], what was sensed after each of these.
    """
    left, right = action[..., 0].astype(np.float64), action[..., 1].astype(np.float64)
    turn = (right - left) / WHEELBASE
    heading = start[..., 2, None] + np.cumsum(turn, -1)
    stuck = (obs[..., BUMPERS] > 0).any(-1)
    # An arc's chord, in the direction halfway through it; np.sinc(x) is sin(pi x) / (pi x).
    chord = np.where(stuck, 0.0, (left + right) / 2 * np.sinc(turn / (2 * np.pi)))
    along = heading - turn / 2
    x = start[..., 0, None] + np.cumsum(chord * np.cos(along), -1)
    y = start[..., 1, None] + np.cumsum(chord * np.sin(along), -1)
    return np.stack([x, y, heading], -1)


SENSED = ("place", "place", "cosine", "sine")
"""Kinds of what `felt` gives of a pose."""
GUIDED = ("place", "closeness", "cosine", "sine")
"""And of a target."""


def felt(pose: NDArray[np.float64], target: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """Poses [..., 3] as a network takes them: x, y in world units, then cosine and sine of the heading, in [0, 1].

    target: [..., 2], a place that the robot is to go to: its distance in world units, how close it is in [0, 1], and
        cosine and sine of the way there as seen from the robot, in [0, 1]; nan, not told: 0 each. All that follows from
        pose and target, but a network would have to learn to multiply for it.
    """
    heading = pose[..., 2]
    parts = [pose[..., 0], pose[..., 1], *(0.5 + 0.5 * turn(heading) for turn in (np.cos, np.sin))]
    if target is not None:
        way = target - pose[..., :2]
        distance = np.hypot(way[..., 0], way[..., 1])
        bearing = np.arctan2(way[..., 1], way[..., 0]) - heading
        told = [distance, np.exp(-distance / NEAR), *(0.5 + 0.5 * turn(bearing) for turn in (np.cos, np.sin))]
        parts += [np.nan_to_num(part) for part in told]
    return np.stack(parts, -1).astype(np.float32)
