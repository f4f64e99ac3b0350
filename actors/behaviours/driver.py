"""A driver that follows a route from wherever its robot is: the teacher of a transformer that must find back.

    route [T, 2] ──> even steps along it ──> the nearest one ahead = progress
    robot's pose ──> the farthest place of the next 40 units in plain sight ──> an arc there, or a turn on the spot

Small policies are no teachers: they sense no place, so who leaves their way is led astray. A driver knows where its
robot is and where the route is. It is pure pursuit (Coulter 1992, CMU-RI-TR-92-01) with one speed: what is left of the
route over what is left of the time, so that how to drive follows from the route alone.

The limit is looking along lines of sight, some microseconds for each robot and decision.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.navigation import FASTEST, Map, free
from envs.navigation.odometry import WHEELBASE

LOOKS = (6.0, 12.0, 20.0, 30.0, 40.0)
"""How far ahead on the route a driver looks, world units: the farthest of these that nothing hides."""
SHARP = 1.2
"""A turn of more than this is made on the spot, radians."""
SIGHT = 8
"""Points of a line of sight that must be free."""
REGAIN = 20.0
"""How far a robot may be brought ahead on its route besides its own driving, world units."""
AHEAD = (5, 10, 20)
"""Actions ahead of which a driver tells where it will be."""
CANDIDATES = 24
"""Places ahead on the route among which the nearest one is the robot's progress."""


class Driver:
    """Follows N routes with as many robots; `advise` is asked once for each action, in order.

    Args:
        route: float32 [N, T, 2], free places in the order of driving, world units.
        length: steps of an episode; the driver arrives as it ends.
        stride: steps for which an action is held.
    """

    def __init__(self, house: Map, route: NDArray[np.float32], length: int, stride: int) -> None:
        self.house, self.length, self.stride = house, length, stride
        self.way, self.spacing = evenly(route)
        self.progress = np.zeros(len(route))  # steps along `way`

    def advise(self, pose: NDArray[np.float32], step: int) -> NDArray[np.float64]:
        """Actions [N, 2] for the next `stride` steps of robots at poses [N, 3], `step` steps after their start."""
        place = pose[:, :2].astype(np.float64)
        last = self.way.shape[1] - 1
        share = self.stride / (self.length - step)  # of what is left of the route
        reach = 2.5 * self.stride / self.length * last + REGAIN / self.spacing
        ahead = np.minimum(self.progress[:, None] + np.linspace(0, 1, CANDIDATES) * reach[:, None], last)
        nearest = np.linalg.norm(self._at(ahead) - place[:, None], axis=-1).argmin(1)
        self.progress = ahead[np.arange(len(ahead)), nearest]
        goal = np.empty_like(place)
        for k, look in enumerate(LOOKS):
            seen = self._at(np.minimum(self.progress + look / self.spacing, last)[:, None])[:, 0]
            there = np.ones(len(seen), np.bool_) if not k else self._in_sight(place, seen)
            goal = np.where(there[:, None], seen, goal)
        way = goal - place
        distance: NDArray[np.float64] = np.hypot(way[:, 0], way[:, 1])
        forward = np.minimum((last - self.progress) * self.spacing * share, distance) / self.stride
        bearing = (np.arctan2(way[:, 1], way[:, 0]) - pose[:, 2] + np.pi) % (2 * np.pi) - np.pi
        return wheels(bearing.astype(np.float64), distance, forward.astype(np.float64), self.stride)

    def ahead(self, step: int) -> NDArray[np.float64]:
        """Where the driver will be after AHEAD actions, or at the end: [N, 2 x 3], world units, of the last advice."""
        left = np.array(AHEAD) * self.stride / max(self.length - step, 1)
        last = self.way.shape[1] - 1
        there = self.progress[:, None] + (last - self.progress[:, None]) * left.clip(max=1)
        return self._at(there).reshape(len(there), -1)

    def distance(self, pose: NDArray[np.float32]) -> NDArray[np.float64]:
        """How far robots at poses [N, 3] are from where their routes are by now, [N], world units."""
        away: NDArray[np.float64] = np.linalg.norm(self._at(self.progress[:, None])[:, 0] - pose[:, :2], axis=-1)
        return away

    def _at(self, progress: NDArray[np.float64]) -> NDArray[np.float64]:
        """Places [N, K, 2] so many steps [N, K] along the routes."""
        found: NDArray[np.float64] = self.way[np.arange(len(self.way))[:, None], np.rint(progress).astype(np.intp)]
        return found

    def _in_sight(self, place: NDArray[np.float64], goal: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether a robot could drive straight from [N, 2] to [N, 2]."""
        share = np.arange(1, SIGHT + 1)[:, None] / SIGHT
        points = place[:, None] + (goal - place)[:, None] * share
        poses = np.concatenate([points.reshape(-1, 2), np.zeros((points.size // 2, 1))], 1)
        return np.asarray(free(self.house, poses).reshape(len(place), SIGHT).all(1), np.bool_)


def evenly(route: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Routes [N, T, 2] as T places each at equal distances along the way, [N, T, 2], and these distances, [N]."""
    moved = np.linalg.norm(np.diff(route.astype(np.float64), axis=1), axis=-1)
    along = np.concatenate([np.zeros((len(route), 1)), np.cumsum(moved, 1)], 1)
    wanted = np.linspace(0, 1, route.shape[1]) * along[:, -1:]
    way = [
        [np.interp(at, done, places[:, axis]) for axis in (0, 1)]
        for at, done, places in zip(wanted, along, route, strict=True)
    ]
    spacing = np.maximum(along[:, -1] / (route.shape[1] - 1), 1e-3)
    return np.stack(way).reshape(len(route), 2, -1).transpose(0, 2, 1).copy(), spacing


def wheels(
    bearing: NDArray[np.float64], distance: NDArray[np.float64], forward: NDArray[np.float64], stride: int
) -> NDArray[np.float64]:
    """Speeds of the wheels [N, 2] that bring a robot on an arc to a place in sight.

    Args:
        bearing: of the place as seen from the robot, [N], radians in [-pi, pi].
        distance: of it, [N], world units.
        forward: wished speed, [N], world units a step.
        stride: steps for which the action is held.
    """
    sharp = np.abs(bearing) > SHARP
    curve = forward * 2 * np.sin(bearing) / np.maximum(distance, 1e-6)
    most = np.minimum(2 * np.abs(bearing) / stride, 2 * FASTEST / WHEELBASE)  # not past the place, nor too fast
    turn = np.where(sharp, bearing / stride, curve).clip(-most, most)
    half = turn * WHEELBASE / 2
    forward = np.where(sharp, 0.0, np.minimum(forward, FASTEST - np.abs(half)))
    return np.stack([forward - half, forward + half], -1)
