"""Maps of a descriptor space as SVG: one colour a cell, dark for low values and bright for high ones.

    Tally ──> plane: [rows, columns] of the first two numbers ──> heat_map, on the house's walls where they are a place

Of further numbers, a plane shows the best, or the sum. Cells that could be reached and are empty are grey; cells that
cannot be reached are white. Colours are those of viridis, whose brightness grows evenly, also in print.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from cluster.report import house_plan
from envs.navigation import Scene
from learner.search.descriptors import Descriptor
from learner.search.quality_diversity import Tally

LEVELS = 24  # colours
EMPTY = "#e4e4e4"
_VIRIDIS = np.array([[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]], np.float64)

Plane = NDArray[np.float64]
"""[rows, columns] of cells: the second number of a descriptor by the first; NaN where there is nothing."""


def quality_plane(tally: Tally) -> Plane:
    """The best quality in each cell."""
    best = _planes(tally.best, tally.cells).max(0)
    return np.where(np.isfinite(best), best, np.nan)


def density_plane(tally: Tally) -> Plane:
    """How many behaviours there are in each cell."""
    count = _planes(tally.count, tally.cells).sum(0).astype(np.float64)
    return np.where(count > 0, count, np.nan)


def reachable_plane(tally: Tally) -> NDArray[np.bool_]:
    """Which cells count for coverage."""
    return np.asarray(_planes(tally.reachable, tally.cells).any(0))


def _planes(values: NDArray[Any], cells: int) -> NDArray[Any]:
    """[further cells, rows, columns]: the first number of a descriptor counts fastest."""
    return values.reshape(-1, cells, cells) if len(values) > cells else values.reshape(1, 1, cells)


def heat_map(
    scene: Scene, descriptor: Descriptor, tally: Tally, plane: Plane, title: str, *, log: bool = False, inner: str = ""
) -> Markup:
    """One map with a key below it.

    Args:
        title: what is seen, for those who cannot see it; escaped here.
        log: the colours are of the logarithm, for counts.
        inner: SVG that is drawn first, such as definitions.
    """
    height, width = scene.tiles.shape
    rows, columns = plane.shape
    side, tall = width / columns, (width if descriptor.is_place else height) / rows
    known = plane[np.isfinite(plane)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    shown = np.log(plane) if log else plane
    first, last = (np.log(low), np.log(high)) if log and len(known) else (low, high)
    share = (shown - first) / (last - first) if last > first else np.where(np.isfinite(plane), 0.5, np.nan)
    level = np.where(np.isfinite(share), np.round(share * (LEVELS - 1)), -1).astype(int)
    level[(level < 0) & ~reachable_plane(tally)] = -2
    parts = [inner]
    for k in range(-1, LEVELS):
        squares = [
            f"M{c * side:g} {r * tall:g}h{side:g}v{tall:g}h{-side:g}z" for r, c in np.argwhere(level == k).tolist()
        ]
        if squares:
            fill = EMPTY if k < 0 else colour(k / (LEVELS - 1))
            parts.append(f'<path shape-rendering="crispEdges" fill="{fill}" d="{"".join(squares)}"/>')
    parts.append(house_plan.walls(scene) if descriptor.is_place else _frame(scene, descriptor, tally))
    u = house_plan.unit(scene)
    parts.append(_key(scene, number(low), number(high)))
    box = f"0 0 {width} {height + 14 * u:g}"
    return Markup(f'<svg role="img" aria-label="{escape(title)}" viewBox="{box}">{"".join(parts)}</svg>')


def colour(share: float) -> str:
    """Of a value, 0 for the lowest to 1 for the highest."""
    at = share * (len(_VIRIDIS) - 1)
    red, green, blue = (round(float(np.interp(at, np.arange(len(_VIRIDIS)), _VIRIDIS[:, k]))) for k in range(3))
    return f"#{red:02x}{green:02x}{blue:02x}"


def number(value: float) -> str:
    """Short, for a key: 1,234, -3.25 or 0.0421; 0 has no sign."""
    value = value + 0.0
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _frame(scene: Scene, descriptor: Descriptor, tally: Tally) -> str:
    """The border of a space that is no house, and what its axes are."""
    (height, width), u = scene.tiles.shape, house_plan.unit(scene)
    words = [
        f"{name} {number(low)} to {number(high)}"
        for name, (low, high) in zip(descriptor.names[:2], tally.bounds.tolist(), strict=False)
    ]
    style = f'font-size="{6.5 * u:g}" fill="#222" stroke="#fff" stroke-width="{1.2 * u:g}" paint-order="stroke"'
    parts = [f'<path d="M0 0H{width}V{height}H0z" fill="none" stroke="#333" stroke-width="{u:g}"/>']
    below = f'x="{width / 2:g}" y="{height - 3 * u:g}" text-anchor="middle"'
    parts.append(f"<text {below} {style}>→ {escape(words[0])}</text>")
    if len(words) > 1:
        turned = f'transform="translate({8 * u:g} {height / 2:g}) rotate(90)"'
        parts.append(f'<text {turned} text-anchor="middle" {style}>→ {escape(words[1])}</text>')
    return "".join(parts)


def _key(scene: Scene, low: str, high: str) -> str:
    """What the colours mean, below the map."""
    (height, width), u = scene.tiles.shape, house_plan.unit(scene)
    y, left, right = height + 8 * u, 45 * u, width - 45 * u
    step = (right - left) / LEVELS
    bars = "".join(
        f'<path d="M{left + k * step:g} {y:g}h{step:g}" stroke="{colour(k / (LEVELS - 1))}" stroke-width="{3 * u:g}"/>'
        for k in range(LEVELS)
    )
    words = f'font-size="{6.5 * u:g}" fill="#222"'
    bars += f'<text x="{left - 3 * u:g}" y="{y + 2 * u:g}" text-anchor="end" {words}>{escape(low)}</text>'
    return bars + f'<text x="{right + 3 * u:g}" y="{y + 2 * u:g}" {words}>{escape(high)}</text>'
