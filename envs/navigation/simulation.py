"""Robots in a house, in bulk: given actions, or small policies. What is called here is checked here.

    simulate(map, start_pose, actions [N, T, 2])  ──> pose, obs after every step
    rollout(map, start_pose, policies [N, 302])   ──> obs, action, pose of every step, or the last pose only

Robots do not meet; row n of everything is one robot alone. Nothing is drawn by chance.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.navigation.house import Map, load

if TYPE_CHECKING:
    from envs.native.navigation.floor import Floor

SENSORS = 5
"""Numbers sensed: three lasers, two bumpers."""
WHEELS = 2
"""Numbers of an action: how far the left and the right one move in a step, world units."""
FASTEST = 4.0
"""Farthest that a wheel moves in a step, world units."""
TENTHS = 10.0
"""Steps of a wheel's speed to a world unit: small networks choose from whole ones."""
LAYERS = ((SENSORS, 10), (10, 10), (10, 10), (10, WHEELS))
"""Inputs and outputs of each layer of a small network."""
PARAMETERS = sum((inputs + 1) * outputs for inputs, outputs in LAYERS)
"""Its weights and biases: 302."""

Source = Map | dict[str, Any] | str | Path
_ANGLE = 100.0  # radians: a float32 that is much larger cannot be wrapped


def simulate(map: Source, start_pose: ArrayLike | None, actions: ArrayLike) -> dict[str, NDArray[np.float32]]:
    """What becomes of given actions.

    Args:
        map: a `Map`, the path of a JSON file, or what such a file holds.
        start_pose: x, y in world units and heading in radians, for all [3] or each [N, 3]; None: the map's own.
        actions: [N, T, 2], how far the left and the right wheel move in each step, world units; clipped to [-4, 4].

    Returns:
        `pose` float32 [N, T, 3], x, y and heading in [-pi, pi] after each step; `obs` float32 [N, T, 5] after each
        step: distances of the lasers at +45 (clockwise), 0 and -45 degrees, 100 if there is nothing nearer, and
        whether the left and the right bumper touch a wall, 0 or 1.

    Raises:
        ValueError: one sentence: the map is bad, a robot would start in or at a wall, the actions have another shape
            or are not all finite.
    """
    from envs.native.navigation import loops  # here and below, because it brings the compiler along

    given = _numbers("actions", actions)
    if given.ndim != 3 or given.shape[2] != WHEELS:
        raise ValueError(f"actions are [N, T, 2], robots by steps by wheels: got {list(given.shape)}")
    floor, starts = _prepare(load(map), start_pose, len(given))
    pose, obs = np.empty((*given.shape[:2], 3), np.float32), np.empty((*given.shape[:2], 5), np.float32)
    loops.record(floor, starts, given, pose, obs)
    return {"pose": pose, "obs": obs}


def rollout(
    map: Source,
    start_pose: ArrayLike | None,
    policies: ArrayLike,
    steps: int = 400,
    *,
    trajectories: bool = True,
) -> dict[str, NDArray[np.float32]]:
    """What small policies do. Equal to `simulate` of the actions that were executed, bit for bit.

    A policy is a network 5 -> 10 -> 10 -> 10 -> 2, tanh between its layers, of observations as they are; its outputs
    are clipped to [-4, 4] and rounded to tenths, half to even (Salehi and Doncieux 2023).

    Args:
        map, start_pose: as `simulate`.
        policies: [N, 302], the weights of each, layer by layer: [out, in] by rows, then the biases.
        steps: T.
        trajectories: whether to return all steps. A rollout of 400 steps takes 16 KB then.

    Returns:
        `obs` float32 [N, T, 5], what each action was chosen from; `action` float32 [N, T, 2], what was executed;
        `pose` float32 [N, T, 3], after each step. Without trajectories only `pose` float32 [N, 3], the last one.

    Raises:
        ValueError: one sentence, as `simulate`.
    """
    from envs.native.navigation import loops

    weights = _numbers("policies", policies)
    if weights.ndim != 2 or weights.shape[1] != PARAMETERS:
        raise ValueError(f"policies are [N, {PARAMETERS}]: got {list(weights.shape)}")
    if steps < 1:
        raise ValueError(f"a rollout has at least one step: got steps={steps}")
    floor, starts = _prepare(load(map), start_pose, len(weights))
    rows = len(weights) if trajectories else 0
    pose, obs, action = (np.empty((rows, steps, k), np.float32) for k in (3, 5, 2))
    final = np.empty((len(weights), 3), np.float32)
    loops.roll_out(floor, starts, weights, steps, final, pose, obs, action)
    return {"obs": obs, "action": action, "pose": pose} if trajectories else {"pose": final}


def _prepare(house: Map, start_pose: ArrayLike | None, robots: int) -> tuple[Floor, NDArray[np.float32]]:
    """The map's tables, and a start [N, 3] for each robot."""
    from envs.native.navigation.floor import floor

    tables = floor(house.walls, house.world_size)
    given = _numbers("start_pose", house.start if start_pose is None else start_pose)
    if given.shape not in ((3,), (robots, 3)):
        raise ValueError(f"start_pose is [3] or [{robots}, 3], x, y and radians: got {list(given.shape)}")
    check_starts(tables, given.reshape(-1, 3))
    return tables, np.ascontiguousarray(np.broadcast_to(given, (robots, 3)))


def check_starts(tables: Floor, starts: NDArray[np.float32]) -> None:
    """Robots may start at [N, 3].

    Raises:
        ValueError: one would start off the map, within its radius of a wall, or with an angle that is no radians.
    """
    inside, touching = _at(tables, starts)
    for row in np.flatnonzero(touching)[:1].tolist():
        where = "in a wall, or nearer to one than its radius" if inside[row] else "off the map"
        x, y = np.floor(starts[row, :2] * tables.scale + np.float64(0.5)).tolist()
        place = f"start_pose {starts[row].tolist()} is at pixel ({x:.0f}, {y:.0f})"
        raise ValueError(f"{place}, {where}: start where it is free")
    if len(starts) and np.abs(starts[:, 2]).max() > _ANGLE:
        raise ValueError(f"start_pose has an angle of {np.abs(starts[:, 2]).max():g}: give it in radians")


def free(map: Source, poses: ArrayLike) -> NDArray[np.bool_]:
    """Whether a robot may start at each of these poses [N, 3]: on the map, and no nearer to a wall than its radius."""
    from envs.native.navigation.floor import floor

    house = load(map)
    return ~_at(floor(house.walls, house.world_size), _numbers("poses", poses))[1]


def _at(tables: Floor, poses: NDArray[np.float32]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Of poses [N, 3]: which are on the map, and where a robot would touch a wall or be off the map."""
    x, y = np.floor(poses[:, :2].T * tables.scale + np.float64(0.5)).astype(np.int64)
    inside = (x >= 0) & (x < tables.width) & (y >= 0) & (y < tables.height)
    pixel = np.where(inside, y * tables.width + x, 0)
    touching = np.asarray(tables.touching)[pixel].astype(np.bool_)
    return inside, touching | ~inside


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float32]:
    """float32, contiguous, all of them finite."""
    try:
        given = np.ascontiguousarray(values, np.float32)
    except (TypeError, ValueError) as reason:
        raise ValueError(f"{name} are no array of numbers: {reason}") from None
    if not np.isfinite(given).all():
        place = np.argwhere(~np.isfinite(given))[0].tolist()
        raise ValueError(f"{name} must be finite numbers: the first that is not is at {place}")
    return given
