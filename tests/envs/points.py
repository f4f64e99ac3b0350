"""Simulations without a simulator: a point moves in so many dimensions, and is paid for being near a hidden place."""

import numpy as np

from envs.pool import Pool, spec_of

TASKS = {"line": 1, "plane": 2, "space": 3, "deep": 4}
"""Numbers that each task shows and takes."""


class Point:
    """A task of `TASKS`; counts how many of it were built."""

    built: list[str] = []  # noqa: RUF012

    def __init__(self, task):
        self.numbers = TASKS[task]
        self.built.append(task)

    def reset(self, task, seed):
        self.at = np.random.default_rng(seed).uniform(-1, 1, self.numbers)
        self.aim = np.random.default_rng([7, task]).uniform(-1, 1, self.numbers)
        return self.at

    def step(self, action):
        self.at = np.clip(self.at + 0.3 * action[: self.numbers], -2, 2)
        far = float(np.abs(self.at - self.aim).max())
        return self.at, 1 - far / 4, far > 2.9, far < 0.1


def points(num_envs, seed=0, first_index=0, held_out=1, length=9):
    """A pool of points; the last tasks are held out."""
    names = list(TASKS)
    spec = spec_of("points/Tasks", 5, 4, (names[: len(names) - held_out], names[len(names) - held_out :]))
    return Pool(spec, num_envs, seed, first_index, tasks=names, build=Point, length=length)
