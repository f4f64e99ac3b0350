"""What a player does, and what living costs it.

    action ── asleep? ──> move, do, sleep, place, make ──> hunger, thirst, fatigue, health

Numbers are brought back to 0 to 9 at the very end, as in the simulator: within a step food may pass 9 and then be eaten
away, and who steps into lava may be healed by 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.crafter.rules import (
    ACHIEVEMENTS,
    AREA,
    COAL,
    COW,
    DIAMOND,
    DO,
    FURNACE,
    GAME_ACTIONS,
    GRASS,
    IRON,
    ITEMS,
    LAVA,
    MATERIALS,
    MOST,
    NOOP,
    PATH,
    PLANT,
    SKELETON,
    SLEEP,
    STONE,
    TABLE,
    TREE,
    WATER,
    ZOMBIE,
)
from envs.native.crafter.layout import (
    ACHIEVED,
    AT_X,
    AT_Y,
    FACING,
    FATIGUE,
    FIRST,
    HEALTH,
    HUNGER,
    ITEM,
    KIND,
    LAST_HEALTH,
    MATERIAL,
    RECOVER,
    SLEEPING,
    THIRST,
    Random,
    Row,
    X,
    Y,
)
from envs.native.crafter.objects import DX, DY, WALKABLE, add, is_free, material_at, move, object_at
from envs.native.crafter.twister import uniform

RIPE_AGE = 300
"""A plant older than this can be eaten."""

BODY, FOOD, DRINK, ENERGY, _SAPLING, _WOOD, _STONE, _COAL, _IRON, _DIAMOND = range(ITEM, ITEM + 10)
"""Columns of the inventory; BODY is the player's health."""
_WOOD_SWORD, _STONE_SWORD, _IRON_SWORD = (ITEM + ITEMS.index(f"{name}_sword") for name in ("wood", "stone", "iron"))
_EAT_COW, _EAT_PLANT, _DEFEAT_ZOMBIE, _DEFEAT_SKELETON, _WAKE_UP = (
    ACHIEVED + ACHIEVEMENTS.index(name)
    for name in ("eat_cow", "eat_plant", "defeat_zombie", "defeat_skeleton", "wake_up")
)

# ---- what can be collected, by material: column of the item, or 0; column of the tool it takes, or 0; what it leaves
_COLLECTED = {
    WATER: ("drink", "", WATER),
    GRASS: ("sapling", "", GRASS),
    STONE: ("stone", "wood_pickaxe", PATH),
    TREE: ("wood", "", GRASS),
    COAL: ("coal", "wood_pickaxe", PATH),
    IRON: ("iron", "stone_pickaxe", PATH),
    DIAMOND: ("diamond", "iron_pickaxe", PATH),
}
_GIVES, _TAKES, _LEAVES, _COUNTED = (np.zeros(len(MATERIALS), np.int64) for _ in range(4))
for _material, (_item, _tool, _left) in _COLLECTED.items():
    _GIVES[_material] = ITEM + ITEMS.index(_item)
    _TAKES[_material] = ITEM + ITEMS.index(_tool) if _tool else 0
    _LEAVES[_material] = _left
    _COUNTED[_material] = ACHIEVED + ACHIEVEMENTS.index(f"collect_{_item}")
_SAPLING_CHANCE = 0.1

# ---- what can be placed and made, by action
_PLACED = {  # material, 0 for a plant; on which materials
    "place_stone": (STONE, WALKABLE | 1 << WATER | 1 << LAVA),
    "place_table": (TABLE, WALKABLE),
    "place_furnace": (FURNACE, WALKABLE),
    "place_plant": (0, 1 << GRASS),
}
_PUTS, _ONTO, _MAKES, _COUNTS = (np.zeros(len(GAME_ACTIONS), np.int64) for _ in range(4))
for _action, _name in enumerate(GAME_ACTIONS):
    _COUNTS[_action] = ACHIEVED + ACHIEVEMENTS.index(_name) if _name in ACHIEVEMENTS else 0
    if _name in _PLACED:
        _PUTS[_action], _ONTO[_action] = _PLACED[_name]
    elif _name.startswith("make_"):
        _MAKES[_action] = ITEM + ITEMS.index(_name.removeprefix("make_"))
_LAST_MOVE, _LAST_PLACE = GAME_ACTIONS.index("move_down"), GAME_ACTIONS.index("place_plant")
_IRON_TOOLS = GAME_ACTIONS.index("make_iron_pickaxe"), GAME_ACTIONS.index("make_iron_sword")


def costs(table_wood: int) -> NDArray[np.int16]:
    """[17, 16] how many of each item an action uses up."""
    table = np.zeros((len(GAME_ACTIONS), len(ITEMS)), np.int16)
    for action, name in enumerate(GAME_ACTIONS):
        verb, _, what = name.partition("_")
        if verb == "place":
            item, amount = {"table": ("wood", table_wood), "furnace": ("stone", 4), "plant": ("sapling", 1)}.get(
                what, (what, 1)
            )
            table[action, ITEMS.index(item)] = amount
        elif verb == "make":
            material = what.partition("_")[0]
            for item in {"wood": ("wood",), "stone": ("wood", "stone"), "iron": ("wood", "coal", "iron")}[material]:
                table[action, ITEMS.index(item)] = 1
    return table


@compiled
def act(row: Row, random: Random, action: int, costs: NDArray[np.int16], damage: int) -> bool:
    """The player's turn, with one of GAME_ACTIONS. Says whether that changed the game as it was meant to."""
    wish = action
    if row[SLEEPING]:
        if row[ENERGY] < MOST:
            action = SLEEP
        else:
            row[SLEEPING] = 0
            row[_WAKE_UP] += 1
    effect = _do(row, random, action, costs, damage)
    _live(row)
    return effect and action == wish


@compiled
def _do(row: Row, random: Random, action: int, costs: NDArray[np.int16], damage: int) -> bool:
    x, y = row[X] + DX[row[FACING]], row[Y] + DY[row[FACING]]
    if action == NOOP:
        return False
    if action <= _LAST_MOVE:
        return _walk(row, action - 1)
    if action == DO:
        thing = object_at(row, x, y)
        return _treat(row, thing, damage) if thing >= 0 else _collect(row, random, x, y)
    if action == SLEEP:
        tired: bool = row[ENERGY] < MOST
        if tired:
            row[SLEEPING] = 1
        return tired
    if action <= _LAST_PLACE:
        return _place(row, action, x, y, costs)
    return _make(row, action, costs)


@compiled
def _walk(row: Row, direction: int) -> bool:
    row[FACING] = direction
    moved = move(row, 0, direction, WALKABLE | 1 << LAVA)
    row[X], row[Y] = row[AT_X], row[AT_Y]
    if row[MATERIAL + row[X] * AREA + row[Y]] == LAVA:
        row[BODY] = 0
    return moved


@compiled
def _treat(row: Row, thing: int, damage: int) -> bool:
    """Do something to an object: hit a creature, eat a plant."""
    kind = row[KIND + thing]
    if kind == PLANT:
        ripe: bool = row[FIRST + thing] > RIPE_AGE
        if ripe:
            row[FIRST + thing] = 0
            row[FOOD] += 4
            row[_EAT_PLANT] += 1
        return ripe
    if kind not in (COW, ZOMBIE, SKELETON):
        return False
    for sword, strength in ((_WOOD_SWORD, 2), (_STONE_SWORD, 3), (_IRON_SWORD, 5)):
        if row[sword]:
            damage = max(damage, strength)
    row[HEALTH + thing] = max(0, row[HEALTH + thing] - damage)
    if row[HEALTH + thing] == 0:
        if kind == COW:
            row[FOOD] += 6
            row[_EAT_COW] += 1
            row[HUNGER] = 0
        else:
            row[_DEFEAT_ZOMBIE if kind == ZOMBIE else _DEFEAT_SKELETON] += 1
    return True


@compiled
def _collect(row: Row, random: Random, x: int, y: int) -> bool:
    material = material_at(row, x, y)
    item, tool = _GIVES[material], _TAKES[material]
    if material == WATER:
        row[THIRST] = 0
    if item == 0 or (tool > 0 and row[tool] == 0):
        return False
    row[MATERIAL + x * AREA + y] = _LEAVES[material]
    if uniform(random) > _SAPLING_CHANCE and material == GRASS:  # the simulator draws for every material
        return False
    row[item] += 1
    row[_COUNTED[material]] += 1
    fits: bool = row[item] <= MOST
    return fits


@compiled
def _place(row: Row, action: int, x: int, y: int, costs: NDArray[np.int16]) -> bool:
    if not is_free(row, x, y, _ONTO[action]) or not _affords(row, costs[action]):
        return False
    if _PUTS[action]:
        row[MATERIAL + x * AREA + y] = _PUTS[action]
    elif not add(row, PLANT, x, y, 1, 0):
        return False
    row[ITEM : ITEM + len(ITEMS)] -= costs[action]
    row[_COUNTS[action]] += 1
    return True


@compiled
def _make(row: Row, action: int, costs: NDArray[np.int16]) -> bool:
    iron = action in _IRON_TOOLS
    if not _near(row, TABLE) or (iron and not _near(row, FURNACE)) or not _affords(row, costs[action]):
        return False
    row[ITEM : ITEM + len(ITEMS)] -= costs[action]
    row[_MAKES[action]] += 1
    row[_COUNTS[action]] += 1
    return True


@compiled
def _near(row: Row, material: int) -> bool:
    """Is there any of it among the nine cells around the player? In the first column and row of the map the simulator
    looks at none: its slices begin at -1 there."""
    if row[X] == 0 or row[Y] == 0:
        return False
    for x in range(row[X] - 1, row[X] + 2):
        for y in range(row[Y] - 1, row[Y] + 2):
            if material_at(row, x, y) == material:
                return True
    return False


@compiled
def _affords(row: Row, cost: NDArray[np.int16]) -> bool:
    return bool(np.all(row[ITEM : ITEM + len(ITEMS)] >= cost))


@compiled
def _live(row: Row) -> None:
    """Hunger, thirst, fatigue, and what they do to the health. Hunger, thirst and recovery are counted in halves."""
    asleep = row[SLEEPING]
    row[HUNGER] += 1 if asleep else 2
    if row[HUNGER] > 50:
        row[HUNGER] = 0
        row[FOOD] -= 1
    row[THIRST] += 1 if asleep else 2
    if row[THIRST] > 40:
        row[THIRST] = 0
        row[DRINK] -= 1
    row[FATIGUE] = min(row[FATIGUE] - 1, 0) if asleep else row[FATIGUE] + 1
    if row[FATIGUE] < -10:
        row[FATIGUE] = 0
        row[ENERGY] += 1
    if row[FATIGUE] > 30:
        row[FATIGUE] = 0
        row[ENERGY] -= 1
    if row[FOOD] > 0 and row[DRINK] > 0 and (row[ENERGY] > 0 or asleep):
        row[RECOVER] += 4 if asleep else 2
    else:
        row[RECOVER] -= 1 if asleep else 2
    if row[RECOVER] > 50:
        row[RECOVER] = 0
        row[BODY] += 1
    if row[RECOVER] < -30:
        row[RECOVER] = 0
        row[BODY] = max(0, row[BODY] - 1)
    for item in range(ITEM, ITEM + len(ITEMS)):
        row[item] = max(0, min(row[item], MOST))
    if row[BODY] < row[LAST_HEALTH]:
        row[SLEEPING] = 0
    row[LAST_HEALTH] = row[BODY]
