"""What a language model may know of the house: its plan in words."""

from __future__ import annotations

from typing import Any

from envs.knowledge import Goal, Knowledge
from envs.navigation.house import HOUSE, Map, load
from envs.navigation.scene import Scene

ABOUT = """\
A robot on two wheels in a house, seen from above: north is up, east is right. It has a bumper on its left and on its \
right, and sees how far walls are in three directions. The floor has coloured tiles, and furniture stands on it, which \
the robot drives over. Doors are gaps in the walls."""


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
    }
