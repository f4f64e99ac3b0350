"""Sentences of where a robot is: its tile, what stands near, what it touches."""

from __future__ import annotations

from envs.navigation.scene import SIDES, Scene

NOWHERE = "You are in the house"
_TOUCH = ("You touch a wall on your left", "You touch a wall on your right")


def sentences(scene: Scene, situation: list[int]) -> list[str]:
    """What is told of (tile, side of every object, left bumper, right bumper); at least one sentence."""
    tile, *sides, left, right = situation
    told = [f"You are on the {scene.colours[tile]} tile"] if scene.house.tiles else []
    told += [_near(scene.objects[o], side) for o, side in enumerate(sides) if side >= 0]
    told += [sentence for sentence, touched in zip(_TOUCH, (left, right), strict=True) if touched]
    return told or [NOWHERE]


def words(scene: Scene) -> tuple[str, ...]:
    """Every word that sentences of this scene may hold, sorted, in lower case."""
    tiles = [f"You are on the {colour} tile" for colour in scene.colours]
    near = [_near(name, side) for name in scene.objects for side in range(len(SIDES))]
    return tuple(sorted({word for said in (*tiles, *near, *_TOUCH, NOWHERE) for word in said.lower().split()}))


def _near(name: str, side: int) -> str:
    return f"You are at the {name}" if SIDES[side] == "on" else f"You are {SIDES[side]} of the {name}"
