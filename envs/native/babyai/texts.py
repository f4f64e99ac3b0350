"""Missions and captions of N worlds as ids of texts, without Python for texts that have been seen before.

    image ── sentences ──> hash ──┐
                                  ├──> 128-bit key ── found ──────────────────────────────> text id
    row ── clauses, packed ───────┘                └─ new: written as a string, interned ──┘

A mission is its own key. A caption's key is a hash: that two of a million captions share one has a chance of 1e-27.

On one core, a known caption among 1,024 costs 0.04 us, its sentences included (0.12 us where a million are known), and
a new one 0.6 to 1.5 us. Memory grows with the texts, by 50 to 100 bytes each beside what the text table takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from envs.babyai.grammar import NOTHING, Language, sentence_table
from envs.babyai.missions import VERBS, Action, Mission, Thing
from envs.babyai.symbols import COLOURS
from envs.compiler import compiled
from envs.native.babyai.layout import (
    ANY_COLOUR,
    CODE,
    DESCRIPTION,
    LINK,
    NO_VERB,
    NOUNS,
    PLACES,
    PUT_NEXT,
    VERB,
    Index,
    Rows,
    described,
)
from envs.native.babyai.sight import MOST, sentences
from envs.text import TextTable

_LINKS: tuple[Literal["", "then", "after"], ...] = ("", "then", "after")  # by the numbers of `layout`
_VERBS, _DESCRIBED = len(VERBS) + 1, 512  # more than there are of each, to pack them
_SEED_1, _SEED_2 = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344)
_MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_29, _32 = np.uint64(29), np.uint64(32)

_KEY_1, _KEY_2, _ENTRY = 0, 1, 2  # columns of a slot
_NEW = 1 << 32  # an entry is 0 in a free slot, text id + 1, or, from here on, that of a text that is yet to be written


class Keys:
    """128-bit keys -> text ids: an open-addressing table, at most half full.

    Args:
        texts: where new texts are interned.
    """

    def __init__(self, texts: TextTable) -> None:
        self._texts = texts
        self._slots = np.zeros((1024, 3), np.uint64)
        self._used = 0

    def ids(self, keys: NDArray[np.uint64], write: Callable[[NDArray[np.int64]], Iterable[str]]) -> NDArray[np.int32]:
        """Text ids, int32 [n], of `keys` [n, 2].

        `write` is asked once for all new keys, with the first row of each among `keys`, in order.
        """
        n = len(keys)
        if 2 * (self._used + n) > len(self._slots):
            larger = np.zeros((1 << (2 * (self._used + n)).bit_length(), 3), np.uint64)
            _move(self._slots, larger)
            self._slots = larger
        ids, rows, slots = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
        new = _find(keys, self._slots, ids, rows, slots)
        if new:
            self._used += new
            written = np.array([self._texts.intern(text) for text in write(rows[:new])], np.int32)
            self._slots[slots[:new], _ENTRY] = written.astype(np.uint64) + np.uint64(1)
            waiting = ids < 0
            ids[waiting] = written[-1 - ids[waiting]]
        return ids


class Captions:
    """Whole captions: the sentences of an image joined by ". ".

    Args:
        texts: where new captions are interned.
        language, fix: of the sentences; `fix` corrects both slips of the published ones, as `envs.babyai.describe`.
    """

    def __init__(self, texts: TextTable, language: Language = "en", fix: bool = False) -> None:
        self._keys = Keys(texts)
        self._table = sentence_table(language, fix)
        self._nothing = NOTHING[language]

    def ids(self, image: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Text ids, int32 [n], of the captions of images [n, 7, 7, 3] as `look` makes them."""
        n = len(image)
        table_rows, counts, keys = np.empty((n, MOST), np.int16), np.empty(n, np.int16), np.empty((n, 2), np.uint64)
        sentences(image, table_rows, counts)
        _hash(table_rows, counts, keys)

        def write(new: NDArray[np.int64]) -> Iterable[str]:
            said = self._table[table_rows[new][np.arange(MOST) < counts[new, None]]].tolist()
            start = 0
            for end in np.cumsum(counts[new], dtype=np.int64).tolist():
                yield ". ".join(said[start:end]) or self._nothing
                start = end

        return self._keys.ids(keys, write)


class Missions:
    """Missions of rows.

    Args:
        texts: where new missions are interned.
        language: that they are written in.
    """

    def __init__(self, texts: TextTable, language: Language = "en") -> None:
        self._keys = Keys(texts)
        self._language = language

    def ids(self, rows: Rows, index: Index) -> NDArray[np.int32]:
        """Text ids, int32 [len(index)], of the missions of `rows[index]`."""
        keys = np.empty((len(index), 2), np.uint64)
        _pack(rows, index, keys)

        def write(new: NDArray[np.int64]) -> Iterable[str]:
            for row in rows[index[new], :CODE].tolist():
                mission = _mission(row)
                yield mission.english() if self._language == "en" else mission.french()

        return self._keys.ids(keys, write)


def _mission(row: list[int]) -> Mission:
    first, second = (
        tuple(_action(row, clause) for clause in group if row[VERB + clause] != NO_VERB) for group in ((0, 1), (2, 3))
    )
    return Mission(first, _LINKS[row[LINK]], second)


def _action(row: list[int], clause: int) -> Action:
    verb = row[VERB + clause]
    first = DESCRIPTION + 2 * clause
    return Action(VERBS[verb - 1], tuple(_thing(code) for code in row[first : first + 1 + (verb == PUT_NEXT)]))


@cache
def _thing(code: int) -> Thing:
    noun, colour, place, unique = described(code)
    return Thing(NOUNS[noun], None if colour == ANY_COLOUR else COLOURS[colour], PLACES[place] or None, unique == 1)


@compiled
def _pack(rows: Rows, index: Index, keys: NDArray[np.uint64]) -> None:
    """All that the mission of a row says as two numbers, one for each group."""
    for j in range(len(index)):
        i = index[j]
        for group in range(2):
            key = rows[i, LINK]
            for clause in range(2 * group, 2 * group + 2):
                verb = rows[i, VERB + clause]
                first = rows[i, DESCRIPTION + 2 * clause] if verb != NO_VERB else 0
                second = rows[i, DESCRIPTION + 2 * clause + 1] if verb == PUT_NEXT else 0
                key = ((key * _VERBS + verb) * _DESCRIBED + first) * _DESCRIBED + second
            keys[j, group] = key


@compiled
def _hash(table_rows: NDArray[np.int16], counts: NDArray[np.int16], keys: NDArray[np.uint64]) -> None:
    """128 bits of each caption's sentences: two hashes that share nothing."""
    for j in range(len(counts)):
        one, two = _SEED_1, _SEED_2
        for k in range(counts[j]):
            sentence = np.uint64(table_rows[j, k])
            one = (one ^ sentence) * _MIX_1
            one ^= one >> _32
            two = (two ^ sentence) * _MIX_2
            two ^= two >> _29
        keys[j, _KEY_1], keys[j, _KEY_2] = one, two


@compiled
def _find(
    keys: NDArray[np.uint64],
    slots: NDArray[np.uint64],
    ids: NDArray[np.int32],
    rows: NDArray[np.int64],
    taken: NDArray[np.int64],
) -> int:
    """Look up `keys`, and give each new one a slot.

    Returns how many texts are new. `ids` becomes the text ids, and -1 - k where new text k is due, which is that of
    `keys[rows[k]]` and of slot `taken[k]`.

    If whoever was to write a new text failed, its slot still waits: it is found here, but not in `taken`.
    """
    new = 0
    for j in range(len(keys)):
        slot = _first_slot(keys, j, slots)
        while slots[slot, _ENTRY] != 0 and (
            slots[slot, _KEY_1] != keys[j, _KEY_1] or slots[slot, _KEY_2] != keys[j, _KEY_2]
        ):
            slot = (slot + 1) & (len(slots) - 1)
        entry = np.int64(slots[slot, _ENTRY])
        k = entry - _NEW
        if 0 < entry < _NEW:
            ids[j] = entry - 1
        elif 0 <= k < new and taken[k] == slot:
            ids[j] = -1 - k
        else:
            slots[slot, _KEY_1], slots[slot, _KEY_2] = keys[j, _KEY_1], keys[j, _KEY_2]
            slots[slot, _ENTRY] = _NEW + new
            rows[new], taken[new] = j, slot
            new += 1
            ids[j] = -new
    return new


@compiled
def _move(slots: NDArray[np.uint64], larger: NDArray[np.uint64]) -> None:
    """Copy a table into one with more slots, all free."""
    for old in range(len(slots)):
        if slots[old, _ENTRY] != 0:
            slot = _first_slot(slots, old, larger)
            while larger[slot, _ENTRY] != 0:
                slot = (slot + 1) & (len(larger) - 1)
            for column in range(3):
                larger[slot, column] = slots[old, column]


@compiled
def _first_slot(keys: NDArray[np.uint64], j: int, slots: NDArray[np.uint64]) -> np.int64:
    """Where to begin the search for key j; the number of slots is a power of two."""
    mixed = (keys[j, _KEY_1] ^ keys[j, _KEY_2] * _MIX_1) * _MIX_2
    return np.int64(mixed >> _32) & (len(slots) - 1)
