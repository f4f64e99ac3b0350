"""Many robots, many steps: recordings of given actions, rollouts of policies, and one step of a batch.

Robots do not meet. A rollout is evaluated in blocks of `policy.LANES` policies: all of them act, then each of their
robots moves. On one core of 2.6 GHz a rollout of 400 steps takes 0.12 ms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.navigation.floor import Floor
from envs.native.navigation.policy import HIDDEN, LANES, LAYERS, act, pack
from envs.native.navigation.robot import SENSORS, start, step

Floats = NDArray[np.float32]


@compiled
def begin(floor: Floor, poses: Floats, sensors: Floats, index: NDArray[np.int64]) -> None:
    """Robots `index` start where their rows of `poses` [N, 3] say; their rows of both arrays are written."""
    for i in index:
        start(floor, poses, sensors, i)


@compiled
def advance(floor: Floor, poses: Floats, sensors: Floats, actions: Floats) -> None:
    """One step of all: poses [N, 3] and sensors [N, 5] are changed by actions [N, 2]."""
    for i in range(len(poses)):
        step(floor, poses, sensors, i, actions[i, 0], actions[i, 1])


@compiled
def replay(floor: Floor, poses: Floats, sensors: Floats, lengths: NDArray[np.int32], actions: Floats) -> None:
    """Robot i makes its first `lengths[i]` steps of actions [N, T, 2]."""
    for i in range(len(poses)):
        for t in range(lengths[i]):
            step(floor, poses, sensors, i, actions[i, t, 0], actions[i, t, 1])


@compiled
def _copy(rows: Floats, i: int, kept: Floats, n: int, t: int) -> None:
    """Element by element: a slice would be checked and counted each time."""
    for k in range(rows.shape[1]):
        kept[n, t, k] = rows[i, k]


@compiled
def record(floor: Floor, starts: Floats, actions: Floats, poses: Floats, sensors: Floats) -> None:
    """All steps of given actions.

    Args:
        starts: [N, 3].
        actions: [N, T, 2].
        poses: [N, T, 3], written: after each step.
        sensors: [N, T, 5], written: after each step.
    """
    pose, seen = np.empty((1, 3), np.float32), np.empty((1, SENSORS), np.float32)
    for n in range(len(starts)):
        pose[0] = starts[n]
        start(floor, pose, seen, 0)
        for t in range(actions.shape[1]):
            step(floor, pose, seen, 0, actions[n, t, 0], actions[n, t, 1])
            _copy(pose, 0, poses, n, t)
            _copy(seen, 0, sensors, n, t)


@compiled
def roll_out(
    floor: Floor,
    starts: Floats,
    policies: Floats,
    steps: int,
    final: Floats,
    poses: Floats,
    sensors: Floats,
    actions: Floats,
) -> None:
    """Policies drive robots.

    Args:
        starts: [N, 3].
        policies: [N, 302].
        final: [N, 3], written: the last pose.
        poses, sensors, actions: [N, steps, 3], [N, steps, 5], [N, steps, 2], written: the pose after each step, what
            was sensed before it, what was done. Or [0, ...]: not wanted.
    """
    weights = np.zeros((LAYERS, HIDDEN + 1, HIDDEN, LANES), np.float32)
    values, spare = np.empty((HIDDEN, LANES), np.float32), np.empty((HIDDEN, LANES), np.float32)
    pose, seen = np.empty((LANES, 3), np.float32), np.empty((LANES, SENSORS), np.float32)
    for first in range(0, len(policies), LANES):
        count = min(LANES, len(policies) - first)
        pack(policies, first, count, weights)
        for lane in range(count):
            pose[lane] = starts[first + lane]
            start(floor, pose, seen, lane)
        for t in range(steps):
            values[:] = 0
            for lane in range(count):
                for k in range(SENSORS):
                    values[k, lane] = seen[lane, k]
            act(weights, values, spare)
            for lane in range(count):
                left, right = values[0, lane], values[1, lane]
                if len(poses):
                    _copy(seen, lane, sensors, first + lane, t)
                    actions[first + lane, t, 0], actions[first + lane, t, 1] = left, right
                step(floor, pose, seen, lane, left, right)
                if len(poses):
                    _copy(pose, lane, poses, first + lane, t)
        final[first : first + count] = pose[:count]
