"""Answers as pictures: the house with the paths of all samples, coloured and numbered by route, and with an old one.

The colours are those of Okabe and Ito, which people with colour-blindness tell apart; numbers at the ends say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from cluster.cli.ask.robot import Answer, Neighbour
from cluster.report import house_plan
from envs.navigation import Scene

COLOURS = ("#0072B2", "#D55E00", "#007A5A", "#AA3A83", "#8A6A00")
OTHER = "#555"  # of all further routes
THIN = 2  # every second step of a path is drawn
_PAPER, _INK = "#fff", "#222"


def colour(route: int) -> str:
    """Of a route, by its place among the routes of an answer."""
    return COLOURS[route] if route < len(COLOURS) else OTHER


def drawing(scene: Scene, answer: Answer) -> Markup:
    """The map, the paths of all samples, the target, and dashed the behaviour whose text is most like the sentence."""
    layers = [_dashed(scene, near.pose) for near in answer.by_text[:1]]
    for number, route in reversed(list(enumerate(answer.routes))):  # the commonest is on top
        paths = "".join(_sample(scene, answer.pose[s], number) for s in route.samples)
        layers.append(f'<g class="route" data-route="{number}">{paths}</g>')
    layers.append(_ring(scene, answer.pose[0, 0]))
    if answer.target:
        layers.append(house_plan.target(scene, np.array(answer.target)))
    title = f"where {len(answer.pose)} samples drove that were asked: {answer.sentence}"
    return house_plan.drawing(scene, layers, title, _key(scene, bool(answer.by_text)))


def thumbnail(scene: Scene, neighbour: Neighbour) -> Markup:
    """The map without names, and the path of a behaviour of the archive."""
    height, width = scene.tiles.shape
    inner = house_plan.floor(scene) + house_plan.way(scene, neighbour.pose[::THIN])
    title = escape(f"where this behaviour drove: {neighbour.text or 'it has no text'}")
    return Markup(f'<svg role="img" aria-label="{title}" viewBox="0 0 {width} {height}">{inner}</svg>')


def standalone(picture: str) -> str:
    """A picture as a file of its own."""
    about = 'xmlns="http://www.w3.org/2000/svg" width="900" font-family="sans-serif" style="background:#fff"'
    return str(picture).replace("<svg ", f"<svg {about} ", 1)


def _sample(scene: Scene, pose: NDArray[np.float32], route: int) -> str:
    """A path in its route's colour, and a disc with the route's number where it ends."""
    u, places = house_plan.unit(scene), _pixels(scene, pose)
    (x, y), line = places[-1], _line(places)
    number = f'<text x="{x:g}" y="{y + 1.8 * u:g}" font-size="{5 * u:g}" text-anchor="middle" fill="{_PAPER}">'
    return (
        f'<g fill="none" stroke-linejoin="round" stroke-linecap="round">'
        f'<path d="{line}" stroke="{_PAPER}" stroke-opacity=".7" stroke-width="{2.2 * u:g}"/>'
        f'<path d="{line}" stroke="{colour(route)}" stroke-width="{1.1 * u:g}"/></g>'
        f'<circle cx="{x:g}" cy="{y:g}" r="{3.4 * u:g}" fill="{colour(route)}" stroke="{_PAPER}" '
        f'stroke-width="{0.6 * u:g}"/>{number}{route + 1}</text>'
    )


def _dashed(scene: Scene, pose: NDArray[np.float32]) -> str:
    u, line = house_plan.unit(scene), _line(_pixels(scene, pose))
    return (
        f'<path d="{line}" fill="none" stroke="{_PAPER}" stroke-opacity=".8" stroke-width="{3 * u:g}"/>'
        f'<path d="{line}" fill="none" stroke="{_INK}" stroke-width="{1.4 * u:g}" '
        f'stroke-dasharray="{3 * u:g} {2 * u:g}"/>'
    )


def _ring(scene: Scene, pose: NDArray[np.float32]) -> str:
    u, ((x, y),) = house_plan.unit(scene), _pixels(scene, pose[None])
    return f'<circle cx="{x:g}" cy="{y:g}" r="{3.2 * u:g}" fill="{_PAPER}" stroke="{_INK}" stroke-width="{1.4 * u:g}"/>'


def _key(scene: Scene, archive: bool) -> str:
    """What the marks say, in a line below the house."""
    u, (height, width) = house_plan.unit(scene), scene.tiles.shape
    y, words = height + 9 * u, f'font-size="{5.5 * u:g}" fill="{_INK}"'
    parts = [f'<text x="{5 * u:g}" y="{y:g}" {words}>○ start ❶ end, on route 1</text>']
    if archive:
        x = width - 105 * u
        parts.append(
            f'<path d="M{x:g} {y - 2 * u:g}h{14 * u:g}" stroke="{_INK}" stroke-width="{1.4 * u:g}" '
            f'stroke-dasharray="{3 * u:g} {2 * u:g}"/>'
            f'<text x="{x + 17 * u:g}" y="{y:g}" {words}>nearest in the archive, by text</text>'
        )
    return "".join(parts)


def _pixels(scene: Scene, pose: NDArray[np.float32]) -> NDArray[np.float64]:
    """[N, 2] of the map, to tenths: every THIN-th place and the last."""
    places = np.concatenate([pose[:-1:THIN], pose[-1:]])[:, :2].astype(np.float64)
    return np.round(places * scene.house.scale, 1)


def _line(places: Sequence[NDArray[np.float64]] | NDArray[np.float64]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in places)
