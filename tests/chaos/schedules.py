"""Schedules: which faults meet which work, and when. A seed says all of it, so that a failure can be repeated.

    seed ──> work, one to three faults ──> start under the first, go on under the next, at last without any

`when` and `amount` are shares in [0, 1): of what the work does when nothing happens to it, and of how bad a fault can
be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

IN_ONE_PROCESS = {
    "train": ("controller",),
    "search": ("controller",),
    "label": ("controller", "controller", "controller", "redis"),
    "ask": ("controller", "controller", "service", "wire"),
}
"""Works whose controller plays all roles but those that are named, and who may be met there, as often as named."""
ON_RAY = {
    "train on Ray": ("controller", "actor", "learner"),
    "ask on Ray": ("service", "service", "actor", "controller"),
    "search on Ray": ("controller", "actor"),
    "policy server": ("controller", "learner", "policy server"),
}
"""Works whose roles are processes of their own: these are killed."""
EVERY = 6
"""One schedule in so many is on Ray: to start it takes most of such a schedule's time."""
FAULTS = {
    "controller": ("kill", "kill", "full disk", "slow disk", "clock", "truncate", "truncate"),
    "service": ("kill", "kill", "full disk", "slow disk", "clock"),
    "wire": ("cut",),
    "redis": ("kill",),
}
LEAVES = ("kill", "full disk", "truncate")
"""Faults after which a controller is started again: only these can be followed by another."""


@dataclass(frozen=True)
class Fault:
    """What happens to whom.

    when: share of the changes to files that the process makes, or of the work's progress.
    amount: how much: of a delay, of a jump of the clock, of a file that is cut; and which file.
    """

    kind: str
    who: str
    when: float
    amount: tuple[float, float]

    def __str__(self) -> str:
        return f"{self.kind} ({self.who}) at {self.when:.4f} by {self.amount[0]:.4f}, {self.amount[1]:.4f}"


@dataclass(frozen=True)
class Schedule:
    """A work, and the faults that it meets, one for each start of its controller."""

    seed: int
    work: str
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.work}: " + "; then ".join(map(str, self.faults))


def draw(seed: int) -> Schedule:
    """The schedule of a seed."""
    random = np.random.default_rng([10, seed])
    place, block = seed % EVERY, seed // EVERY
    if place == EVERY - 1:
        work = list(ON_RAY)[block % len(ON_RAY)]
        return Schedule(seed, work, (_fault(random, "kill", str(random.choice(ON_RAY[work]))),))
    work = list(IN_ONE_PROCESS)[(seed - block) % len(IN_ONE_PROCESS)]
    faults: list[Fault] = []
    for _ in range(int(random.integers(1, 4))):
        who = str(random.choice(IN_ONE_PROCESS[work]))
        faults.append(_fault(random, str(random.choice(FAULTS[who])), who))
        if who != "controller" or faults[-1].kind not in LEAVES:
            break
    return Schedule(seed, work, tuple(faults))


def _fault(random: np.random.Generator, kind: str, who: str) -> Fault:
    first, second = random.random(2)
    return Fault(kind, who, float(random.random()), (float(first), float(second)))
