"""Sentences of what a player of Crafter sees, holds and feels, as ids of texts.

    symbols ── names in view, a bit each; what is faced ──┐
    inventory ── items held, a bit each ──────────────────┼──> int64 key ── known ──> text id
    vitals ── those below 9, a bit each ──────────────────┘              └─ new: written once, interned

    view        You see the cow, the grass and the tree. You face the tree
    items       You have a plant, some wood and a wood pickaxe
    feelings    You feel hungry and sleepy                           "You feel fine", if all is well
    situation   view, items, and "You feel sleepy" only if so: what a language model is told
    around      You see the grass 1 step up, the cow 4 steps left and down. You face ... Your health is 9, ...

Names stand in alphabetical order and without counts, so that equal situations are equal texts. What is in view has
"the", what is held never has: "the stone" is to be mined, "some stone" is to be used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from envs.api import Fact
from envs.crafter.rules import (
    ARROW,
    ITEMS,
    LAVA,
    MATERIALS,
    MOST,
    NONE,
    NOTHING,
    OBJECTS,
    PATH,
    PLAYER,
    SAND,
    TABLE,
    VIEW,
    VITALS,
)
from envs.text import TextTable

TEXTS = ("view", "items", "feelings", "around")
"""Fields that are made here."""
MOST_AROUND = 100_000  # ids of `around` that are remembered; beyond, they are looked up by their text again

Ids = NDArray[np.int32]
Numbers = NDArray[np.int64]

# ---- names ----------------------------------------------------------------------------------------------------------


def called(material: int, thing: int) -> str:
    """How a cell is called by what stands on it, else by its material; "" for what is not told."""
    if thing != NONE:
        return "" if thing in (PLAYER, ARROW) else OBJECTS[thing]
    if material in (NOTHING, SAND):
        return ""
    return "crafting table" if material == TABLE else MATERIALS[material]


NAMES = tuple(sorted({called(m, o) for m in range(len(MATERIALS)) for o in range(len(OBJECTS))} - {""}))
"""What can be seen; a name's place is its bit."""
UNNAMED = len(NAMES)
PLACE = np.array(
    [
        [NAMES.index(name) if (name := called(m, o)) else UNNAMED for o in range(len(OBJECTS))]
        for m in range(len(MATERIALS))
    ],
    np.int64,
)
"""Place among `NAMES` by (material, object), `UNNAMED` for what is not told."""
_FACED = PLACE.copy()
_FACED[[PATH, LAVA], NONE] = UNNAMED  # nothing is done to them

POSSESSIONS = ITEMS[VITALS:]


def held(item: str) -> str:
    """How an item of the inventory is called: "some wood", "a wood pickaxe"; a sapling is a plant."""
    name = "plant" if item == "sapling" else item.replace("_", " ")
    few = item in ("sapling", "diamond") or "_" in item
    return f"{'an' if few and name[0] in 'aeiou' else 'a' if few else 'some'} {name}"


_IN_ORDER = sorted(range(len(POSSESSIONS)), key=lambda i: held(POSSESSIONS[i]).partition(" ")[2])
_HELD = [held(POSSESSIONS[i]) for i in _IN_ORDER]
_COUNTED = [text.partition(" ")[2] for text in _HELD]
_FEELINGS = ("hurt", "hungry", "thirsty", "sleepy")  # health, food, drink, energy
SLEEPY = f"You feel {_FEELINGS[-1]}"


# ---- numbers --------------------------------------------------------------------------------------------------------


def cells(symbols: NDArray[np.uint8]) -> Numbers:
    """Places among `NAMES` [n, 63] of what is in each cell, row by row, of symbols [n, 9, 7, 3]."""
    places: Numbers = PLACE[symbols[..., 0], symbols[..., 1]].transpose(0, 2, 1).reshape(len(symbols), -1)
    return places


def visible(symbols: NDArray[np.uint8]) -> Numbers:
    """Names in view [n], a bit each, of symbols [n, 9, 7, 3]."""
    bits: Numbers = np.bitwise_or.reduce(np.left_shift(1, cells(symbols)), axis=1)
    return bits & (1 << UNNAMED) - 1


def faced(ahead: NDArray[np.int16]) -> Numbers:
    """Place among `NAMES` [n] of what is faced, by (material, object) in front [n, 2]; `UNNAMED` for nothing."""
    found: Numbers = _FACED[ahead[:, 0], ahead[:, 1]]
    return found


def possessed(inventory: NDArray[np.int16]) -> Numbers:
    """Items held [n], a bit each in alphabetical order, of inventories [n, 16]."""
    return _bits(inventory[:, VITALS:][:, _IN_ORDER] > 0)


def felt(inventory: NDArray[np.int16]) -> Numbers:
    """Vitals below their most [n], a bit each."""
    return _bits(inventory[:, :VITALS] < MOST)


def _bits(flags: NDArray[np.bool_]) -> Numbers:
    bits: Numbers = flags @ (1 << np.arange(flags.shape[1]))
    return bits


# ---- facts ----------------------------------------------------------------------------------------------------------

FACTS = (
    *(Fact(name, "seen", anywhere=True) for name in NAMES),
    Fact("faced", "faced", UNNAMED + 1),
    *(Fact(text, "held") for text in _HELD),
    *(Fact(feeling, "felt") for feeling in _FEELINGS),
    Fact("asleep", ""),
    Fact("night", ""),
)
"""What the sentences are made of, but for `around`; and what makes it hard to see."""
_FACED_AT = UNNAMED
_HELD_AT = UNNAMED + 1
_FELT_AT = _HELD_AT + len(POSSESSIONS)
_OTHER_AT = _FELT_AT + VITALS


def facts(
    symbols: NDArray[np.uint8],
    ahead: NDArray[np.int16],
    inventory: NDArray[np.int16],
    sleeping: NDArray[np.bool_],
    night: NDArray[np.bool_],
) -> Numbers:
    """`FACTS` [n, F] of symbols [n, 9, 7, 3], what is in front [n, 2], inventories [n, 16], who sleeps [n], and where
    it is night [n]."""
    seen, front = visible(symbols)[:, None] >> np.arange(UNNAMED) & 1, faced(ahead)[:, None]
    held = possessed(inventory)[:, None] >> np.arange(len(POSSESSIONS)) & 1
    feelings = felt(inventory)[:, None] >> np.arange(VITALS) & 1
    return np.concatenate([seen, front, held, feelings, sleeping[:, None], night[:, None]], 1, dtype=np.int64)


# ---- words ----------------------------------------------------------------------------------------------------------


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _chosen(names: Sequence[str], bits: int) -> list[str]:
    return [name for bit, name in enumerate(names) if bits >> bit & 1]


def say_view(names: int, front: int) -> str:
    """The view, of `visible` names and the place of what is `faced`."""
    seen = _listed([f"the {name}" for name in _chosen(NAMES, names)]) or "nothing"
    return f"You see {seen}" + (f". You face the {NAMES[front]}" if front != UNNAMED else "")


def say_items(items: int) -> str:
    """The inventory, of items `possessed`."""
    return f"You have {_listed(_chosen(_HELD, items)) or 'nothing'}"


def say_feelings(vitals: int) -> str:
    """What is `felt`."""
    return f"You feel {_listed(_chosen(_FEELINGS, vitals)) or 'fine'}"


def say_situation(names: int, front: int, items: int, sleepy: bool) -> str:
    """What a language model is told."""
    return ". ".join([say_view(names, front), say_items(items)] + [SLEEPY] * sleepy)


def _say_place(name: str, across: int, down: int) -> str:
    steps = abs(across) + abs(down)
    ways = [way for way, there in (("left", across < 0), ("right", across > 0)) if there]
    ways += [way for way, there in (("up", down < 0), ("down", down > 0)) if there]
    return f"the {name} {steps} step{'s' * (steps > 1)} {' and '.join(ways)}"


def say_around(places: Iterable[tuple[int, int, int]], front: int, inventory: Sequence[int], sleeping: bool) -> str:
    """What is around.

    Args:
        places: (place among `NAMES`, columns to the right, rows down) of each name's nearest.
        front: place of what is `faced`.
        inventory: [16].
    """
    seen = ", ".join(_say_place(NAMES[name], across, down) for name, across, down in places) or "nothing"
    sentences = [f"You see {seen}"]
    if front != UNNAMED:
        sentences.append(f"You face the {NAMES[front]}")
    vitals = [f"{ITEMS[i]}{' is' * (i == 0)} {inventory[i]}" for i in range(VITALS)]
    amounts = [(inventory[VITALS + i], name) for i, name in zip(_IN_ORDER, _COUNTED, strict=True)]
    owned = [f"{amount} {name}" for amount, name in amounts if amount]
    sentences += [f"Your {_listed(vitals)}", f"You have {_listed(owned) or 'nothing'}"]
    return ". ".join(sentences + ["You are asleep"] * sleeping)


def words(fields: Iterable[str], further: Iterable[str] = ()) -> tuple[str, ...]:
    """Every word that these fields and further texts may hold, in lower case, sorted."""
    every = (1 << UNNAMED) - 1
    full = [MOST] * len(ITEMS)
    texts = {
        "view": [say_view(every, 0), say_view(0, UNNAMED)],
        "items": [say_items((1 << len(POSSESSIONS)) - 1), say_items(0)],
        "feelings": [say_feelings(15), say_feelings(0)],
        "around": [
            say_around([(0, -1, 0), (1, 1, 1), *((k, -1, -1) for k in range(UNNAMED))], 0, full, True),
            say_around([], UNNAMED, [0] * len(ITEMS), False),
            " ".join(map(str, range(VIEW[0] // 2 + VIEW[1] // 2 + 1))) + " " + " ".join(map(str, range(MOST + 1))),
        ],
    }
    said = [text for field in fields for text in texts.get(field, [])]
    return tuple(sorted({word for text in (*said, *further) for word in re.findall(r"[^\s,.]+", text.lower())}))


# ---- ids ------------------------------------------------------------------------------------------------------------

_COLUMN, _ROW = (axis.ravel() - size // 2 for axis, size in zip(np.indices(VIEW), VIEW, strict=True))
_FAR_FIRST = np.argsort(-(abs(_COLUMN) + abs(_ROW)), kind="stable")
_SHIFT_FACED, _SHIFT_ITEMS, _SHIFT_SLEEPY = UNNAMED, UNNAMED + 5, UNNAMED + 5 + len(POSSESSIONS)


class Captions:
    """Text ids of N players' sentences.

    Args:
        texts: where new texts are interned.
    """

    def __init__(self, texts: TextTable) -> None:
        self._texts = texts
        self._known: dict[str, dict[int, int]] = {name: {} for name in (*TEXTS, "situation")}
        self._around: dict[bytes, int] = {}

    def view(self, symbols: NDArray[np.uint8], ahead: NDArray[np.int16]) -> Ids:
        """[n] of symbols [n, 9, 7, 3] and what is in front [n, 2]."""
        return self._view(visible(symbols), faced(ahead))

    def items(self, inventory: NDArray[np.int16]) -> Ids:
        """[n] of inventories [n, 16]."""
        return self._ids("items", possessed(inventory), say_items)

    def feelings(self, inventory: NDArray[np.int16]) -> Ids:
        """[n] of inventories [n, 16]."""
        return self._ids("feelings", felt(inventory), say_feelings)

    def situation(self, symbols: NDArray[np.uint8], ahead: NDArray[np.int16], inventory: NDArray[np.int16]) -> Ids:
        """[n] of all three."""
        return self._situation(visible(symbols), faced(ahead), possessed(inventory), felt(inventory))

    def tell(self, facts: Numbers) -> dict[str, Ids]:
        """All four, by name, of facts [n, F]."""
        names, front = _bits(facts[:, :UNNAMED] > 0), facts[:, _FACED_AT]
        items, vitals = _bits(facts[:, _HELD_AT:_FELT_AT] > 0), _bits(facts[:, _FELT_AT:_OTHER_AT] > 0)
        return {
            "view": self._view(names, front),
            "items": self._ids("items", items, say_items),
            "feelings": self._ids("feelings", vitals, say_feelings),
            "situation": self._situation(names, front, items, vitals),
        }

    def _view(self, names: Numbers, front: Numbers) -> Ids:
        keys = names | front << _SHIFT_FACED
        return self._ids("view", keys, lambda key: say_view(key & (1 << UNNAMED) - 1, key >> _SHIFT_FACED))

    def _situation(self, names: Numbers, front: Numbers, items: Numbers, vitals: Numbers) -> Ids:
        keys = names | front << _SHIFT_FACED | items << _SHIFT_ITEMS | vitals >> VITALS - 1 << _SHIFT_SLEEPY
        return self._ids("situation", keys, _say_key)

    def around(
        self,
        symbols: NDArray[np.uint8],
        ahead: NDArray[np.int16],
        inventory: NDArray[np.int16],
        sleeping: NDArray[np.bool_],
    ) -> Ids:
        """[n] of all three and who sleeps [n]. Most are new, and are written."""
        n = len(symbols)
        places = PLACE[symbols[..., 0], symbols[..., 1]].reshape(n, -1)
        nearest = np.full((n, UNNAMED + 1), -1, np.int16)
        for cell in _FAR_FIRST:
            nearest[np.arange(n), places[:, cell]] = cell
        nearest[:, UNNAMED] = -1
        front = faced(ahead)
        rows = np.concatenate([nearest, front[:, None], inventory, sleeping[:, None]], 1, dtype=np.int16)
        ids = np.empty(n, np.int32)
        for i, row in enumerate(rows):
            known = self._around.get(key := row.tobytes())
            if known is None:
                if len(self._around) >= MOST_AROUND:
                    self._around.clear()
                order = sorted(_chosen_cells(nearest[i]), key=lambda place: (abs(place[1]) + abs(place[2]), place[0]))
                said = say_around(order, int(front[i]), inventory[i].tolist(), bool(sleeping[i]))
                known = self._around[key] = self._texts.intern(said)
            ids[i] = known
        return ids

    def _ids(self, name: str, keys: Numbers, say: Callable[[int], str]) -> Ids:
        known = self._known[name]
        unique, which = np.unique(keys, return_inverse=True)
        for key in unique.tolist():
            if key not in known:
                known[key] = self._texts.intern(say(key))
        return np.array([known[key] for key in unique.tolist()], np.int32)[which]


def _say_key(key: int) -> str:
    names, front = key & (1 << UNNAMED) - 1, key >> _SHIFT_FACED & 31
    return say_situation(names, front, key >> _SHIFT_ITEMS & (1 << len(POSSESSIONS)) - 1, bool(key >> _SHIFT_SLEEPY))


def _chosen_cells(nearest: NDArray[np.int16]) -> list[tuple[int, int, int]]:
    """(place among `NAMES`, columns to the right, rows down) of the names that are in view."""
    return [(name, int(_COLUMN[cell]), int(_ROW[cell])) for name, cell in enumerate(nearest.tolist()) if cell >= 0]
