"""What a language model may know of the house: its plan in words."""

from __future__ import annotations

from envs.knowledge import Knowledge
from envs.navigation.house import load
from envs.navigation.scene import Scene

ABOUT = """\
A robot on two wheels in a house, seen from above: north is up, east is right. It has a bumper on its left and on its \
right, and sees how far walls are in three directions. The floor has coloured tiles, and furniture stands on it, which \
the robot drives over. Doors are gaps in the walls."""


def knowledge(name: str = "") -> Knowledge:
    """Of the default house, whatever map an env has."""
    scene = Scene(load())
    slots = {"object": list(scene.objects), "colour": list(scene.colours[1:])}
    return {
        "name": "navigation",
        "about": ABOUT,
        "actions": [],
        "slots": slots,
        "goals": [
            {"goal": "go to the {object}", "unless": ["at the {object}"]},
            {"goal": "go to the {colour} tile", "unless": ["on the {colour} tile"]},
        ],
        "facts": {"can you drive through a wall": False, "can you drive over the {object}": True},
    }
