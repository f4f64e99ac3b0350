"""A house as a picture: tiles, walls, furniture, and a robot with its lasers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from envs.navigation.scene import Scene

_ZOOM = 2  # pixels of the picture a pixel of the map
_RADIUS = 10.0  # of the robot, world units
_FLOOR, _PALE = "white", 0.65  # a plain floor; how much white there is in a tile's colour


def draw(scene: Scene, x: float, y: float, heading: float, sensors: NDArray[np.float32]) -> NDArray[np.uint8]:
    """uint8 [2 H, 2 W, 3], north up, of a robot at world coordinates with what it senses, [5]."""
    from PIL import Image, ImageDraw

    names = (*scene.colours, _FLOOR)
    colours = np.array([_colour(name) for name in names]) * (1 - _PALE) + 255 * _PALE
    colours[0] = 40  # walls
    picture = Image.fromarray(colours.astype(np.uint8)[scene.tiles]).resize(
        (scene.tiles.shape[1] * _ZOOM, scene.tiles.shape[0] * _ZOOM), Image.Resampling.NEAREST
    )
    pen, zoom = ImageDraw.Draw(picture), scene.house.scale * _ZOOM
    for thing in scene.house.objects:
        pen.text((thing.x * _ZOOM, thing.y * _ZOOM), thing.name.replace("_", " "), "black", anchor="mm")
    xg, yg, r = scene.house.goal[0] * zoom, scene.house.goal[1] * zoom, _RADIUS * zoom
    pen.ellipse((xg - r / 2, yg - r / 2, xg + r / 2, yg + r / 2), outline="green", width=2)
    x, y = x * zoom, y * zoom
    for angle, far in zip((math.pi / 4, 0, -math.pi / 4), sensors[:3].tolist(), strict=True):
        end = x + far * zoom * math.cos(heading + angle), y + far * zoom * math.sin(heading + angle)
        pen.line((x, y, *end), fill="firebrick")
    pen.ellipse((x - r, y - r, x + r, y + r), fill="steelblue", outline="black")
    pen.line((x, y, x + r * math.cos(heading), y + r * math.sin(heading)), fill="white", width=2)
    ahead = math.degrees(heading)
    for touched, begin in zip(sensors[3:], (ahead - 90, ahead), strict=True):
        if touched:
            pen.arc((x - r, y - r, x + r, y + r), begin, begin + 90, fill="red", width=3)
    return np.asarray(picture)


def _colour(name: str) -> tuple[int, ...]:
    """RGB of a colour's name; gray for names that are none."""
    from PIL import ImageColor

    try:
        return ImageColor.getrgb(name)[:3]
    except ValueError:
        return (128, 128, 128)
