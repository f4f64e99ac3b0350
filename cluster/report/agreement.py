"""What a report says of judges: do the rule, the language model and people agree on what was done as asked?

    deployed.py: scores by item ──> pairs of scores ──> a picture of counts each, and a table of measures

Measures and their intervals are those of `learner.behaviours.agreement`.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from cluster.report import plots
from cluster.report.deployed import Deployed
from cluster.report.page import figure, grid, section, table, text
from learner.behaviours.agreement import MEASURES, agreement
from learner.behaviours.ratings import PEOPLE, pairs
from llm_service.errors import UsageError

FEWEST = 3  # pairs of scores that are worth a measure
TITLES = {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall's tau", "mse": "squared error"}
ENDS = ("value", "low", "high")
_SIDE, _LEFT, _TOP = 200.0, 34.0, 8.0  # of the square of a picture of counts


def agreement_section(found: Deployed, note: str) -> Markup:
    """The section; note: below it."""
    try:
        people, model, rule = found.opinions()
    except UsageError as error:
        return section("Judges", text(f"Ratings cannot be shown: {error}."))
    given = pairs(people, model, rule)
    drawn, rows = [], []
    for (one, other), (a, b) in given.items():
        if one == PEOPLE or one not in people:
            drawn.append(figure(counts(one, other, a, b), f"{one.capitalize()} and {other}, {len(a)} trials."))
        if len(a) >= FEWEST:
            measured = agreement(a, b)
            cells = (_cell(measured[name], 3 if name == "mse" else 2) for name in MEASURES)  # errors are small
            rows.append((f"{one} and {other}", str(len(a)), *cells))
    raters = ", ".join(f"{who} ({len(rated)})" for who, rated in people.items())
    invitation = f"Nobody has rated these trials yet: python launch.py judge {found.run.name}"
    words = f"People who rated, and how many trials each: {raters}." if people else invitation
    head = ["judges", "trials", *(TITLES[name] for name in MEASURES)]
    measures = table(head, rows) if rows else text("There is nothing to compare yet.")
    about = text("Scores are 0 to 1. Brackets: 95 % bootstrap intervals; a dash: one of the two gave but one score.")
    return section("Judges", text(words), grid("films", drawn), measures, about if rows else "", note)


def _cell(measure: Mapping[str, Any], digits: int) -> str:
    value, *ends = (None if number is None else f"{number:.{digits}f}" for number in map(measure.get, ENDS))
    return "–" if value is None else value if None in ends else f"{value} [{', '.join(map(str, ends))}]"


def counts(x_name: str, y_name: str, x: NDArray[np.float64], y: NDArray[np.float64]) -> Markup:
    """SVG of how often each pair of scores was given, rounded to tenths: the area of a disc is its count."""
    cells, number = np.unique(np.rint(10 * np.stack([x, y], 1)).astype(int), axis=0, return_counts=True)
    step = _SIDE / 11
    bottom, right = _TOP + _SIDE, _LEFT + _SIDE

    def place(tenths: int, of_y: bool = False) -> float:
        return bottom - (tenths + 0.5) * step if of_y else _LEFT + (tenths + 0.5) * step

    parts = ['<g stroke="#ddd" stroke-width=".6">']
    parts += [f'<path d="M{place(k):g} {_TOP}v{_SIDE}M{_LEFT} {place(k, True):g}h{_SIDE}"/>' for k in range(0, 11, 2)]
    parts.append(f'<path d="M{_LEFT} {bottom}L{right} {_TOP}" stroke="#888" stroke-dasharray="3 2"/></g>')
    parts.append(f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#444" stroke-width=".8"/>')
    parts.append(f'<g fill="{plots.COLOURS[0]}" fill-opacity=".75">')
    for (a, b), n in zip(cells.tolist(), number.tolist(), strict=True):
        radius = 0.5 * step * float(np.sqrt(n / number.max()))
        parts.append(f'<circle cx="{place(a):.1f}" cy="{place(b, True):.1f}" r="{max(radius, 1):.1f}"/>')
    parts.append('</g><g font-size="10" fill="#222" text-anchor="middle">')
    for k in range(0, 11, 2):
        parts.append(f'<text x="{place(k):.1f}" y="{bottom + 12:g}">{k / 10:g}</text>')
        parts.append(f'<text x="{_LEFT - 11:g}" y="{place(k, True) + 3.5:.1f}">{k / 10:g}</text>')
    middle = _TOP + _SIDE / 2
    parts.append(f'<text x="{_LEFT + _SIDE / 2:g}" y="{bottom + 26:g}">{escape(x_name)}</text>')
    parts.append(f'<text x="10" y="{middle:g}" transform="rotate(-90 10 {middle:g})">{escape(y_name)}</text></g>')
    title = f"how often {escape(x_name)} and {escape(y_name)} gave each pair of scores"
    box = f"0 0 {right + 6:g} {bottom + 32:g}"
    return Markup(f'<svg role="img" aria-label="{title}" viewBox="{box}">{"".join(parts)}</svg>')
