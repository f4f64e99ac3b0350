"""Sentences of what a player sees, knows and holds, as ids of texts.

    pieces, a bit each ──> names, a bit each ──┐
    objects, a bit each; on what each lies ────┼──> key of bytes ── known in this house ──> text id
    what is held ──────────────────────────────┘                └─ new: written once, interned

    view        You see the lamp on the bathroom sink, the kitchen fridge and the window
    seen        You have seen the lamp and the vase. You know of the kitchen sink and the living room shelf
    held        You hold the lamp
    situation   You hold nothing. You see the lamp on the bathroom sink        or, with the lamp in the hand:
                You hold the lamp. You know of the kitchen sink. You know of the window        all that goals depend on
    published   objects: lamp, vase.receptacles: kitchen sink, living room shelf.you are holding: lamp.

Names stand in alphabetical order, objects first, and each once, however many pieces have it: so equal situations are
equal texts. The line that was published (Du et al. 2023) has its names in no fixed order, and is empty before anything
is seen; here it has one, and says "nothing.".

A text is looked up only where what it tells has changed. Limit: a look-up of a row takes 0.5 us, a new text 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from envs.text import TextTable

TEXTS = ("view", "seen", "held", "published")
"""Fields that are made here."""
NOTHING = 255
"""No object is held; no object, or none that is seen, lies there."""
MOST_NAMES = 64
"""Different names of pieces that a house may have: a bit each."""

Ids = NDArray[np.int32]
Index = NDArray[np.intp]


@dataclass
class House:
    """What is called how in a house, and what was said of it.

    names: of its pieces, in alphabetical order, at most `MOST_NAMES`.
    objects: of its objects, in the order of their numbers.
    """

    names: Sequence[str]
    objects: Sequence[str]
    said: dict[bytes, int] = field(default_factory=dict)

    def named(self, bits: int) -> list[str]:
        return [name for place, name in enumerate(self.names) if bits >> place & 1]

    def things(self, bits: int) -> list[int]:
        """Objects, in alphabetical order."""
        own = [k for k in range(len(self.objects)) if bits >> k & 1]
        return sorted(own, key=lambda k: self.objects[k])


@dataclass(frozen=True)
class Told:
    """What is to be told of n players.

    Attributes:
        house: int64 [n], which house.
        visible, known: uint64 [n], names of pieces in the picture, and of the episode's, a bit each.
        seen, met: uint16 [n], objects in the picture, and of the episode's, a bit each.
        place: uint8 [n, M], the place among the house's names of what each object lies on, `NOTHING` if it is held.
        holding: uint8 [n], the object, or `NOTHING`.
    """

    house: NDArray[np.int64]
    visible: NDArray[np.uint64]
    known: NDArray[np.uint64]
    seen: NDArray[np.uint16]
    met: NDArray[np.uint16]
    place: NDArray[np.uint8]
    holding: NDArray[np.uint8]


class Captions:
    """Texts of N players in P houses.

    Args:
        texts: where they are interned.
        players: N.
        houses: P.
    """

    def __init__(self, texts: TextTable, players: int, houses: int) -> None:
        self._texts, self._houses = texts, [House((), ())] * houses
        self._players = players
        self._keys: dict[str, NDArray[np.uint8]] = {}  # by kind, what was told last, [N, K]
        self._ids: dict[str, Ids] = {}

    def begin(self, house: int, names: Sequence[str], objects: Sequence[str], players: Index) -> None:
        """A house is furnished anew, and these live in it."""
        self._houses[house] = House(names, objects)
        for ids in self._ids.values():
            ids[players] = -1

    def of(self, kind: str, index: Index, told: Told) -> Ids:
        """Ids [n] of the texts of one kind, of players `index` [n]."""
        parts = _PARTS[kind](told)
        keys = np.ascontiguousarray(np.column_stack([_octets(part) for part in parts]))
        if kind not in self._keys:
            self._keys[kind] = np.zeros((self._players, keys.shape[1]), np.uint8)
            self._ids[kind] = np.full(self._players, -1, np.int32)
        last, ids = self._keys[kind], self._ids[kind]
        changed = np.flatnonzero((ids[index] < 0) | (keys != last[index]).any(1))
        for row in changed.tolist():
            house, key = self._houses[told.house[row]], kind.encode() + keys[row].tobytes()
            known = house.said.get(key)
            if known is None:
                known = self._texts.intern(_WRITTEN[kind](house, *(_plain(part[row]) for part in parts)))
                house.said[key] = known
            ids[index[row]] = known
        last[index[changed]] = keys[changed]
        found: Ids = ids[index]
        return found


# ---- what is told in each kind, and how it is written ----------------------------------------------------------------


def _lying(told: Told) -> NDArray[np.uint8]:
    """On what objects lie that are in the picture."""
    seen = told.seen[:, None] >> np.arange(told.place.shape[1], dtype=np.uint16) & 1
    return np.where(seen.astype(np.bool_), told.place, np.uint8(NOTHING))


def _situation_parts(told: Told) -> tuple[NDArray[np.generic], ...]:
    free = told.holding == NOTHING
    lying = np.where(free[:, None], _lying(told), np.uint8(NOTHING))
    return told.holding, lying, np.where(free, np.uint64(0), told.known)


def _view(house: House, visible: int, lying: Sequence[int]) -> str:
    pieces = [f"the {name}" for name in house.named(visible)]
    return f"You see {listed([*_objects(house, lying), *pieces]) or 'nothing'}"


def _seen(house: House, met: int, known: int) -> str:
    objects = listed(f"the {house.objects[k]}" for k in house.things(met))
    places = listed(f"the {name}" for name in house.named(known))
    return f"You have seen {objects or 'nothing'}. You know of {places or 'nothing'}"


def _held(house: House, holding: int) -> str:
    return "You hold nothing" if holding == NOTHING else f"You hold the {house.objects[holding]}"


def _situation(house: House, holding: int, lying: Sequence[int], known: int) -> str:
    """A sentence each, so that none can be misread."""
    told = [f"You see {thing}" for thing in _objects(house, lying)]
    if holding != NOTHING:
        told = [f"You know of the {name}" for name in house.named(known)]
    return ". ".join([_held(house, holding), *told])


def _published(house: House, met: int, known: int, holding: int) -> str:
    parts = (
        ("objects", [house.objects[k] for k in house.things(met)]),
        ("receptacles", house.named(known)),
        ("you are holding", [] if holding == NOTHING else [house.objects[holding]]),
    )
    return "".join(f"{name}: {', '.join(words)}." for name, words in parts if words) or "nothing."


def _objects(house: House, lying: Sequence[int]) -> list[str]:
    """Objects that are seen, with what they lie on."""
    seen = sum(1 << k for k, place in enumerate(lying) if place != NOTHING)
    return [f"the {house.objects[k]} on the {house.names[lying[k]]}" for k in house.things(seen)]


_PARTS: dict[str, Callable[[Told], tuple[NDArray[np.generic], ...]]] = {
    "view": lambda told: (told.visible, _lying(told)),
    "seen": lambda told: (told.met, told.known),
    "held": lambda told: (told.holding,),
    "situation": _situation_parts,
    "published": lambda told: (told.met, told.known, told.holding),
}
_WRITTEN: dict[str, Callable[..., str]] = {
    "view": _view,
    "seen": _seen,
    "held": _held,
    "situation": _situation,
    "published": _published,
}


def listed(names: Iterable[str]) -> str:
    """ "a, b and c"; empty if there are none."""
    *first, last = [*names] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def words(names: Iterable[str], objects: Iterable[str], observed: Iterable[str]) -> set[str]:
    """Every word of the texts of these kinds, and of goals, in lower case."""
    found = {word for name in (*names, *objects) for word in name.split()}
    told = {
        "view": "you see the on and nothing",
        "seen": "you have seen know of the and nothing",
        "held": "you hold the nothing",
        "published": "objects: receptacles: you are holding: nothing",
    }
    return found | {word for kind in observed for word in told.get(kind, "").split()} | {"pick", "in"}


def _octets(part: NDArray[np.generic]) -> NDArray[np.uint8]:
    """[n, K] bytes of numbers [n] or [n, M]."""
    return np.ascontiguousarray(part.reshape(len(part), -1)).view(np.uint8).reshape(len(part), -1)


def _plain(value: np.generic | NDArray[np.generic]) -> int | list[int]:
    return value.tolist()  # type: ignore[no-any-return]
