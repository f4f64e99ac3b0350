"""Where people say that things belong, as one table, whoever was asked.

    published.read ──┐
    own.preferences ─┼──> Preferences: ranks of ten raters ──> positive, negative, right, quality
    Preferences.load ┘                                    └──> suits, placed: what is right in a house

A place is right for an object if at least `MAJORITY` of the ten say so. Pieces inherit from those whose name is part of
theirs, if the house has both: where there is a kitchen bottom cabinet, the "kitchen bottom cabinet no top", which
nobody was asked about, is right for the same objects; and a sofa chair is right for what the sofa of its room is right
for. By this rule, the published one, not one label of the 600 published episodes of two houses comes out otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from envs.housekeep.names import KINDS, NAMES, OBJECTS, PLACES, ROOMS, number

RATERS = 10
MAJORITY = 6
"""Raters of ten that make a place right, or an untidy one."""
LARGEST = 16
"""The largest rank of either sign: no room has more kinds of furniture."""

PLACE_NAMES = np.array([number(room, kind) for room, kind in PLACES], np.int16)
"""int16 [128]: the number in `NAMES` of each of `PLACES`."""
_KEYS = tuple(f"{room}-{kind}" for room in ROOMS for kind in KINDS)  # a room ends where its piece begins
HEIRS = tuple(
    (place, heir)
    for place, own in enumerate(PLACE_NAMES.tolist())
    for heir, key in enumerate(_KEYS)
    if heir != own and _KEYS[own] in key
)
"""Pairs of a number in `PLACES` and one in `NAMES`: the second inherits from the first."""


@dataclass(frozen=True, eq=False)
class Preferences:
    """What ten raters say of each object in each place.

    Attributes:
        ranks: int8 [269, 128, 10], by the numbers of `OBJECTS` and `PLACES`. Above 0: it is tidy there, and 1 is the
            best place of the room; below 0: one may find it there where nobody has tidied up, and -1 most likely;
            0: it is neither. The order of the raters means nothing.
        source: who was asked, for reports.

    Raises:
        ValueError: one sentence: ranks have another shape, kind or range.
    """

    ranks: NDArray[np.int8]
    source: str

    def __post_init__(self) -> None:
        shape = (len(OBJECTS), len(PLACES), RATERS)
        if self.ranks.shape != shape or self.ranks.dtype != np.int8:
            raise ValueError(f"ranks are int8 {list(shape)}: got {self.ranks.dtype} {list(self.ranks.shape)}")
        if abs(self.ranks.astype(np.int16)).max() > LARGEST:
            raise ValueError(f"ranks are -{LARGEST} to {LARGEST}: got {self.ranks.min()} to {self.ranks.max()}")
        self.ranks.setflags(write=False)

    @cached_property
    def positive(self) -> NDArray[np.uint8]:
        """uint8 [269, 128]: how many raters say that an object is tidy in a place."""
        count: NDArray[np.uint8] = (self.ranks > 0).sum(2, dtype=np.uint8)
        return count

    @cached_property
    def negative(self) -> NDArray[np.uint8]:
        """uint8 [269, 128]: how many raters say that an object is untidy there, but may be found."""
        count: NDArray[np.uint8] = (self.ranks < 0).sum(2, dtype=np.uint8)
        return count

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """bool [269, 128]: a majority calls it tidy."""
        return self.positive >= MAJORITY

    @cached_property
    def misplaced(self) -> NDArray[np.bool_]:
        """bool [269, 128]: a majority calls it untidy."""
        return self.negative >= MAJORITY

    @cached_property
    def quality(self) -> NDArray[np.float32]:
        """float32 [269, 128]: mean of 1 / rank over the raters who call it tidy; 0 where it is not right."""
        tidy = self.ranks > 0
        reciprocal = np.where(tidy, 1 / np.maximum(self.ranks, 1, dtype=np.float32), 0).sum(2)
        return np.where(self.right, reciprocal / np.maximum(self.positive, 1), 0).astype(np.float32)

    @cached_property
    def plain(self) -> NDArray[np.bool_]:
        """bool [269, len(NAMES)]: what is right in any house, without heirs."""
        return self._by_name(self.right)

    def suits(self, names: Sequence[str | int] | NDArray[np.integer]) -> NDArray[np.bool_]:
        """bool [269, len(NAMES)]: what is right in a house that has these pieces; false for what it does not have.

        Args:
            names: of all pieces of the house, or their numbers in `NAMES`, in any order, as often as one likes.

        Raises:
            ValueError: one sentence: there is no such name.
        """
        present = np.zeros(len(NAMES), np.bool_)
        present[_numbers(names)] = True
        here = self.right & present[PLACE_NAMES]
        found = self._by_name(here)
        for place, heir in HEIRS:
            found[:, heir] |= here[:, place]
        return found & present

    def placed(self, objects: NDArray[np.integer], names: NDArray[np.integer]) -> NDArray[np.bool_]:
        """bool [P, O, M]: which pieces of each house are right for which of its objects; as `suits`, for many houses.

        Args:
            objects: [P, O] numbers in `OBJECTS`; callers check.
            names: [P, M] numbers in `NAMES` of each house's pieces; -1 is no piece, which is right for nothing.
        """
        houses = np.arange(len(names))[:, None]
        present = np.zeros((len(names), len(NAMES) + 1), np.bool_)  # the last column is that of -1
        present[houses, names] = True
        right = np.pad(self.plain, ((0, 0), (0, 1)))
        found: NDArray[np.bool_] = right[objects[:, :, None], names[:, None, :]]
        for place, heir in HEIRS:
            house, piece = np.nonzero((names == heir) & present[:, PLACE_NAMES[place], None])
            found[house, :, piece] |= self.right[objects[house], place]
        return found

    def save(self, path: str | Path) -> None:
        """As an npz of plain arrays, with the names that its rows and columns have."""
        with Path(path).open("wb") as file:
            np.savez_compressed(
                file,
                ranks=self.ranks,
                objects=np.array(OBJECTS),
                places=np.array(["|".join(place) for place in PLACES]),
                source=np.array(self.source),
            )

    @classmethod
    def load(cls, path: str | Path) -> Preferences:
        """What `save` wrote, in the order of today's names.

        Raises:
            ValueError: one sentence with the path: it cannot be read, or holds something else.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                ranks, source = arrays["ranks"], str(arrays["source"])
                objects, places = (arrays[name].tolist() for name in ("objects", "places"))
            return cls(ordered(ranks, objects, places), source)
        except Exception as reason:  # garbled files make zipfile and numpy raise nearly anything
            raise ValueError(
                f"{path} holds no preferences ({reason}): name a file that Preferences.save wrote"
            ) from None

    def _by_name(self, right: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """bool [269, len(NAMES)] of bool [269, 128]."""
        found = np.zeros((len(OBJECTS), len(NAMES)), np.bool_)
        found[:, PLACE_NAMES] = right
        return found


def ordered(ranks: NDArray[np.integer], objects: Sequence[str], places: Sequence[str]) -> NDArray[np.int8]:
    """int8 [269, 128, 10] in the order of `OBJECTS` and `PLACES`.

    Args:
        ranks: [269, 128, 10] whole numbers.
        objects: names of the rows; blanks or underscores.
        places: names of the columns, "room|piece".

    Raises:
        ValueError: one sentence: names or ranks are others.
    """
    wanted = (OBJECTS, tuple("|".join(place) for place in PLACES))
    indices = []
    for what, given, known in zip(("objects", "places"), (objects, places), wanted, strict=True):
        if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
            raise ValueError(f"its {what} are no list of names")
        where = {name.replace("_", " "): i for i, name in enumerate(given)}
        if where.keys() != set(known) or len(given) != len(known):
            other = sorted(where.keys() ^ set(known))
            raise ValueError(f"its {what} are not the {len(known)} known ones: {(other or ['one is there twice'])[0]}")
        indices.append([where[name] for name in known])
    shape = (len(OBJECTS), len(PLACES), RATERS)
    if ranks.shape != shape or ranks.dtype.kind not in "iu":
        raise ValueError(f"its ranks are {ranks.dtype} {list(ranks.shape)}, not whole numbers {list(shape)}")
    if ranks.min() < -LARGEST or ranks.max() > LARGEST:
        raise ValueError(f"its ranks are {ranks.min()} to {ranks.max()}, not -{LARGEST} to {LARGEST}")
    return np.ascontiguousarray(ranks[np.ix_(*indices)].astype(np.int8))


def _numbers(names: Sequence[str | int] | NDArray[np.integer]) -> NDArray[np.int64]:
    """Numbers in `NAMES`."""
    try:
        numbers = np.array([_NUMBER[n] if isinstance(n, str) else int(n) for n in names], np.int64)
    except KeyError as unknown:
        raise ValueError(f"no piece in a room is called {unknown}: names are those of envs.housekeep.names") from None
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(NAMES):
        raise ValueError(f"numbers of names are 0 to {len(NAMES) - 1}: got {numbers.min()} to {numbers.max()}")
    return numbers


_NUMBER = {name: i for i, name in enumerate(NAMES)}
