"""What a language model may know of the house: its plan in words."""

from __future__ import annotations

from typing import Any

from envs.knowledge import Goal, Knowledge
from envs.navigation.house import HOUSE, WALLS, Map, load
from envs.navigation.scene import WALL, Scene

ABOUT = """\
A robot on two wheels in a house, seen from above: north is up, east is right. It has a bumper on its left and on its \
right, and sees how far walls are in three directions. The floor has coloured tiles, and furniture stands on it, which \
the robot drives over. Doors are gaps in the walls."""


MOST_WALLS = 40
"""Walls that a plan lists at most, the largest ones: maps from pictures may have thousands of rectangles."""


def knowledge(name: str = "") -> Knowledge:
    """Of the default house."""
    return _of(load())


def knowledge_with(name: str, config: Any) -> Knowledge:
    """Of the house that an env has: the map of its options.

    Raises:
        ValueError: the map cannot be read.
    """
    return _of(load(config.map or HOUSE))


def _of(house: Map) -> Knowledge:
    scene = Scene(house)
    goals: list[Goal] = []
    slots = {"object": list(scene.objects), "colour": list(scene.colours[1:])}
    if scene.objects:
        goals.append({"goal": "go to the {object}", "unless": ["at the {object}"]})
    if house.tiles:
        goals.append({"goal": "go to the {colour} tile", "unless": ["on the {colour} tile"]})
    facts = {"can you drive through a wall": False} | (
        {"can you drive over the {object}": True} if scene.objects else {}
    )
    return {
        "name": "navigation",
        "about": ABOUT,
        "actions": [],
        "slots": {slot: words for slot, words in slots.items() if words},
        "goals": goals,
        "facts": facts,
        "plan": plan(scene),
        "other_names": scene.other_names,
    }


def plan(scene: Scene) -> list[str]:
    """Where everything is, as lines for a prompt: tiles, objects with their tiles, walls, and other names.

    Positions are as in a scene's annotations: pixels, y up.
    """
    house = scene.house
    height, width = house.walls.shape
    told = [
        f"Positions (x, y) are counted from the south west corner, x to the east and y to the north. The house is "
        f"{width} wide and {height} high."
    ]
    if house.tiles:
        rows = "; ".join(", ".join(row) for row in house.tiles)
        told.append(f"Tiles of the floor, row by row from north to south, each row from west to east: {rows}.")
    for name, thing in zip(scene.objects, house.objects, strict=True):
        x, y = int(thing.x + 0.5), int(thing.y + 0.5)
        colour = scene.colours[scene.tiles[min(y, height - 1), min(x, width - 1)]] if house.tiles else ""
        where = "" if not colour else ", in a wall" if colour == WALL else f", on the {colour} tile"
        told.append(f"{name}: at ({x}, {height - y}){where}.")
    walls = sorted(house.as_json()[WALLS], key=lambda wall: -(wall[2] - wall[0] + 1) * (wall[3] - wall[1] + 1))
    shown = [f"({x0}, {height - y1 - 1}) to ({x1 + 1}, {height - y0})" for x0, y0, x1, y1 in walls[:MOST_WALLS]]
    few = f", the largest {MOST_WALLS} of {len(walls)}" if len(walls) > MOST_WALLS else ""
    told.append(f"Walls{few}, each from its south west to its north east corner: {', '.join(shown)}.")
    others = [f"{name} is also {' or '.join(names)}" for name, names in scene.other_names.items()]
    return told + [f"Other names: {'; '.join(others)}."] * bool(others)
