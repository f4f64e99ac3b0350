"""A furnished house as SVG, north up, and what happens in it: ways with their time, places, a robot that moves.

    Scene ──> floor, names     ──┐
    pose  ──> way, robot         ├──> drawing: one <svg> without ids, styles or outside resources
    places ─> target           ──┘

Coordinates are pixels of the map; `unit` is a two-hundredth of its longer side, so that large maps get larger letters.
A way is cut into pieces whose colours say when: orange at first, red, violet in the end. Limit: a way of thousands of
steps is a path of as many points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from envs.navigation import Scene

PIECES = 24  # colours of a way
FRAMES = 134  # places of a robot that moves, at the most
SECONDS = 8  # how long it takes
_TIMES = np.array([[0xE6, 0x9F, 0x00], [0xD1, 0x30, 0x6B], [0x2B, 0x10, 0x5F]], np.float64)
_INK, _PAPER = "#222", "#fff"

Floats = NDArray[np.floating]


def unit(scene: Scene) -> float:
    """Length of one two-hundredth of the map, pixels."""
    return float(max(scene.tiles.shape)) / 200


def drawing(scene: Scene, layers: Sequence[str], title: str, key: str = "") -> Markup:
    """One picture.

    layers: SVG, the lowest first, between `floor` and `names`.
    title: what is seen, for those who cannot see it; escaped here.
    key: SVG of a line below the house, such as `time_key`.
    """
    height, width = scene.tiles.shape
    below = 14 * unit(scene) if key else 0
    inner = "".join((floor(scene), *layers, names(scene), key))
    box = f"0 0 {width} {height + below:g}"
    return Markup(f'<svg role="img" aria-label="{escape(title)}" viewBox="{box}">{inner}</svg>')


def floor(scene: Scene) -> str:
    """Tiles in pale colours, walls, dots where furniture stands."""
    parts = ['<g fill="gray" fill-opacity=".35">']  # the colour of tiles whose name no browser knows
    for colour, x, y, x1, y1 in _tiles(scene):
        parts.append(f'<path fill="{escape(colour.lower())}" d="M{x} {y}H{x1}V{y1}H{x}z"/>')
    parts.append(f"</g>{walls(scene)}")
    for thing in scene.house.objects:
        parts.append(f'<circle cx="{thing.x:g}" cy="{thing.y:g}" r="{1.6 * unit(scene):g}" fill="{_INK}"/>')
    return "".join(parts)


def walls(scene: Scene) -> str:
    """Alone, for what is drawn on a floor without tiles."""
    rectangles = scene.house.as_json()["walls_px_inclusive_x0_y0_x1_y1"]
    path = "".join(f"M{x} {y}H{x1 + 1}V{y1 + 1}H{x}z" for x, y, x1, y1 in rectangles)
    return f'<path fill="#333" d="{path}"/>'


def names(scene: Scene) -> str:
    """Of furniture, above it, and of tiles, at their left lower corners."""
    u = unit(scene)
    parts = [f'<g fill="{_INK}" font-size="{6.5 * u:g}" text-anchor="middle" stroke-linejoin="round">']
    halo = f'stroke="{_PAPER}" stroke-opacity=".8" stroke-width="{1.2 * u:g}" paint-order="stroke"'  # legible anywhere
    for name, thing in zip(scene.objects, scene.house.objects, strict=True):
        parts.append(f'<text x="{thing.x:g}" y="{thing.y - 3 * u:g}" {halo}>{escape(name)}</text>')
    parts.append(f'</g><g fill="#555" font-size="{5 * u:g}" font-style="italic">')
    for colour, x, _, _, y1 in _tiles(scene):
        parts.append(f'<text x="{x + 1.5 * u:g}" y="{y1 - 1.5 * u:g}" {halo}>{escape(colour)}</text>')
    return "".join([*parts, "</g>"])


def way(scene: Scene, pose: Floats) -> str:
    """A trajectory [T, 3] in the colours of its time: a ring where it starts, a disc where it ends."""
    u, places = unit(scene), _pixels(scene, pose)
    edges = np.linspace(0, len(places) - 1, PIECES + 1).astype(int)
    whole = _line(places)
    parts = [
        '<g fill="none" stroke-linecap="round" stroke-linejoin="round">',
        f'<path d="{whole}" stroke="{_PAPER}" stroke-opacity=".85" stroke-width="{3.4 * u:g}"/>',
    ]
    for k in range(PIECES):
        piece = _line(places[edges[k] : edges[k + 1] + 1])
        parts.append(f'<path d="{piece}" stroke="{time_colour(k / (PIECES - 1))}" stroke-width="{1.7 * u:g}"/>')
    (x, y), (x1, y1) = places[0], places[-1]
    ring = f'fill="{_PAPER}" stroke="{time_colour(0)}" stroke-width="{1.6 * u:g}"'
    disc = f'fill="{time_colour(1)}" stroke="{_PAPER}" stroke-width="{u:g}"'
    parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{3.2 * u:g}" {ring}/>')
    parts.append(f'<circle cx="{x1:g}" cy="{y1:g}" r="{3.6 * u:g}" {disc}/></g>')
    return "".join(parts)


def robot(scene: Scene, pose: Floats) -> str:
    """A disc that drives a trajectory [T, 3] again and again, in the time that it took. Its class is `moving`."""
    places = _pixels(scene, pose)
    places = places[np.linspace(0, len(places) - 1, min(len(places), FRAMES)).astype(int)]
    radius = 10 * scene.house.scale
    values = ";".join(f"{x:g},{y:g}" for x, y in places)
    motion = f'<animateMotion dur="{SECONDS}s" repeatCount="indefinite" calcMode="linear" values="{values}"/>'
    look = f'fill="#0072B2" fill-opacity=".75" stroke="{_PAPER}" stroke-width="{0.8 * unit(scene):g}"'
    return f'<circle class="moving" r="{radius:g}" {look}>{motion}</circle>'


def target(scene: Scene, place: Floats) -> str:
    """A cross in a circle at a place [2], world units."""
    u, ((x, y),) = unit(scene), _pixels(scene, np.asarray(place)[None])
    r = 5 * u
    lines = f'<circle cx="{x:g}" cy="{y:g}" r="{0.65 * r:g}"/>'
    lines += f'<path d="M{x - r:g} {y:g}h{2 * r:g}M{x:g} {y - r:g}v{2 * r:g}"/>'
    strokes = ((_PAPER, 2.6), ("#00664c", 1.3))
    return "".join(
        f'<g fill="none" stroke="{colour}" stroke-width="{thick * u:g}">{lines}</g>' for colour, thick in strokes
    )


def thin_way(scene: Scene, pose: Floats, colour: str, points: int = 20) -> str:
    """A trajectory [T, 3] in one colour, by few points in whole pixels, for pages that hold hundreds: a ring where it
    starts, a disc where it ends."""
    u = unit(scene)
    pixels = np.rint(_pixels(scene, pose)).astype(int)[np.linspace(0, len(pose) - 1, points).astype(int)]
    moved = np.append(True, (np.diff(pixels, axis=0) != 0).any(1))
    (x, y), *steps = np.diff(pixels[moved], axis=0, prepend=0).tolist()
    line = f"M{x} {y}l" + " ".join(f"{dx} {dy}" for dx, dy in steps or [(0, 0)])
    x1, y1 = pixels[-1]
    return (
        f'<path d="{line}" fill="none" stroke="{colour}" stroke-width="{1.7 * u:g}" stroke-linejoin="round"/>'
        f'<circle cx="{x}" cy="{y}" r="{2.6 * u:g}" fill="{_PAPER}" stroke="{colour}" stroke-width="{1.4 * u:g}"/>'
        f'<circle cx="{x1}" cy="{y1}" r="{3 * u:g}" fill="{colour}"/>'
    )


def time_key(scene: Scene) -> str:
    """What the colours of a way say, for `drawing`."""
    u, (height, width) = unit(scene), scene.tiles.shape
    y, left, right = height + 8 * u, 32 * u, width - 32 * u
    step = (right - left) / PIECES
    parts = [
        f'<path d="M{left + k * step:g} {y:g}h{step:g}" stroke="{time_colour(k / (PIECES - 1))}" '
        f'stroke-width="{3 * u:g}"/>'
        for k in range(PIECES)
    ]
    words = f'font-size="{6.5 * u:g}" fill="{_INK}"'
    parts.append(f'<text x="{left - 3 * u:g}" y="{y + 2 * u:g}" text-anchor="end" {words}>○ start</text>')
    parts.append(f'<text x="{right + 3 * u:g}" y="{y + 2 * u:g}" {words}>● end</text>')
    return "".join(parts)


def time_colour(share: float) -> str:
    """Of a moment, 0 at first to 1 in the end."""
    red, green, blue = (round(float(np.interp(2 * share, (0, 1, 2), _TIMES[:, k]))) for k in range(3))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _tiles(scene: Scene) -> Iterator[tuple[str, int, int, int, int]]:
    """Colour, left, top, right and bottom of each tile, as `Scene` lays them."""
    rows, (left, top, right, bottom) = scene.house.tiles, scene.house.interior
    for r, row in enumerate(rows):
        y, y1 = (top - (-k * (bottom - top) // len(rows)) for k in (r, r + 1))
        for c, colour in enumerate(row):
            x, x1 = (left - (-k * (right - left) // len(row)) for k in (c, c + 1))
            yield colour, x, y, x1, y1


def _pixels(scene: Scene, places: Floats) -> NDArray[np.float64]:
    """[N, 2] of the map, to tenths, from world units [N, 2 or more]."""
    return np.round(places[:, :2].astype(np.float64) * scene.house.scale, 1)


def _line(places: NDArray[np.float64]) -> str:
    """A path through places, without those at which a robot stands still."""
    moved = np.append(True, (np.diff(places, axis=0) != 0).any(1))
    kept = places[moved]
    kept = np.concatenate([kept, kept]) if len(kept) == 1 else kept  # a dot is a line too
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in kept)
