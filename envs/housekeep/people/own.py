"""Our own table of preferences: ten raters who share our affinities and disagree as people do.

    affinities ──> how well 269 objects go with 128 places ──> + what each rater thinks ──> ranks ──> Preferences

It is made anew by each process, in some milliseconds, and is the same everywhere: its random numbers come from a stream
that NumPy has frozen, and there is nothing but sums, products and square roots in what is done to them.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from envs.housekeep.names import KINDS, OBJECTS, PLACES, ROOMS
from envs.housekeep.people import affinities
from envs.housekeep.people.affinities import Habit
from envs.housekeep.people.preferences import RATERS, Preferences

SOURCE = "our own affinities and simulated raters"
SEED = 0
TIDY, UNTIDY = 1.75, 0.7
"""What a rater's opinion must exceed for the place to be tidy, or untidy but likely."""
DISAGREEMENT = 0.6
"""Standard deviation of a rater's opinion about the affinity."""
STRICTNESS = 0.2
"""Standard deviation of a rater's opinion about all pairs."""
LEFT, SETTLED = 0.8, 3.0
"""Affinities of an object with few places: the most elsewhere, and there."""

_PLACE = {f"{room} {kind}": i for i, (room, kind) in enumerate(PLACES)}
_ROOM = np.array([ROOMS.index(room) for room, _ in PLACES])


@cache
def preferences(seed: int = SEED) -> Preferences:
    """The table; seed: of the raters. Only the default one is what reports call our own."""
    affinity = affinities_of_places()
    random = np.random.RandomState(seed)
    strictness = STRICTNESS * _noise(random, (RATERS,))
    opinion = affinity[:, :, None] + strictness + DISAGREEMENT * _noise(random, (*affinity.shape, RATERS))
    ranks = np.zeros(opinion.shape, np.int8)
    for room in np.unique(_ROOM):
        here = room == _ROOM
        of_room = opinion[:, here]
        tidy, untidy = of_room > TIDY, (of_room <= TIDY) & (of_room > UNTIDY)
        ranks[:, here] = _ranked(of_room, tidy) - _ranked(of_room, untidy)
    return Preferences(ranks, SOURCE)


def affinities_of_places() -> NDArray[np.float64]:
    """float64 [269, 128]: 0 to 3, how well an object goes with a place, by `affinities`.

    Raises:
        ValueError: the affinities name what is not in `names`, or leave out an object or name it twice.
    """
    rooms = np.full((len(OBJECTS), len(ROOMS)), affinities.ROOM)
    kinds = np.zeros((len(OBJECTS), len(KINDS)))
    for kind, weight in _weights(affinities.KINDS):
        kinds[:, KINDS.index(kind)] = weight
    grouped = [name for habit in affinities.GROUPS.values() for name in _names(habit.objects)]
    if sorted(grouped) != sorted(OBJECTS):
        raise ValueError(f"each object has one group: {sorted(set(grouped) ^ set(OBJECTS)) or 'one has two'}")
    for habit in (*affinities.GROUPS.values(), *affinities.EXCEPTIONS):
        _apply(habit, rooms, kinds)
    found = kinds[:, [KINDS.index(kind) for _, kind in PLACES]] * np.sqrt(rooms[:, _ROOM] / 3)
    for name, places in affinities.ONLY.items():
        row = found[OBJECTS.index(name)]
        np.minimum(row, LEFT, out=row)
        row[[_PLACE[place] for place in _names(places)]] = SETTLED
    return found


def _apply(habit: Habit, rooms: NDArray[np.float64], kinds: NDArray[np.float64]) -> None:
    rows = [OBJECTS.index(name) for name in _names(habit.objects)]
    for room, weight in _weights(habit.rooms):
        rooms[rows, ROOMS.index(room)] = weight
    for kind, weight in _weights(habit.kinds):
        kinds[rows, KINDS.index(kind)] = weight


def _names(text: str) -> list[str]:
    return [" ".join(name.split()) for name in text.split(",") if name.strip()]


def _weights(text: str) -> list[tuple[str, float]]:
    pairs = (entry.rsplit(" ", 1) for entry in _names(text))
    return [(name, float(weight)) for name, weight in pairs]


def _noise(random: np.random.RandomState, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Nearly normal, deviation 1: a sum of four uniform numbers, which is the same on any machine."""
    found: NDArray[np.float64] = (random.random_sample((4, *shape)).sum(0) - 2) * np.sqrt(3.0)
    return found


def _ranked(opinion: NDArray[np.float64], counts: NDArray[np.bool_]) -> NDArray[np.int8]:
    """int8 like `opinion`: 1, 2, ... from the highest along axis 1 among those that count, 0 for the others."""
    order = np.argsort(np.argsort(np.where(counts, -opinion, np.inf), 1, kind="stable"), 1, kind="stable")
    return np.where(counts, order + 1, 0).astype(np.int8)
