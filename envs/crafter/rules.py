"""The rules of Crafter as tables: what things are called and numbered, what players can do, what the variants change.

Numbers are the simulator's own where it has them: materials as in its map, objects in the order of its semantic view.
The words are those of language-guided agents: a player "chops a tree" or "attacks a cow", where Crafter has one action
"do" for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# ---- what there is --------------------------------------------------------------------------------------------------

MATERIALS = (
    "nothing",  # beyond the edge of the map
    "water",
    "grass",
    "stone",
    "path",
    "sand",
    "tree",
    "lava",
    "coal",
    "iron",
    "diamond",
    "table",
    "furnace",
)
NOTHING, WATER, GRASS, STONE, PATH, SAND, TREE, LAVA, COAL, IRON, DIAMOND, TABLE, FURNACE = range(len(MATERIALS))

OBJECTS = ("none", "player", "cow", "zombie", "skeleton", "arrow", "plant", "ripe plant")
NONE, PLAYER, COW, ZOMBIE, SKELETON, ARROW, PLANT, RIPE = range(len(OBJECTS))
"""RIPE is how a plant looks that can be eaten; it is one kind of thing with PLANT."""

FACINGS = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Left, right, up, down as (dx, dy). The third channel of the symbols: where player and arrows look."""

TOOLS = ("wood_pickaxe", "stone_pickaxe", "iron_pickaxe", "wood_sword", "stone_sword", "iron_sword")
ITEMS = (
    "health",
    "food",
    "drink",
    "energy",
    "sapling",
    "wood",
    "stone",
    "coal",
    "iron",
    "diamond",
    *TOOLS,
)
VITALS = 4  # the first so many items are the body's
MOST = 9  # of every item

ACHIEVEMENTS = (
    "collect_coal",
    "collect_diamond",
    "collect_drink",
    "collect_iron",
    "collect_sapling",
    "collect_stone",
    "collect_wood",
    "defeat_skeleton",
    "defeat_zombie",
    "eat_cow",
    "eat_plant",
    "make_iron_pickaxe",
    "make_iron_sword",
    "make_stone_pickaxe",
    "make_stone_sword",
    "make_wood_pickaxe",
    "make_wood_sword",
    "place_furnace",
    "place_plant",
    "place_stone",
    "place_table",
    "wake_up",
)

AREA = 64  # cells of a side of the map
VIEW = (9, 7)  # columns and rows that the player sees, itself in the middle

# ---- what a player can do -------------------------------------------------------------------------------------------

GAME_ACTIONS = (
    "noop",
    "move_left",
    "move_right",
    "move_up",
    "move_down",
    "do",
    "sleep",
    "place_stone",
    "place_table",
    "place_furnace",
    "place_plant",
    *(f"make_{tool}" for tool in TOOLS),
)
"""The simulator's 17, in its order."""
NOOP, DO, SLEEP = GAME_ACTIONS.index("noop"), GAME_ACTIONS.index("do"), GAME_ACTIONS.index("sleep")

ALONE = ("do nothing", "move left", "move right", "move up", "move down", "sleep")
"""Actions that need no noun."""
VERBS = ("mine", "eat", "attack", "chop", "drink", "place", "make")
NOUNS = (
    "zombie",
    "skeleton",
    "cow",
    "tree",
    "stone",
    "coal",
    "iron",
    "diamond",
    "water",
    "grass",
    "crafting table",
    "furnace",
    "plant",
    *(tool.replace("_", " ") for tool in TOOLS),
)

SENSIBLE: dict[str, tuple[str, str]] = {
    "do nothing": ("noop", ""),
    **{f"move {way}": (f"move_{way}", "") for way in ("left", "right", "up", "down")},
    "sleep": ("sleep", ""),
    **{f"eat {noun}": ("do", noun) for noun in ("plant", "cow")},
    **{f"attack {noun}": ("do", noun) for noun in ("zombie", "skeleton", "cow")},
    **{f"chop {noun}": ("do", noun) for noun in ("tree", "grass")},
    **{f"mine {noun}": ("do", noun) for noun in ("stone", "coal", "iron", "diamond")},
    "drink water": ("do", "water"),
    "place stone": ("place_stone", ""),
    "place crafting table": ("place_table", ""),
    "place furnace": ("place_furnace", ""),
    "place plant": ("place_plant", ""),
    **{f"make {tool.replace('_', ' ')}": (f"make_{tool}", "") for tool in TOOLS},
    "make crafting table": ("place_table", ""),
}
"""The 29 actions that mean something: name -> (the simulator's action, the noun that must be in front, if any)."""

SYNONYMS: dict[str, str] = {"eat cow": "attack cow", "make crafting table": "place crafting table"}
"""Two names of one event: the second is the one we use."""

NAMED = tuple(name for name in SENSIBLE if name not in SYNONYMS)
"""The 27 events, each by one name."""
COMBINED = (*ALONE, *(f"{verb} {noun}" for verb in VERBS for noun in NOUNS))
"""139 actions: every verb with every noun. Those that are not in `SENSIBLE` do nothing."""

# ---- the variants ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """What variants of the game change. The defaults are Crafter's."""

    damage: int = 1
    """Of a bare hand. 5 kills every creature at once."""
    table_wood: int = 2
    """Wood that a table takes."""
    dying: bool = True
    """Episodes end when health is 0."""
    length: int = 10_000
    """Steps after which an episode is truncated."""


CRAFTER = Rules()
ELLM = Rules(damage=5, table_wood=1, length=400)
"""As Du et al. 2023 (arXiv 2302.06692) changed the game."""

Actions = Literal["standard", "named", "combined"]
ACTION_NAMES: dict[Actions, tuple[str, ...]] = {
    "standard": tuple(name.replace("_", " ") for name in GAME_ACTIONS),
    "named": NAMED,
    "combined": COMBINED,
}


def world_seed(seed: int) -> int:
    """What the simulator seeds the first world of `crafter.Env(seed=seed)` with, in [0, 2**31 - 1)."""
    return hash((seed, 1)) % (2**31 - 1)  # of integers, which is the same in every process
