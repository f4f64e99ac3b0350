"""Where a robot is, from what it senses and the house's plan: Monte Carlo localisation (Dellaert et al. 1999, ICRA).

    possible starts ──> particles ── each moved as the wheels say ──> what would the lasers read there? ──> weights
                            ^                                                                                │
                            └──────────────── drawn anew, moved a little, where few are left ────────────────┘

Odometry takes the start for granted: one that is 10 degrees off leads 50 units astray after 300. Lasers and the plan
tell within some seconds which start it was. Nothing here is random: particles and their small moves are points of
Halton's sequence, so a robot's estimate depends on nothing but what that robot did and sensed.

The limit is what lasers would read at each particle: 2 million a second.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats.qmc import Halton

from envs.navigation.house import Map
from envs.navigation.odometry import reckon
from envs.navigation.simulation import WHEELS, free, simulate

LASERS = slice(0, 3)
"""Of an observation."""
DOUBT = 2.5
"""Error of a laser that makes a particle less likely by a factor e, world units."""
WORST = 25.0
"""Larger errors count as this: a laser that just misses a corner says little."""
SHRINK = 0.35
"""How far new particles are moved, in standard deviations of the old ones (Liu and West 2001)."""
LEAST = np.array([0.7, 0.7, 0.006])
"""How far at least: odometry errs a little all the time. World units, radians."""
PHASES = 64
"""Steps after which the small moves repeat."""

Floats = NDArray[np.float64]


class Localiser:
    """The estimated poses of B robots.

    Args:
        house: the plan.
        start: where each robot believes to start, [B, 3].
        particles: K, possible poses of each robot.
        distance, degrees: how far from there, along each axis and in heading, it may have started.

    Attributes:
        pose: float64 [B, 3], x, y in world units and heading in radians, not wrapped; after `look`.
    """

    def __init__(self, house: Map, start: Floats, particles: int, distance: float, degrees: float) -> None:
        cube = Halton(3, scramble=False).random(particles * (PHASES + 1) + 1)[1:]
        first, rest = cube[:particles], cube[particles:]
        reach = np.array([distance, distance, np.radians(degrees)])
        self.house = house
        self.particles = start[:, None] + (2 * first - 1) * reach  # [B, K, 3]
        self.pose: Floats = self.particles.mean(1)
        self._moves = norm.ppf(rest).reshape(PHASES, particles, 3)
        self._surprise = np.zeros((len(start), particles))
        self._looks = 0

    def look(self, sensed: NDArray[np.float32]) -> None:
        """Weigh particles by what the robots sense now, [B, 5]."""
        self._surprise += np.minimum(np.abs(self._lasers() - sensed[:, None, LASERS]), WORST).sum(-1) / DOUBT
        weight = np.exp(self._surprise.min(1, keepdims=True) - self._surprise)
        weight /= weight.sum(1, keepdims=True)
        self.pose = (weight[..., None] * self.particles).sum(1)
        count = weight.shape[1]
        few = np.flatnonzero(1 / np.square(weight).sum(1) < count / 2)
        if len(few):
            own, weight = self.particles[few], weight[few]
            mean = self.pose[few, None]
            spread = np.sqrt((weight[..., None] * np.square(own - mean)).sum(1, keepdims=True))
            drawn = (np.arange(count) + 0.5) / count
            chosen = (np.cumsum(weight, 1)[:, :, None] < drawn).sum(1).clip(max=count - 1)
            kept = np.sqrt(1 - SHRINK**2)
            moved = np.maximum(SHRINK * spread, LEAST) * self._moves[self._looks % PHASES]
            centre = kept * np.take_along_axis(own, chosen[..., None], 1) + (1 - kept) * mean
            self.particles[few], self._surprise[few] = centre + moved, 0.0
        self._looks += 1

    def move(self, action: NDArray[np.float32], obs: NDArray[np.float32]) -> None:
        """Robots executed actions [B, T, 2] and sensed [B, T, 5] after each."""
        way = reckon(np.zeros(3), action, obs)[:, -1, None]  # as seen from where they were
        heading = self.particles[..., 2]
        cosine, sine = np.cos(heading), np.sin(heading)
        x = cosine * way[..., 0] - sine * way[..., 1]
        y = sine * way[..., 0] + cosine * way[..., 1]
        self.particles = self.particles + np.stack([x, y, np.broadcast_to(way[..., 2], x.shape)], -1)

    def _lasers(self) -> Floats:
        """What the lasers would read at each particle, [B, K, 3]; in a wall nothing."""
        flat = self.particles.reshape(-1, 3).astype(np.float32)
        flat[:, 2] = (flat[:, 2] + np.pi) % (2 * np.pi) - np.pi
        there = free(self.house, flat)
        flat[~there] = self.house.start
        obs = simulate(self.house, flat, np.zeros((len(flat), 1, WHEELS), np.float32))["obs"][:, 0, LASERS]
        read = np.where(there[:, None], obs.astype(np.float64), np.inf)
        return read.reshape(*self.particles.shape[:2], -1)
