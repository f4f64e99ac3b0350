"""What a language model may know of Crafter, in the words of its captions, and which goals make sense now.

Both come from one table, `tasks.needs`: a goal makes sense if what it is about is in view, what it takes is held, and
nothing speaks against it. `possible` reads that from numbers; the patterns that are published say the same of the
sentences of `VectorEnv.situations`, except that those do not tell how many of an item are held.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from envs.crafter.captions import (
    NAMES,
    POSSESSIONS,
    SLEEPY,
    UNNAMED,
    held,
    say_feelings,
    say_items,
    say_view,
    visible,
)
from envs.crafter.rules import (
    ACTION_NAMES,
    ELLM,
    ITEMS,
    MATERIALS,
    MOST,
    NAMED,
    OBJECTS,
    SYNONYMS,
    VITALS,
    Rules,
)
from envs.crafter.tasks import GOALS, TASKS, needs, way_to
from envs.knowledge import Goal, Knowledge, Progress

ABOUT = """\
A wilderness on a grid, seen from above: grass, trees, water, sand, caves with paths, stone, ore and lava. You act on \
the cell that you face. Wood is chopped from trees, and a plant now and then from grass. A crafting table takes wood; \
beside one you make pickaxes and swords of wood, or of wood and stone, and beside a furnace too, which takes four \
stones, of wood, coal and iron. Stone and coal need a wood pickaxe, iron a stone pickaxe, diamond an iron pickaxe. \
Food, drink and energy fade: eat cows and ripe plants, drink water, sleep when you are sleepy. Zombies hunt on grass, \
most of all at night, skeletons shoot in caves. Lava kills."""

VIEW_IN_WORDS = """\
What you see from above: 9 columns from left to right, each of 7 cells from top to bottom, each of material, object \
and facing; all 0 beyond the map. You stand in the middle, at [4][3], and face the cell that your facing names."""

_FACTS = {  # the first that fits a question counts
    "needed to make a crafting table": False,
    "needed to make a furnace": False,
    "can iron be mined with a stone pickaxe": True,
    "can diamond be mined with an iron pickaxe": True,
    "is a wood pickaxe needed to mine {soft}": True,
    "is a stone pickaxe needed to mine iron": True,
    "is an iron pickaxe needed to mine diamond": True,
    "is a {pickaxe} pickaxe needed to chop": False,
    "can {hard} be mined without a pickaxe": False,
    "can {hard} be mined with a wood pickaxe": False,
    "can {soft} be mined with a wood pickaxe": True,
    "can {soft} be mined without a pickaxe": False,
    "can a tree be chopped without": True,
    "is a crafting table needed to make": True,
    "is a furnace needed to make an iron": True,
    "is a furnace needed to make a": False,
    "is wood needed to make": True,
    "can {edible} be eaten": True,
    "can {inedible} be eaten": False,
    "can you drink water": True,
    "can you drink {inedible}": False,
    "can you walk through {solid}": False,
    "can you walk into lava and live": False,
    "does sleeping give energy": True,
    "are you safe while you sleep": False,
    "do zombies attack": True,
    "do cows attack": False,
}


def possible(inventory: NDArray[np.int16], symbols: NDArray[np.uint8], rules: Rules = ELLM) -> NDArray[np.bool_]:
    """Which events make sense now as goals: bool [N, 27], columns as `rules.NAMED`.

    Args:
        inventory: [N, 16], as `Crafter.inventory`.
        symbols: [N, 9, 7, 3], as `Crafter.symbols`.
        rules: of the game, for what a crafting table takes.

    Moving and doing nothing are never goals.
    """
    seen = visible(symbols)
    found = np.zeros((len(inventory), len(NAMED)), np.bool_)
    for goal, need in needs(rules.table_wood).items():
        wanted, unwanted = (sum(1 << NAMES.index(name) for name in names) for names in (need.seen, need.unseen))
        sensible = (seen & (wanted | unwanted)) == wanted
        for item, amount in need.items.items():
            sensible &= inventory[:, ITEMS.index(item)] >= amount
        if need.sleepy:
            sensible &= inventory[:, VITALS - 1] < MOST
        found[:, NAMED.index(goal)] = sensible
    return found


def knowledge(name: str = "") -> Knowledge:
    """The same for every Crafter but for the names of its actions; the family's are the events."""
    kinds = {"Standard": ACTION_NAMES["standard"], "Text": ACTION_NAMES["combined"]}
    return {
        "name": "crafter",
        "about": ABOUT,
        "actions": list(kinds.get(name, NAMED)),
        "slots": {
            "soft": ["stone", "coal"],
            "hard": ["iron", "diamond"],
            "pickaxe": ["wood", "stone"],
            "edible": ["a cow", "cow", "cows", "a ripe plant", "ripe plants"],
            "inedible": ["stone", "coal", "iron", "a tree", "trees", "grass", "sand", "lava", "a zombie", "a skeleton"],
            "solid": ["a tree", "trees", "stone", "water", "a crafting table", "a furnace", "a plant"],
        },
        "goals": _goals(),
        "synonyms": [[ours, other] for other, ours in SYNONYMS.items()],
        "progress": _progress(),
        "facts": _FACTS,
        "symbols": {
            "material": {word: number for number, word in enumerate(MATERIALS)},
            "object": {word: number for number, word in enumerate(OBJECTS)},
            "facing": {word: number for number, word in enumerate(("left", "right", "up", "down"))},
        },
        "views": {"symbols": VIEW_IN_WORDS},
        "corpus": list(dict.fromkeys([*NAMED, *TASKS, *_captions()])),
    }


def _worth(goal: str) -> float:
    """The longer the way, the more it is worth."""
    return round(0.3 + 0.7 * min(1.0, len(way_to(goal, ELLM.table_wood)) / 13), 2)


def _goals() -> list[Goal]:
    return [
        {
            "goal": goal,
            "seen": [f"the {name}" for name in need.seen],
            "needs": [held(item) for item in need.items] + ["sleepy"] * need.sleepy,
            "unless": [f"the {name}" for name in need.unseen],
            "worth": _worth(goal),
        }
        for goal, need in needs(ELLM.table_wood).items()
    ]


def _progress() -> list[Progress]:
    """Events that succeeded, and how one feels."""
    events: list[Progress] = [{"seen": goal, "worth": _worth(goal)} for goal in GOALS]
    hurt: list[Progress] = [{"seen": say_feelings(1), "worth": -0.5}, {"seen": "hungry", "worth": -0.1}]
    return [*events, *hurt, {"seen": "thirsty", "worth": -0.1}, {"seen": "sleepy", "worth": -0.1}]


def _captions() -> Iterator[str]:
    """Views of up to three names, of which each is faced; inventories of up to two items; every feeling."""
    for number in (1, 2, 3):
        for k, chosen in enumerate(combinations(range(UNNAMED), number)):
            if number < 3 or k % 5 == 0:
                yield from say_view(sum(1 << place for place in chosen), chosen[k % number]).split(". ")
    for number in (0, 1, 2):
        for owned in combinations(range(len(POSSESSIONS)), number):
            yield say_items(sum(1 << place for place in owned))
    yield from (say_feelings(vitals) for vitals in range(1 << VITALS))
    yield SLEEPY
